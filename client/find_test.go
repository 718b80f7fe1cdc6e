package client_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func TestConnectWithoutSupervisor(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, h lease.Home)
	}{
		{"nothing there", func(*testing.T, lease.Home) {}},
		{"the record of one that is gone", func(t *testing.T, h lease.Home) {
			t.Run("record", func(t *testing.T) { // at whose end the lock is free
				published(t, h, func(s *lease.Server) { s.StartTicks++; s.PidfdInode++ })
			})
		}},
		{"half a record, and nobody holds the lock", func(t *testing.T, h lease.Home) {
			if err := os.WriteFile(h.ServerFile(), []byte(`{"pid":`), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHome(t)
			c.prepare(t, h)
			cl, err := client.Connect(t.Context(), client.Config{Home: h})
			if cl != nil || !errors.Is(err, lease.ErrNoServer) {
				t.Errorf("%v, %v", cl, err)
			}
			if _, err := os.Lstat(h.ServerFile()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a record is left: %v", err)
			}
		})
	}
}

// A supervisor of another version is not spoken to at all.
func TestConnectToOtherVersion(t *testing.T) {
	for _, theirs := range []lease.Versions{{Min: wire.Protocol + 1, Max: wire.Protocol + 2}, {Min: 0, Max: wire.Protocol - 1}, {}} {
		h := newHome(t)
		d := newDoor(t, "127.0.0.1:0", nil)
		r := published(t, h, func(s *lease.Server) { s.Protocol, s.Version, s.Port = theirs, "9.9", d.port() })
		socket := newDoor(t, r.Socket, nil)
		starts := 0
		_, err := client.Connect(t.Context(), client.Config{Home: h, Start: func(context.Context, lease.Home) error { starts++; return nil }})
		m, ok := errors.AsType[*client.Mismatch](err)
		if !ok || m.Theirs != theirs || m.Version != "9.9" || m.Hint() == "" || m.Error() == "" {
			t.Errorf("%+v: %v", theirs, err)
		}
		if d.visits()+socket.visits()+starts > 0 {
			t.Errorf("%+v: %d and %d connections, %d starts", theirs, d.visits(), socket.visits(), starts)
		}
	}
	// One that speaks more than we do is fine.
	h := newHome(t)
	r := published(t, h, func(s *lease.Server) { s.Protocol.Max = wire.Protocol + 5 })
	newDoor(t, r.Socket, proving(func() lease.Server { return r.Server }, r.Socket, nil))
	mustConnect(t, h)
}

// A record that cannot be judged from here is no reason to start another
// supervisor, nor to speak to whoever is there.
func TestConnectToForeign(t *testing.T) {
	for name, change := range map[string]func(*lease.Server){
		"another PID namespace": func(s *lease.Server) { s.PIDNamespace++; s.LockInode = 0 },
		"another machine":       func(s *lease.Server) { s.MachineID, s.BootID = "m", "b"; s.LockInode = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			r := published(t, h, change)
			socket := newDoor(t, r.Socket, nil)
			starts := 0
			_, err := client.Connect(t.Context(), client.Config{Home: h, Start: func(context.Context, lease.Home) error { starts++; return nil }})
			if err == nil || errors.Is(err, lease.ErrNoServer) || starts+socket.visits() > 0 {
				t.Errorf("%d starts, %d connections: %v", starts, socket.visits(), err)
			}
		})
	}
}

// However many want a supervisor at once, one is started, and all get it.
func TestConnectStartsOne(t *testing.T) {
	h := newHome(t)
	var starts atomic.Int32
	start := func(context.Context, lease.Home) error {
		starts.Add(1)
		servertest.OpenAt(t, h, server.Config{})
		return nil
	}
	var wg sync.WaitGroup
	ids := make([]string, 50)
	for i := range ids {
		wg.Go(func() {
			c, err := client.Connect(t.Context(), client.Config{Home: h, Start: start})
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			defer c.Close()
			ids[i] = c.Server().InstanceID
			if err := c.Call(t.Context(), wire.NewID(), wire.GetVersion{}, nil); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if starts.Load() != 1 {
		t.Errorf("%d supervisors were started", starts.Load())
	}
	for i, id := range ids {
		if id != ids[0] || id == "" {
			t.Errorf("client %d has supervisor %q, client 0 has %q", i, id, ids[0])
		}
	}
}

func TestConnectStartFails(t *testing.T) {
	h := newHome(t)
	no := errors.New("no room")
	if _, err := client.Connect(t.Context(), client.Config{Home: h, Start: func(context.Context, lease.Home) error { return no }}); !errors.Is(err, no) {
		t.Errorf("the error is %v", err)
	}
	// One that starts and tells nobody is none.
	if _, err := client.Connect(t.Context(), client.Config{Home: h, Start: func(context.Context, lease.Home) error { return nil }}); !errors.Is(err, lease.ErrNoServer) {
		t.Errorf("the error is %v", err)
	}
}

// A supervisor that is on its way is waited for, not doubled.
func TestConnectWaitsForStarting(t *testing.T) {
	started := errors.New("another was started")
	for _, c := range []struct {
		name string
		then func(t *testing.T, h lease.Home, r supposed)
		want error
	}{
		{"it publishes itself", func(t *testing.T, h lease.Home, r supposed) {
			if err := h.PublishServer(r.Server); err != nil {
				t.Error(err)
			}
		}, nil},
		{"it ends instead", func(_ *testing.T, _ lease.Home, r supposed) { r.lock.Release() }, started},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHome(t)
			r := published(t, h, func(*lease.Server) {})
			if err := h.RemoveServer(r.InstanceID); err != nil { // it is not that far yet
				t.Fatal(err)
			}
			newDoor(t, r.Socket, proving(func() lease.Server { return r.Server }, r.Socket, nil))
			waiting := make(chan error)
			go func() {
				c, err := client.Connect(t.Context(), client.Config{Home: h, Start: func(context.Context, lease.Home) error { return started }})
				if err == nil {
					c.Close()
				}
				waiting <- err
			}()
			servertest.Eventually(t, "somebody to wait for it", func() bool {
				s, err := lease.Probe(h.StartLock())
				return err == nil && s.Held
			})
			c.then(t, h, r)
			if err := <-waiting; !errors.Is(err, c.want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	t.Run("the caller gives up", func(t *testing.T) {
		h := newHome(t)
		r := published(t, h, func(*lease.Server) {})
		if err := h.RemoveServer(r.InstanceID); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := client.Connect(ctx, client.Config{Home: h, Start: func(context.Context, lease.Home) error { return nil }}); err == nil {
			t.Error("it is connected to nobody")
		}
	})
}

// A command that an agent gives does not put a supervisor into the agent's own
// tree.
func TestConnectInsideInstance(t *testing.T) {
	h := newHome(t)
	start := func(context.Context, lease.Home) error { return errors.New("it was started") }
	if err := h.Instance("abc").Make(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CAST_INSTANCE", "abc")
	if _, err := client.Connect(t.Context(), client.Config{Home: h, Start: start}); !errors.Is(err, client.ErrInside) {
		t.Errorf("the error is %v", err)
	}
	t.Setenv("CAST_INSTANCE", "of another home")
	if _, err := client.Connect(t.Context(), client.Config{Home: h, Start: start}); errors.Is(err, client.ErrInside) {
		t.Errorf("the error is %v", err)
	}
	// But one that lives is used.
	f := servertest.OpenAt(t, h, server.Config{})
	t.Setenv("CAST_INSTANCE", "abc")
	mustConnect(t, f.Home)
}

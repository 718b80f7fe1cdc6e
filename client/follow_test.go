package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/wire"
)

func follow(t *testing.T, c *client.Client, after string, instances ...string) *client.Stream {
	t.Helper()
	s, err := c.Follow(t.Context(), after, instances...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func next(t *testing.T, s *client.Stream, name string) client.Frame {
	t.Helper()
	f, err := s.Next()
	if err != nil || f.Name != name {
		t.Fatalf("a frame %s came, not %s: %s, %v", f.Name, name, f.Data, err)
	}
	return f
}

func TestFollowOverview(t *testing.T) {
	f, c := fleet(t)
	s := follow(t, c, "")
	first := next(t, s, "snapshot")
	if first.ID != "" {
		t.Errorf("the snapshot has the id %q", first.ID)
	}
	in := f.Start("one", "/bin/sh", "-c", "exec sleep 100000")
	for {
		fr := next(t, s, "state")
		var now wire.Instance
		if err := json.Unmarshal(fr.Data, &now); err != nil {
			t.Fatal(err)
		}
		if now.ID == in.ID && now.State == wire.Running {
			return
		}
	}
}

// The events of an instance, and the rest of them after each.
func TestFollowInstance(t *testing.T) {
	f, _ := fleet(t)
	in, last := f.Past("one", 20, 60)
	all := follow(t, mustConnect(t, f.Home), wire.Pos{Epoch: last.Epoch}.String(), "one")
	var frames []client.Frame
	for range last.Seq {
		frames = append(frames, next(t, all, "event"))
	}
	if frames[last.Seq-1].ID != last.String() {
		t.Errorf("the last is %s, not %s", frames[last.Seq-1].ID, last)
	}
	for i, fr := range frames[:last.Seq-1] {
		s := follow(t, mustConnect(t, f.Home), fr.ID, in.ID)
		if got := next(t, s, "event"); got.ID != frames[i+1].ID || string(got.Data) != string(frames[i+1].Data) {
			t.Errorf("after %s came %s", fr.ID, got.ID)
		}
		s.Close()
	}
}

// A stream opens at once, although it has nothing to say.
func TestFollowFromTheEnd(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: time.Hour})
	_, last := f.Past("one", 1, 20)
	follow(t, mustConnect(t, f.Home), last.String(), "one")
}

// Whoever waits for a frame is told of every kind of end.
func TestFollowEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(f *servertest.Fleet, s *client.Stream, cancel func())
		want error
	}{
		{"the context ends", func(_ *servertest.Fleet, _ *client.Stream, cancel func()) { cancel() }, context.Canceled},
		{"the stream is closed", func(_ *servertest.Fleet, s *client.Stream, _ func()) { s.Close() }, net.ErrClosed},
		{"the supervisor ends", func(f *servertest.Fleet, _ *client.Stream, _ func()) { f.End() }, io.EOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, cl := fleet(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := cl.Follow(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			next(t, s, "snapshot")
			ended := make(chan error)
			go func() {
				for {
					fr, err := s.Next()
					if err == nil && fr.Name == "evicted" && string(fr.Data) == `{"reason":"shutdown","resume":""}` {
						continue
					}
					ended <- err
					return
				}
			}()
			c.end(f, s, cancel)
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("the error is %v, not %v", err, c.want)
			}
			if _, err := s.Next(); err == nil {
				t.Error("there is one more frame after the end")
			}
		})
	}
}

// A stream has its connection for itself: nothing waits behind it.
func TestFollowAlone(t *testing.T) {
	_, c := fleet(t)
	s := follow(t, c, "")
	for what, err := range map[string]error{
		"a call":          c.Call(t.Context(), "a", wire.GetVersion{}, nil),
		"a read":          func() error { _, err := c.Get(t.Context(), "/v1/instances"); return err }(),
		"a second stream": func() error { _, err := c.Follow(t.Context(), ""); return err }(),
	} {
		if e := wireError(t, err); e.Code != wire.Unavailable || e.Delivery != wire.NotSent {
			t.Errorf("%s: %+v", what, e)
		}
	}
	next(t, s, "snapshot")
}

// A stream that is refused costs the connection nothing.
func TestFollowRefused(t *testing.T) {
	_, c := fleet(t)
	for _, r := range []struct {
		after     string
		instances []string
		want      error
	}{
		{"", []string{"none"}, wire.ErrNotFound},
		{"nonsense", []string{"none"}, &wire.Error{Code: wire.InvalidRequest}},
		{"", []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}, &wire.Error{Code: wire.InvalidRequest}},
	} {
		if _, err := c.Follow(t.Context(), r.after, r.instances...); !errors.Is(err, r.want) {
			t.Errorf("%v: %v", r, err)
		}
	}
	if err := c.Call(t.Context(), "a", wire.GetVersion{}, nil); err != nil {
		t.Error(err)
	}
	next(t, follow(t, c, ""), "snapshot")
}

// A server that fails is no stream, and no reason to hang.
func TestFollowFails(t *testing.T) {
	say := func(s string) func(net.Conn, *http.Request, string) bool {
		return func(c net.Conn, _ *http.Request, _ string) bool { io.WriteString(c, s); return false }
	}
	for name, then := range map[string]func(net.Conn, *http.Request, string) bool{
		"closes":                   say(""),
		"closes in the head":       say("HTTP/1.1 200 OK\r\nConte"),
		"speaks no HTTP":           say("hello\n"),
		"closes in a refusal":      say("HTTP/1.1 503 X\r\nContent-Length: 100\r\n\r\n{"),
		"refuses without a reason": say("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := connected(t, then)
			_, err := c.Follow(t.Context(), "")
			wireError(t, err)
		})
	}
	t.Run("half a frame", func(t *testing.T) {
		c, _ := connected(t, say("HTTP/1.1 200 OK\r\n\r\nevent: snapshot\ndata: {}\n\nid: a:1\nevent: event\ndata: {"))
		s := follow(t, c, "")
		next(t, s, "snapshot")
		if f, err := s.Next(); !errors.Is(err, io.EOF) || f.Name != "" {
			t.Errorf("%+v, %v", f, err)
		}
	})
	t.Run("it hangs", func(t *testing.T) {
		asked, release := make(chan struct{}), make(chan struct{})
		defer close(release)
		c, _ := connected(t, func(net.Conn, *http.Request, string) bool { close(asked); <-release; return false })
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := c.Follow(ctx, "")
			failed <- err
		}()
		<-asked
		cancel()
		if e := wireError(t, <-failed); e.Code != wire.Unavailable {
			t.Errorf("%+v", e)
		}
	})
}

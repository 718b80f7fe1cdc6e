package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// The socket vouches for the client, so the token stays at home; over TCP it is
// sent, but not before the proof.
func TestTokenIsSentLast(t *testing.T) {
	version := func(c net.Conn, r *http.Request, body string) bool {
		id := decode(t, body).ID
		answer(c, 200, fmt.Sprintf(`{"version":1,"id":%q,"result":{}}`, id))
		return true
	}
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			h := newHome(t)
			var r supposed
			var d *door
			record := func() lease.Server { return r.Server }
			if network == "unix" {
				r = published(t, h, func(*lease.Server) {})
				d = newDoor(t, r.Socket, proving(record, r.Socket, version))
			} else {
				address := make(chan string, 1)
				d = newDoor(t, "127.0.0.1:0", func(c net.Conn) {
					a := <-address
					address <- a
					proving(record, a, version)(c)
				})
				address <- d.Addr().String()
				r = published(t, h, func(s *lease.Server) { s.Port = d.port() })
			}
			c := mustConnect(t, h)
			if heard := d.heard(); strings.Contains(heard, r.Token) || strings.Contains(heard, "Authorization") {
				t.Errorf("before the proof was checked the server had heard:\n%s", heard)
			}
			if err := c.Call(t.Context(), wire.NewID(), wire.GetVersion{}, nil); err != nil {
				t.Fatal(err)
			}
			if got, want := strings.Contains(d.heard(), "Authorization: Bearer "+r.Token), network == "tcp"; got != want {
				t.Errorf("the token was sent: %v\n%s", got, d.heard())
			}
		})
	}
}

func decode(t *testing.T, body string) wire.Request {
	t.Helper()
	req, err := wire.Control.Decode([]byte(body))
	if err != nil {
		t.Errorf("%v: %s", err, body)
	}
	return req
}

// Without its socket a supervisor is reached over TCP.
func TestConnectOverTCP(t *testing.T) {
	f := servertest.Open(t, server.Limits{})
	if err := os.Remove(f.Record.Socket); err != nil {
		t.Fatal(err)
	}
	c := mustConnect(t, f.Home)
	var v wire.VersionResult
	if err := c.Call(t.Context(), wire.NewID(), wire.GetVersion{}, &v); err != nil || v.Product == "" {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := c.Get(t.Context(), "/v1/instances"); err != nil {
		t.Error(err)
	}
}

// Whoever squats where a record points to gets nothing: no token, no command,
// not even when he asks the real supervisor for the proof.
func TestAttackSquatter(t *testing.T) {
	f := servertest.Open(t, server.Limits{})
	real := f.Record
	realTCP := fmt.Sprintf("127.0.0.1:%d", real.Port)
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: "
	say := func(s string) func(net.Conn) {
		return func(c net.Conn) {
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, s)
		}
	}
	proof := func(id, proof string) func(net.Conn) {
		body := fmt.Sprintf(`{"instance_id":%q,"proof":%q}`, id, proof)
		return say(fmt.Sprintf("%s%d\r\n\r\n%s", ok, len(body), body))
	}
	stale := server.Proof(real.Token, real.InstanceID, strings.Repeat("0", 64), realTCP)
	for name, serve := range map[string]func(net.Conn){
		"says nothing":                      func(net.Conn) {},
		"hangs":                             func(c net.Conn) { io.Copy(io.Discard, c) },
		"speaks no HTTP":                    say("hello\n"),
		"says ok":                           say(ok + "11\r\n\r\n" + `{"ok":true}`),
		"says ok without end":               func(c net.Conn) { say(ok + "1000\r\n\r\n{")(c); io.Copy(io.Discard, c) },
		"wants a credential first":          say("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n"),
		"sends elsewhere":                   say("HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:9/v1/identity\r\nContent-Length: 0\r\n\r\n"),
		"has no proof":                      proof(real.InstanceID, ""),
		"has a proof of its own":            proof(real.InstanceID, strings.Repeat("a", 64)),
		"has a proof of another nonce":      proof(real.InstanceID, stale),
		"is another":                        proof(wire.NewID(), stale),
		"proves with an empty token":        proof(real.InstanceID, server.Proof("", real.InstanceID, "", "")),
		"asks the real one over TCP":        relay("tcp", realTCP),
		"asks the real one by its socket":   relay("unix", real.Socket),
		"passes everything to the real TCP": splice("tcp", realTCP),
		"passes everything to the socket":   splice("unix", real.Socket),
	} {
		for _, where := range []string{"socket", "port", "both"} {
			t.Run("A16 it sits at the "+where+" and "+name, func(t *testing.T) {
				h := newHome(t)
				var doors []*door
				r := published(t, h, func(s *lease.Server) {
					s.InstanceID, s.Token = real.InstanceID, real.Token
					s.Socket = filepath.Join(h.Dir(), "nobody")
					if where != "socket" {
						doors = append(doors, newDoor(t, "127.0.0.1:0", serve))
						s.Port = doors[0].port()
					}
				})
				if where != "port" {
					doors = append(doors, newDoor(t, r.Socket, serve))
				}
				c, err := client.Connect(t.Context(), client.Config{Home: h, Proof: 50 * time.Millisecond})
				if err == nil {
					c.Close()
					t.Fatal("it is taken for the supervisor")
				}
				nothingTold(t, doors, real.Token)
			})
		}
	}
}

// nothingTold shows that squatters were asked for a proof, and told nothing.
func nothingTold(t *testing.T, doors []*door, token string) {
	t.Helper()
	visits := 0
	for _, d := range doors {
		visits += d.visits()
		heard := d.heard()
		for _, secret := range []string{token, "Authorization", "Bearer", "Cookie", "POST", "command"} {
			if strings.Contains(heard, secret) {
				t.Errorf("it was told %s:\n%s", secret, heard)
			}
		}
		for _, line := range strings.Split(heard, "\n") {
			if strings.Contains(line, " HTTP/") && !strings.HasPrefix(line, "GET /v1/identity?nonce=") {
				t.Errorf("it was asked %s", line)
			}
		}
	}
	if visits == 0 {
		t.Error("it was not even tried")
	}
}

// relay answers with what the real server answers to the same question.
func relay(network, address string) func(net.Conn) {
	return func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		up, err := net.Dial(network, address)
		if err != nil {
			return
		}
		defer up.Close()
		r.Host = "127.0.0.1:" + address[strings.LastIndex(address, ":")+1:]
		r.Write(up)
		resp, err := http.ReadResponse(bufio.NewReader(up), r)
		if err != nil {
			return
		}
		resp.Write(c)
	}
}

// splice passes every byte on.
func splice(network, address string) func(net.Conn) {
	return func(c net.Conn) {
		up, err := net.Dial(network, address)
		if err != nil {
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			io.Copy(c, up)
			c.Close()
		}()
		io.Copy(up, c)
		up.Close()
		<-done
	}
}

// A squatter at the socket is noticed; it is not merely avoided, because who
// could put it there could do more.
func TestSquatterIsReported(t *testing.T) {
	h := newHome(t)
	d := newDoor(t, "127.0.0.1:0", nil)
	r := published(t, h, func(s *lease.Server) { s.Port = d.port() })
	newDoor(t, r.Socket, func(c net.Conn) {
		http.ReadRequest(bufio.NewReader(c))
		answer(c, 200, `{"instance_id":"x","proof":"y"}`)
	})
	if _, err := client.Connect(t.Context(), client.Config{Home: h}); !errors.Is(err, client.ErrImpostor) {
		t.Errorf("the error is %v", err)
	}
	if d.visits() > 0 {
		t.Error("the port was tried all the same")
	}
}

// A supervisor that leaves while a client is on its way to it is not the one
// that was meant: the client looks again.
func TestConnectAsSupervisorLeaves(t *testing.T) {
	for _, c := range []struct {
		name string
		next bool // another has come
		err  error
	}{
		{"and another has come", true, nil},
		{"and none has come", false, lease.ErrNoServer},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHome(t)
			old := published(t, h, func(*lease.Server) {})
			next := old.Server
			next.InstanceID, next.Token, next.Socket = wire.NewID(), wire.NewID(), filepath.Join(h.Dir(), "next")
			newDoor(t, next.Socket, proving(func() lease.Server { return next }, next.Socket, nil))
			newDoor(t, old.Socket, func(net.Conn) {
				var err error
				if c.next {
					err = h.PublishServer(next)
				} else {
					err = h.RemoveServer(old.InstanceID)
				}
				if err != nil {
					t.Error(err)
				}
			})
			cl, err := client.Connect(t.Context(), client.Config{Home: h})
			if !errors.Is(err, c.err) {
				t.Fatalf("the error is %v", err)
			}
			if err == nil {
				defer cl.Close()
				if cl.Server().InstanceID != next.InstanceID {
					t.Error("it is connected to the old one")
				}
			}
		})
	}
	// None that leaves for ever is followed for ever.
	t.Run("again and again", func(t *testing.T) {
		h := newHome(t)
		r := published(t, h, func(*lease.Server) {})
		newDoor(t, r.Socket, func(net.Conn) {
			next := r.Server
			next.InstanceID = wire.NewID()
			if err := h.PublishServer(next); err != nil {
				t.Error(err)
			}
		})
		if _, err := client.Connect(t.Context(), client.Config{Home: h}); err == nil {
			t.Error("it is connected to nobody")
		}
	})
}

// One that is stopped or wedged is not waited for for ever.
func TestConnectToHanging(t *testing.T) {
	h := newHome(t)
	hang := func(c net.Conn) { io.Copy(io.Discard, c) }
	d := newDoor(t, "127.0.0.1:0", hang)
	r := published(t, h, func(s *lease.Server) { s.Port = d.port() })
	newDoor(t, r.Socket, hang)
	_, err := client.Connect(t.Context(), client.Config{Home: h, Proof: 20 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Connect(ctx, client.Config{Home: h}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

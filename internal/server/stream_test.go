package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of connections in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// serve serves one request in memory and returns the client's end of its
// connection, and what the handler returned.
func serve(t *testing.T, h func(http.ResponseWriter) error) (client net.Conn, result <-chan error) {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	returned := make(chan error, 1)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { returned <- h(w) })}
	go s.Serve(l)
	ours, theirs := net.Pipe()
	l.conns <- theirs
	t.Cleanup(func() {
		ours.Close()
		s.Shutdown(context.Background())
	})
	go io.WriteString(ours, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	return ours, returned
}

// A client that takes a large event slowly makes progress, and is not let go
// for it; one that takes nothing is.
func TestStreamWaitsForProgress(t *testing.T) {
	const stall = 10 * time.Second
	large := []byte(strings.Repeat("x", 4<<20))
	for _, c := range []struct {
		name  string
		pause time.Duration // between two pieces that the client takes
		goes  bool          // and is let go
	}{
		{"at once", 0, false},
		{"slowly", stall - time.Second, false},
		{"too slowly", stall + time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, result := serve(t, func(w http.ResponseWriter) error {
					st := newStream(w, stall)
					st.event("a:1", "event", large)
					return st.flush()
				})
				resp, err := http.ReadResponse(bufio.NewReaderSize(client, 16), nil)
				if err != nil {
					t.Fatal(err)
				}
				read := 0
				b := make([]byte, piece)
				for {
					select {
					case err := <-result:
						if !c.goes && err != nil || c.goes && !isTimeout(err) {
							t.Errorf("after %d bytes: %v", read, err)
						}
						if !c.goes && read < len(large)-2*piece {
							t.Errorf("only %d bytes came", read)
						}
						return
					default:
					}
					n, _ := io.ReadFull(resp.Body, b)
					read += n
					time.Sleep(c.pause)
					synctest.Wait()
				}
			})
		})
	}
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

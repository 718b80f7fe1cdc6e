package client_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// newHome is an empty home, of a test that must leave no goroutine.
func newHome(t *testing.T) lease.Home {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	h, err := lease.OpenHome(filepath.Join(t.TempDir(), "h"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// supposed is a record of this very process, and the lock that goes with it.
type supposed struct {
	lease.Server
	lock *lease.Lock
}

// published publishes this very process as if it were a supervisor. The test
// changes what is to be wrong with it.
func published(t *testing.T, h lease.Home, change func(*lease.Server)) supposed {
	t.Helper()
	lock, err := lease.Acquire(h.DaemonLock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Release() })
	mark, err := lock.Mark()
	if err != nil {
		t.Fatal(err)
	}
	r := lease.Server{
		Mark: mark, InstanceID: wire.NewID(), Host: "127.0.0.1", Port: 1, Socket: filepath.Join(h.Dir(), "s"),
		Protocol: lease.Versions{Min: wire.Protocol, Max: wire.Protocol}, Version: "test", StartedAt: wire.Now(), Token: wire.NewID() + wire.NewID(),
	}
	change(&r)
	if err := h.PublishServer(r); err != nil {
		t.Fatal(err)
	}
	return supposed{r, lock}
}

// door is a listener of a test's own that keeps what it was told.
type door struct {
	net.Listener
	serve func(c net.Conn)

	mu    sync.Mutex // guards the fields below
	told  bytes.Buffer
	conns []net.Conn
	wg    sync.WaitGroup
}

// newDoor listens at an address, or, if that has a slash in it, on a socket, and
// serves each connection. Whatever a client says is kept.
func newDoor(t *testing.T, address string, serve func(c net.Conn)) *door {
	t.Helper()
	network := "tcp"
	if strings.Contains(address, "/") {
		network = "unix"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Listener: l, serve: serve}
	d.wg.Go(d.run)
	t.Cleanup(d.close)
	return d
}

func (d *door) run() {
	for {
		c, err := d.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.conns = append(d.conns, c)
		d.mu.Unlock()
		d.wg.Go(func() {
			defer c.Close()
			d.serve(overheard{c, d})
		})
	}
}

func (d *door) close() {
	d.Listener.Close()
	d.mu.Lock()
	for _, c := range d.conns {
		c.Close()
	}
	d.mu.Unlock()
	d.wg.Wait()
}

// heard is all that clients have said so far.
func (d *door) heard() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told.String()
}

func (d *door) visits() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

func (d *door) port() int { return d.Addr().(*net.TCPAddr).Port }

type overheard struct {
	net.Conn
	d *door
}

func (o overheard) Read(b []byte) (int, error) {
	n, err := o.Conn.Read(b)
	o.d.mu.Lock()
	o.d.told.Write(b[:n])
	o.d.mu.Unlock()
	return n, err
}

// proving serves a connection: it proves to be the supervisor of the record,
// and then does with each request what the test says, until that returns false.
func proving(record func() lease.Server, address string, then func(c net.Conn, r *http.Request, body string) bool) func(net.Conn) {
	return func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if r.URL.Path == "/v1/identity" {
				s := record()
				answer(c, 200, fmt.Sprintf(`{"instance_id":%q,"proof":%q}`, s.InstanceID, server.Proof(s.Token, s.InstanceID, r.URL.Query().Get("nonce"), address)))
				continue
			}
			b, err := io.ReadAll(r.Body)
			if err != nil || !then(c, r, string(b)) {
				return
			}
		}
	}
}

func answer(w io.Writer, status int, body string) {
	fmt.Fprintf(w, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// connected is a client of a door that proves itself and then does what the
// test says.
func connected(t *testing.T, then func(c net.Conn, r *http.Request, body string) bool) (*client.Client, *door) {
	t.Helper()
	h := newHome(t)
	r := published(t, h, func(*lease.Server) {})
	d := newDoor(t, r.Socket, proving(func() lease.Server { return r.Server }, r.Socket, then))
	return mustConnect(t, h), d
}

func mustConnect(t *testing.T, h lease.Home) *client.Client {
	t.Helper()
	c, err := client.Connect(t.Context(), client.Config{Home: h})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// wireError is the error of a call, which must be one of the protocol's.
func wireError(t *testing.T, err error) *wire.Error {
	t.Helper()
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		t.Fatalf("the error is a %T: %v", err, err)
	}
	return e
}

// fleet is a real supervisor, and a client of it.
func fleet(t *testing.T) (*servertest.Fleet, *client.Client) {
	t.Helper()
	f := servertest.Open(t, server.Limits{Heartbeat: 5 * time.Millisecond})
	return f, mustConnect(t, f.Home)
}

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// dialBound is how long a host may take to answer a connection.
const dialBound = 3 * time.Second

// link is the connection to one host. To a host that the registry names it is
// the lease.
type link struct {
	record lease.Host
	hello  wire.HostHello
	conn   net.Conn
	lines  *wire.Lines

	write   sync.Mutex // held over a whole line
	mu      sync.Mutex // guards the fields below
	pending map[string]chan wire.RawResponse
	last    int
	ended   bool
}

// dial connects to the host of a record, and believes it only if the kernel
// says that the process at the other end is the recorded one.
func (s *Supervisor) dial(ctx context.Context, record lease.Host) (*link, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", record.Socket)
	if err != nil {
		return nil, err
	}
	l := &link{record: record, conn: c, lines: wire.NewLines(c, wire.MaxBody), pending: map[string]chan wire.RawResponse{}}
	if err := l.greet(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return l, nil
}

func (l *link) greet(ctx context.Context) error {
	peer, err := proc.PeerOf(l.conn.(*net.UnixConn))
	if err != nil {
		return err
	}
	if peer.PID != l.record.PID {
		return fmt.Errorf("process %d listens on the socket of process %d", peer.PID, l.record.PID)
	}
	if deadline, ok := ctx.Deadline(); ok {
		l.conn.SetReadDeadline(deadline)
	}
	line, err := l.lines.Next()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &l.hello); err != nil || l.hello.Type != "hello" {
		return fmt.Errorf("the host did not say hello: %q", line)
	}
	if l.hello.Incarnation != l.record.Incarnation {
		return fmt.Errorf("the host is incarnation %s, not %s", l.hello.Incarnation, l.record.Incarnation)
	}
	return l.conn.SetReadDeadline(time.Time{})
}

// supported reports whether the host speaks a version that this supervisor
// does too.
func (l *link) supported() bool {
	return l.hello.Protocol.Min <= wire.Protocol && wire.Protocol <= l.hello.Protocol.Max
}

// start takes the lease and watches the host.
func (l *link) start(s *Supervisor, in *instance) {
	name, registry := in.rec.Name, s.db.UUID()
	go func() {
		l.read(func(f frame) {
			switch {
			case f.Status != nil:
				s.post(func() { s.told(in, l, f.Status) })
			case f.Type == "tail":
				s.post(func() { in.tails.wake() })
			}
		})
		s.post(func() { s.disconnected(in, l) })
	}()
	go l.tell(wire.HostLease{Registry: registry, Name: name}, wire.HostWatch{})
}

// tell sends commands whose answers nobody waits for.
func (l *link) tell(commands ...wire.Command) {
	for _, c := range commands {
		l.mu.Lock()
		l.last++
		id := strconv.Itoa(l.last)
		l.mu.Unlock()
		if err := l.send(wire.Request{ID: id, Command: c}); err != nil {
			return
		}
	}
}

// status asks a host for its status.
func (l *link) status(c wire.Command) (*wire.HostStatus, *wire.Error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialBound)
	defer cancel()
	b, err := l.call(ctx, c)
	if err != nil {
		return nil, err
	}
	st := new(wire.HostStatus)
	if err := json.Unmarshal(b, st); err != nil {
		return nil, wire.Errorf(wire.Internal, "the host's status cannot be read: %v", err)
	}
	return st, nil
}

// frame is any line from a host: a response, or a frame.
type frame struct {
	wire.RawResponse
	Type   string           `json:"type"`
	Status *wire.HostStatus `json:"status"`
	At     string           `json:"at"`
}

// read takes lines until the connection ends. Calls in flight are failed then.
func (l *link) read(take func(frame)) {
	defer l.fail()
	for {
		line, err := l.lines.Next()
		if err != nil {
			return
		}
		var f frame
		if json.Unmarshal(line, &f) != nil {
			return
		}
		if f.ID == nil {
			take(f)
			continue
		}
		l.mu.Lock()
		ch := l.pending[*f.ID]
		delete(l.pending, *f.ID)
		l.mu.Unlock()
		if ch != nil { // else a late answer, which nobody waits for
			ch <- f.RawResponse
		}
	}
}

func (l *link) fail() {
	l.conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for id, ch := range l.pending {
		close(ch)
		delete(l.pending, id)
	}
}

func (l *link) close() { l.conn.Close() }

// call sends one request and waits for its answer. The error's delivery says
// whether the host may have got it.
func (l *link) call(ctx context.Context, c wire.Command) (jsontext.Value, *wire.Error) {
	ch := make(chan wire.RawResponse, 1)
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return nil, wire.Errorf(wire.Unavailable, "the host is not connected")
	}
	l.last++
	id := strconv.Itoa(l.last)
	l.pending[id] = ch
	l.mu.Unlock()
	if err := l.send(wire.Request{ID: id, Command: c}); err != nil {
		l.drop(id)
		return nil, err
	}
	select {
	case r, ok := <-ch:
		switch {
		case !ok:
			return nil, wire.Unknownf(wire.Unavailable, "the host ended before it answered")
		case r.Error != nil:
			return nil, r.Error
		}
		return r.Result, nil
	case <-ctx.Done():
		l.drop(id)
		return nil, wire.Unknownf(wire.Unavailable, "the host did not answer in time")
	}
}

func (l *link) drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, id)
}

func (l *link) send(r wire.Request) *wire.Error {
	b, err := wire.Encode(r)
	if err != nil {
		return wire.Errorf(wire.Internal, "%v", err)
	}
	l.write.Lock()
	defer l.write.Unlock()
	l.conn.SetWriteDeadline(time.Now().Add(dialBound))
	n, err := l.conn.Write(append(b, '\n'))
	switch {
	case err == nil:
		return nil
	case n == 0 && !errors.Is(err, net.ErrClosed):
		return wire.Errorf(wire.Unavailable, "the host takes no requests: %v", err)
	case n == 0:
		return wire.Errorf(wire.Unavailable, "the host is not connected")
	}
	l.conn.Close() // half a line is on its way
	return wire.Unknownf(wire.Unavailable, "the host went away: %v", err)
}

package host

import (
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/wire"
)

// door is the host's unix socket and who came through it. It keeps the last
// status encoded; a slow watcher skips states, it never queues them.
type door struct {
	listener *net.UnixListener
	path     string
	serve    func(*visitor)

	mu       sync.Mutex // guards the fields below
	visitors map[*visitor]struct{}
	status   []byte // encoded frame
	closed   bool

	tailing atomic.Int32 // visitors that want to know how the journal grows
}

// visitor is one connection.
type visitor struct {
	conn net.Conn
	out  chan []byte   // responses
	wake chan struct{} // a new status or a grown journal
	gone chan struct{} // closed when the connection has ended

	watching atomic.Bool
	tailing  atomic.Bool
	leasing  bool   // this is the supervisor that named the host; the owner's
	follows  func() // gives the listener hold up; nil if none; the owner's
}

// pendingAnswers bounds what a visitor may leave unread.
const pendingAnswers = wire.MaxPending

func newDoor(l *net.UnixListener, path string, serve func(*visitor)) *door {
	return &door{listener: l, path: path, serve: serve, visitors: map[*visitor]struct{}{}}
}

// run accepts until its listener is closed: the door may get another one.
func (d *door) run(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		if p, err := proc.PeerOf(c); err != nil || p.UID != os.Geteuid() {
			c.Close()
			continue
		}
		v := &visitor{conn: c, out: make(chan []byte, pendingAnswers), wake: make(chan struct{}, 1), gone: make(chan struct{})}
		if !d.enter(v) {
			c.Close()
			return
		}
		go d.serve(v)
	}
}

func (d *door) enter(v *visitor) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.visitors[v] = struct{}{}
	return true
}

func (d *door) exit(v *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.visitors, v)
	if v.tailing.Swap(false) {
		d.tailing.Add(-1)
	}
}

// publish shows a new status to every watcher. Without one it is not even made.
func (d *door) publish(status func() *wire.HostStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status = nil
	for v := range d.visitors {
		if !v.watching.Load() {
			continue
		}
		if d.status == nil {
			b, err := json.Marshal(wire.HostFrame{Type: "status", Status: status()})
			if err != nil {
				return
			}
			d.status = append(b, '\n')
		}
		v.nudge()
	}
}

// grown tells followers that the journal has grown. It is called at each
// append, so without followers it must cost nothing.
func (d *door) grown() {
	if d.tailing.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for v := range d.visitors {
		if v.tailing.Load() {
			v.nudge()
		}
	}
}

func (d *door) tail(v *visitor, on bool) {
	if v.tailing.Swap(on) == on {
		return
	}
	if on {
		d.tailing.Add(1)
		v.nudge()
	} else {
		d.tailing.Add(-1)
	}
}

func (d *door) latest() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// close ends the door and removes the socket's file: nobody else binds that path
// while the alive lock is ours.
func (d *door) close() {
	d.mu.Lock()
	d.closed = true
	visitors := make([]*visitor, 0, len(d.visitors))
	for v := range d.visitors {
		visitors = append(visitors, v)
	}
	d.mu.Unlock()
	os.Remove(d.path)
	d.listener.Close()
	for _, v := range visitors {
		close(v.out)
		<-v.gone
	}
}

func (v *visitor) nudge() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// answer queues a response. A visitor that reads nothing is cut off.
func (v *visitor) answer(b []byte) {
	defer func() { recover() }() // the door closed meanwhile
	select {
	case v.out <- b:
	default:
		v.conn.Close()
	}
}

package server

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// Limits keep one client's abuse from the others. A member that is zero has the
// usual value.
type Limits struct {
	Header    time.Duration // for the head of a request to arrive; 10 s
	Body      time.Duration // for its body; 60 s
	Answer    time.Duration // for an answer to be taken; 60 s
	Idle      time.Duration // between two requests of a connection; 2 min
	Heartbeat time.Duration // between two signs of life of a stream; 15 s
	Stall     time.Duration // for a stream's client to take anything at all; 10 s
	Streams   int           // open at once; 1000
	Conns     int           // over TCP, open at once; 2000
}

const maxHeader = 64 << 10 // bytes of a request's head

func (l Limits) orUsual() Limits {
	or(&l.Header, 10*time.Second)
	or(&l.Body, 60*time.Second)
	or(&l.Answer, 60*time.Second)
	or(&l.Idle, 2*time.Minute)
	or(&l.Heartbeat, 15*time.Second)
	or(&l.Stall, 10*time.Second)
	or(&l.Streams, 1000)
	or(&l.Conns, 2000)
	return l
}

func or[T comparable](v *T, usual T) {
	var zero T
	if *v == zero {
		*v = usual
	}
}

// sendBuffer bounds what the kernel keeps for a client that does not read. It
// would grow to megabytes by itself, for each of many.
const sendBuffer = 256 << 10

// crowd is a listener that lets in a bounded number. When it is full, whoever
// has been inside longest without a credential makes room: any local process
// can open connections, and none of them may keep a client out.
type crowd struct {
	net.Listener
	max int

	mu        sync.Mutex // guards the fields below and those of the guests
	inside    int
	strangers list.List // of *guest, the longest inside first
}

func newCrowd(l net.Listener, max int) *crowd { return &crowd{Listener: l, max: max} }

// Accept takes the next connection in. One for which there is no room, because
// all inside have a credential, is closed.
func (l *crowd) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g, ok := l.admit(c); ok {
			return g, nil
		}
		c.Close()
	}
}

func (l *crowd) admit(c net.Conn) (*guest, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside == l.max {
		oldest := l.strangers.Front()
		if oldest == nil {
			return nil, false
		}
		out := oldest.Value.(*guest)
		out.leave()
		out.Conn.Close()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(sendBuffer)
	}
	g := &guest{Conn: c, crowd: l}
	g.stranger = l.strangers.PushBack(g)
	l.inside++
	return g, true
}

// guest is one connection of a crowd.
type guest struct {
	net.Conn
	crowd    *crowd
	stranger *list.Element // nil once it has shown a credential or has left
	gone     bool
}

// known takes the guest out of those who make room for others.
func (g *guest) known() {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	g.settle()
}

func (g *guest) settle() {
	if g.stranger != nil {
		g.crowd.strangers.Remove(g.stranger)
		g.stranger = nil
	}
}

// leave gives the guest's place up, once. The crowd is locked.
func (g *guest) leave() {
	if !g.gone {
		g.gone = true
		g.crowd.inside--
		g.settle()
	}
}

// Close ends the connection and gives its place up.
func (g *guest) Close() error {
	g.crowd.mu.Lock()
	g.leave()
	g.crowd.mu.Unlock()
	return g.Conn.Close()
}

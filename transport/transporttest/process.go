package transporttest

import (
	"fmt"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// farEnv tells the test binary to be a far end, and where its test listens.
const farEnv = "TRANSPORTTEST_FAR"

// Main must be called first in TestMain by whoever uses [NewProcess]. In a
// process that was started as a far end it does not return.
func Main() {
	if path := os.Getenv(farEnv); path != "" {
		play(path)
	}
}

// Process is a far end that is a program of its own: the test binary. It
// reaches its test through a socket and leaves its standard streams to the
// transport.
type Process struct {
	t      testing.TB
	socket string
	calls  *rpc.Client
	ready  chan struct{} // it has called, or never will
	gone   chan struct{}
}

// NewProcess prepares a far end. The transport under test has to run Path with
// Env added to the environment.
func NewProcess(t testing.TB) *Process {
	dir, err := os.MkdirTemp("", "far") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, socket: filepath.Join(dir, "s"), ready: make(chan struct{}), gone: make(chan struct{})}
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { p.accept(l) })
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
		os.RemoveAll(dir)
	})
	return p
}

// Path is the program.
func (p *Process) Path() string {
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	return exe
}

// Env is what makes the program the far end of this test. Under the race
// detector a program would sleep for a second before it exits.
func (p *Process) Env() []string {
	return []string{farEnv + "=" + p.socket, "GORACE=atexit_sleep_ms=0"}
}

func (p *Process) accept(l net.Listener) {
	defer close(p.gone)
	conn, err := l.Accept()
	if err != nil {
		close(p.ready)
		return
	}
	p.calls = rpc.NewClient(conn)
	close(p.ready)
	// The connection ends with the process, and this call with the connection.
	p.calls.Call("Player.Stay", 0, new(int))
	p.calls.Close()
}

// call asks the process for something; its death is an answer too.
func (p *Process) call(method string, argument, result any) {
	<-p.ready
	if p.calls != nil {
		p.calls.Call("Player."+method, argument, result)
	}
}

// Say writes to the process's standard output.
func (p *Process) Say(b string) { p.call("Say", []byte(b), new(int)) }

// Complain writes to its standard error.
func (p *Process) Complain(b string) { p.call("Complain", []byte(b), new(int)) }

// CloseOutput closes its standard output.
func (p *Process) CloseOutput() { p.call("CloseOutput", 0, new(int)) }

// Hear reads a line from its standard input.
func (p *Process) Hear() (line string, ok bool) {
	var h Heard
	p.call("Hear", 0, &h)
	return h.Line, h.OK
}

// Exit lets it exit.
func (p *Process) Exit(code int) {
	p.call("Exit", code, new(int))
	<-p.gone
}

// Die lets it kill itself.
func (p *Process) Die(signal int) {
	p.call("Die", signal, new(int))
	<-p.gone
}

// Gone is closed when the process has ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// play is the life of a far end.
func play(socket string) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, "transporttest:", err)
		os.Exit(2)
	}
	s := rpc.NewServer()
	if err := s.RegisterName("Player", newPlayer()); err != nil {
		fmt.Fprintln(os.Stderr, "transporttest:", err)
		os.Exit(2)
	}
	s.ServeConn(conn) // until the test is gone
	os.Exit(0)
}

// die kills the process itself.
func die(signal int) {
	syscall.Kill(os.Getpid(), syscall.Signal(signal))
	select {} // it may take a moment to arrive
}

package transporttest

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Player is the far process's side of a [Process]: what its test calls. It is
// exported for net/rpc only.
type Player struct {
	mu sync.Mutex // held over a read
	in *bufio.Reader
}

// Heard is a line that the process was sent.
type Heard struct {
	Line string
	OK   bool
}

func newPlayer() *Player {
	signal.Ignore(syscall.SIGPIPE) // an output that nobody reads is no reason to die
	return &Player{in: bufio.NewReader(os.Stdin)}
}

// Say writes to standard output and returns when the reader has it all.
func (*Player) Say(b []byte, _ *int) error {
	if _, err := os.Stdout.Write(b); err != nil {
		return err
	}
	fd := int(os.Stdout.Fd())
	for {
		n, err := unix.IoctlGetInt(fd, pendingBytes)
		if err != nil || n == 0 {
			return err
		}
		reader := []unix.PollFd{{Fd: int32(fd)}}
		if _, err := unix.Poll(reader, 0); err == nil && reader[0].Revents&unix.POLLERR != 0 {
			return syscall.EPIPE
		}
		time.Sleep(20 * time.Microsecond) // a pipe tells nobody that it was emptied
	}
}

// Complain writes to standard error.
func (*Player) Complain(b []byte, _ *int) error {
	_, err := os.Stderr.Write(b)
	return err
}

// CloseOutput closes standard output.
func (*Player) CloseOutput(int, *int) error { return os.Stdout.Close() }

// Hear reads a line from standard input.
func (p *Player) Hear(_ int, h *Heard) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	line, err := p.in.ReadString('\n')
	if err == io.EOF {
		return nil
	}
	h.Line, h.OK = strings.TrimSuffix(line, "\n"), true
	return err
}

// Stay returns never.
func (*Player) Stay(int, *int) error { select {} }

// Exit exits.
func (*Player) Exit(code int, _ *int) error {
	os.Exit(code)
	return nil
}

// Die ends by a signal.
func (*Player) Die(signal int, _ *int) error {
	die(signal)
	return nil
}

package transport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/castctl/castctl/internal/proc"
)

// Config describes a local agent.
type Config struct {
	Path string   // the program's file
	Argv []string // with the program's name first
	Env  []string // the whole environment
	Dir  string
	// Inherit are further descriptors for the agent, from 3 on.
	Inherit []*os.File

	// Output switches to byte mode: the agent's output is delivered as it comes
	// instead of line by line, and its input is never written. It returns how
	// many bytes at the end it wants to see again in front of the next (half a
	// character). At the end of the output it gets what it kept once more, and
	// nothing behind it; what it keeps then is gone.
	Output func(batch []byte) (keep int)
	// Exited is called as soon as the agent's own process has ended, whoever
	// still holds its output. It comes before Closed, unless the transport had
	// ended before the process.
	Exited func(proc.Exit)

	MaxLine int           // bytes; 0 is 64 MiB
	Drain   time.Duration // how long others may hold the output open after the exit; 0 is 1 s
}

const (
	// DefaultMaxLine caps a line from an agent.
	DefaultMaxLine = 64 << 20
	// DefaultDrain bounds the waiting for the output's end after an agent's exit.
	DefaultDrain = time.Second
	// killBound is how long a killed process may take to be gone.
	killBound = 2 * time.Second
)

// Subprocess is a local agent on pipes, in a session of its own.
type Subprocess struct {
	cfg Config
	on  Handlers

	stdout pump
	stderr pump
	tail   tail
	junk   atomic.Int64

	errors sync.Mutex // held over each line of standard error or noise
	write  sync.Mutex // held over a whole line

	mu     sync.Mutex // guards the fields below
	child  *proc.Child
	stdin  *os.File
	exit   *proc.Exit
	closed bool // by the owner
	told   bool // that it ended on its own
	ended  chan struct{}
}

// NewSubprocess makes the transport; nothing runs before Start.
func NewSubprocess(cfg Config, on Handlers) *Subprocess {
	if cfg.MaxLine == 0 {
		cfg.MaxLine = DefaultMaxLine
	}
	if cfg.Drain == 0 {
		cfg.Drain = DefaultDrain
	}
	return &Subprocess{cfg: cfg, on: on, ended: make(chan struct{})}
}

// Start starts the agent. An error means that nothing runs.
func (s *Subprocess) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.child != nil {
		return errors.New("the transport was started before")
	}
	var ours, theirs [3]*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours[:i])
			closeAll(theirs[:i])
			return err
		}
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	child, err := proc.Start(proc.Command{
		Path: s.cfg.Path, Argv: s.cfg.Argv, Env: s.cfg.Env, Dir: s.cfg.Dir,
		Files: append(theirs[:], s.cfg.Inherit...), NewSession: true,
	})
	closeAll(theirs[:])
	if err != nil {
		closeAll(ours[:])
		return err
	}
	s.child, s.stdin, s.stdout.pipe, s.stderr.pipe = child, ours[0], ours[1], ours[2]
	started := make(chan struct{})
	defer close(started)
	go s.live(started)
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Write sends one JSON object as one line.
func (s *Subprocess) Write(object []byte) error {
	if s.cfg.Output != nil {
		return &WriteError{Err: errors.ErrUnsupported}
	}
	if !IsObject(object) {
		return &WriteError{Err: ErrNotObject}
	}
	line := make([]byte, 0, len(object)+1)
	for _, c := range object {
		if c != '\n' && c != '\r' { // white space between tokens only: inside strings it is escaped
			line = append(line, c)
		}
	}
	line = append(line, '\n')
	s.write.Lock()
	defer s.write.Unlock()
	if !s.Alive() {
		return &WriteError{Err: ErrClosed}
	}
	n, err := s.stdin.Write(line)
	if errors.Is(err, os.ErrClosed) {
		err = ErrClosed
	}
	if err != nil {
		return &WriteError{Sent: n > 0, Err: err}
	}
	return nil
}

// CloseInput tells the agent that nothing more will come.
func (s *Subprocess) CloseInput() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stdin.Close()
}

// Close ends the agent: end of input, then, if the context ends first, SIGKILL
// to its process group. It returns when the agent is dead and everything it
// said was delivered. If a handler blocks, it does not wait for that for ever.
func (s *Subprocess) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	child, stdin, over := s.child, s.stdin, s.told && s.exit != nil
	s.mu.Unlock()
	if child == nil || over {
		return nil
	}
	stdin.Close()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
	}
	if err := child.SignalGroup(syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
		return err
	}
	bound := time.NewTimer(killBound + s.cfg.Drain)
	defer bound.Stop()
	select {
	case <-s.ended:
		return nil
	case <-bound.C:
		return fmt.Errorf("the agent's last output is still being taken: %w", ctx.Err())
	}
}

// Disown makes the coming end the owner's own: Closed will not be called.
func (s *Subprocess) Disown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Alive reports whether the transport has not ended.
func (s *Subprocess) Alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child != nil && s.exit == nil && !s.closed && !s.told
}

// Ended is closed when the agent is dead and its streams are dry.
func (s *Subprocess) Ended() <-chan struct{} { return s.ended }

// Child is the agent's process; nil before Start.
func (s *Subprocess) Child() *proc.Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child
}

// Exit is how the agent's process ended; ok is false while it lives.
func (s *Subprocess) Exit() (e proc.Exit, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exit == nil {
		return proc.Exit{}, false
	}
	return *s.exit, true
}

// StderrTail returns at most n of the last lines of standard error.
func (s *Subprocess) StderrTail(n int) []string { return s.tail.last(n) }

// Junk counts the output lines that were not JSON objects.
func (s *Subprocess) Junk() int64 { return s.junk.Load() }

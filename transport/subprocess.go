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
	// many bytes at the end it wants to see again (half a character).
	Output func(batch []byte) (keep int)
	// Exited is called as soon as the agent's own process has ended, whoever
	// still holds its output, before Closed.
	Exited func(proc.Exit)

	MaxLine int           // bytes; 0 is 64 MiB
	Drain   time.Duration // how long output may go on after the exit; 0 is 1 s
}

const (
	// DefaultMaxLine caps a line from an agent.
	DefaultMaxLine = 64 << 20
	// DefaultDrain bounds the reading after an agent's exit.
	DefaultDrain = time.Second
	// maxStderrLine caps a line of standard error; a longer one is cut up.
	maxStderrLine = 32 << 10
)

// Subprocess is a local agent on pipes, in a session of its own.
type Subprocess struct {
	cfg Config
	on  Handlers

	child  *proc.Child
	stdout *os.File
	stderr *os.File
	tail   tail
	junk   atomic.Int64

	write sync.Mutex // held over a whole line
	stdin *os.File

	mu     sync.Mutex // guards the fields below
	exit   *proc.Exit
	closed bool // by the owner
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
func (s *Subprocess) Start(context.Context) error {
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
	s.child, s.stdin, s.stdout, s.stderr = child, ours[0], ours[1], ours[2]
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

// live reads until the agent is dead and its streams are dry, then tells.
func (s *Subprocess) live(started <-chan struct{}) {
	var reading sync.WaitGroup
	var failure error
	reading.Go(s.readStderr)
	reading.Go(func() { failure = s.readStdout() })
	dry := make(chan struct{})
	go func() {
		reading.Wait()
		close(dry)
	}()

	exited := make(chan struct{})
	go func() {
		defer close(exited)
		s.awaitExit()
	}()

	reason := ""
	select {
	case <-exited:
		reason = "process " + s.exitString()
		s.drain(dry)
	case <-dry:
		if s.cfg.Output != nil && failure == nil {
			// In byte mode a process may close its output and go on.
			<-exited
			reason = "process " + s.exitString()
			break
		}
		// An agent without output can still exit; give its status the chance.
		select {
		case <-exited:
			reason = "process " + s.exitString()
		case <-time.After(s.cfg.Drain):
			reason = "end of the agent's output"
			if failure != nil {
				reason = fmt.Sprintf("reading the agent's output: %v", failure)
			}
		}
	}
	<-started
	s.finish(reason)
}

// awaitExit waits on the process, never on its pipes: a grandchild may hold
// those for ever.
func (s *Subprocess) awaitExit() {
	exit, err := s.child.Wait(context.Background())
	if err != nil {
		exit = proc.Exit{Code: -1}
	}
	s.mu.Lock()
	s.exit = &exit
	s.mu.Unlock()
	if s.cfg.Exited != nil {
		s.cfg.Exited(exit)
	}
}

func (s *Subprocess) exitString() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exit.String()
}

// drain reads on after the exit, but no longer than the bound.
func (s *Subprocess) drain(dry <-chan struct{}) {
	bound := time.NewTimer(s.cfg.Drain)
	defer bound.Stop()
	select {
	case <-dry:
	case <-bound.C:
		s.stdout.Close()
		s.stderr.Close()
		<-dry
	}
}

func (s *Subprocess) finish(reason string) {
	closeAll([]*os.File{s.stdin, s.stdout, s.stderr})
	s.mu.Lock()
	tell := !s.closed && s.on.Closed != nil
	s.mu.Unlock()
	if tell {
		s.on.Closed(reason)
	}
	close(s.ended)
}

func (s *Subprocess) notice(n Notice) {
	if s.on.Notice != nil {
		s.on.Notice(n)
	}
}

// readStdout reads the agent's output, in lines or in batches.
func (s *Subprocess) readStdout() error {
	p := pump{pipe: s.stdout}
	if s.cfg.Output != nil {
		p.deliver = s.cfg.Output
		err := p.run()
		if b := p.rest(); len(b) > 0 {
			s.cfg.Output(b)
		}
		return realError(err)
	}
	f := framer{max: s.cfg.MaxLine, line: s.message, lost: func(n int64) { s.notice(Notice{Kind: Oversize, Bytes: n}) }}
	p.deliver = f.feed
	err := p.run()
	// The last line may lack its end. If it is whole, the agent only forgot it.
	switch b := p.rest(); {
	case f.skipped > 0:
		f.lost(f.skipped)
	case len(b) > 0 && IsObject(b):
		s.message(b)
	case len(b) > 0:
		s.notice(Notice{Kind: Torn, Bytes: int64(len(b))})
	}
	return realError(err)
}

// realError drops the error by which we end the reading ourselves.
func realError(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (s *Subprocess) message(line []byte) {
	if IsObject(line) {
		if s.on.Message != nil {
			s.on.Message(line)
		}
		return
	}
	s.junk.Add(1)
	s.notice(Notice{Kind: NotJSON, Bytes: int64(len(line))})
	s.stderrLine(line)
}

func (s *Subprocess) readStderr() {
	var f framer
	f = framer{max: maxStderrLine, line: s.stderrLine, lost: func(int64) {}}
	p := pump{pipe: s.stderr, deliver: func(b []byte) int {
		keep := f.feed(b)
		if keep > maxStderrLine/2 { // a long line is passed on in pieces
			s.stderrLine(b[len(b)-keep:])
			f.scanned, keep = 0, 0
		}
		return keep
	}}
	p.run()
	if b := p.rest(); len(b) > 0 {
		s.stderrLine(b)
	}
}

func (s *Subprocess) stderrLine(line []byte) {
	s.tail.add(line)
	if s.on.Stderr != nil {
		s.on.Stderr(line)
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
	if err != nil {
		return &WriteError{Sent: n > 0, Err: err}
	}
	return nil
}

// CloseInput tells the agent that nothing more will come.
func (s *Subprocess) CloseInput() error { return s.stdin.Close() }

// Close ends the agent: end of input, then, if the context ends first, SIGKILL
// to its process group.
func (s *Subprocess) Close(ctx context.Context) error {
	s.Disown()
	if s.child == nil {
		return nil
	}
	s.stdin.Close()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
	}
	err := s.child.SignalGroup(syscall.SIGKILL)
	<-s.ended
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	return err
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
	return s.child != nil && s.exit == nil && !s.closed
}

// Ended is closed when the agent is dead and its streams are dry.
func (s *Subprocess) Ended() <-chan struct{} { return s.ended }

// Child is the agent's process.
func (s *Subprocess) Child() *proc.Child { return s.child }

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

package transport

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/castctl/castctl/internal/proc"
)

// live tells the transport's own end once, and stays until the agent is dead
// and its streams are dry.
func (s *Subprocess) live(started <-chan struct{}) {
	var failure error
	exited := gone(s.awaitExit)
	silent := gone(func() { failure = s.readStdout() })
	mute := gone(s.readStderr)

	early := false // the output ended, the process has not
	select {
	case <-exited:
	case <-silent:
		if s.cfg.Output != nil && failure == nil {
			<-exited // in byte mode a process may close its output and go on
			break
		}
		// An agent without output can still exit; give its status the chance.
		select {
		case <-exited:
		case <-time.After(s.cfg.Drain):
			early = true
		}
	}
	<-started
	if early {
		reason := "end of the agent's output"
		if failure != nil {
			reason = fmt.Sprintf("reading the agent's output: %v", failure)
		}
		s.CloseInput()
		go s.tell(reason) // the handler may wait for the process's end
		// Nothing more is heard, but the process lives: its standard error is
		// drained to the end, or it would block on it.
		<-exited
	}
	s.drain(silent, mute)
	closeAll([]*os.File{s.stdin, s.stdout.pipe, s.stderr.pipe})
	if !early {
		exit, _ := s.Exit()
		s.tell("process " + exit.String())
	}
	close(s.ended)
}

// gone runs do in the background; the channel is closed when it has returned.
func gone(do func()) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		do()
	}()
	return c
}

// tell reports the death, unless the owner was first.
func (s *Subprocess) tell(reason string) {
	s.mu.Lock()
	s.told = true
	owners := s.closed
	s.mu.Unlock()
	if !owners && s.on.Closed != nil {
		s.on.Closed(reason)
	}
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

// drain waits for the end of both streams after the exit, but no longer than
// the bound. What the agent itself wrote is delivered in any case: it is in the
// pipes by now.
func (s *Subprocess) drain(silent, mute <-chan struct{}) {
	bound := time.NewTimer(s.cfg.Drain)
	defer bound.Stop()
	for _, dry := range []<-chan struct{}{silent, mute} {
		select {
		case <-dry:
		case <-bound.C: // once, and then for both
			s.stdout.stop()
			s.stderr.stop()
			<-dry
		}
	}
}

// readStdout reads the agent's output, in lines or in batches.
func (s *Subprocess) readStdout() error {
	p := &s.stdout
	defer p.close()
	if s.cfg.Output != nil {
		p.deliver = s.cfg.Output
		err := p.run()
		if b := p.rest(); len(b) > 0 {
			s.cfg.Output(b)
		}
		return err
	}
	lines := newSorter(s.cfg.MaxLine, s.on, func(line []byte) {
		s.junk.Add(1)
		pieces(line, s.stderrLine)
	})
	p.deliver = lines.feed
	err := p.run()
	lines.finishStream(p.rest())
	return err
}

func (s *Subprocess) readStderr() {
	p := &s.stderr
	defer p.close()
	p.deliver = func(b []byte) int { return errorLines(b, s.stderrLine) }
	p.run()
	if b := bytes.TrimSuffix(p.rest(), cr); len(b) > 0 {
		s.stderrLine(b)
	}
}

// stderrLine takes a line of standard error or a piece of one, and noise from
// the output.
func (s *Subprocess) stderrLine(line []byte) {
	s.errors.Lock()
	defer s.errors.Unlock()
	s.tail.add(line)
	if s.on.Stderr != nil {
		s.on.Stderr(line)
	}
}

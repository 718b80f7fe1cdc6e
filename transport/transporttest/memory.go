package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/castctl/castctl/transport"
)

// Memory is a transport whose [Agent] is played by the same process.
type Memory struct {
	on     transport.Handlers
	framer *transport.Framer
	acts   chan act
	errors string // the unfinished line of standard error

	mu      sync.Mutex // guards the fields below
	input   []string
	heard   chan struct{} // closed and made anew when the input changes
	started bool
	eof     bool // of the input
	dead    bool
	told    bool
	closed  bool
	gone    chan struct{} // the agent is dead
	ended   chan struct{} // and what it said was delivered
}

// act is something that the agent does; it is done when done is closed.
type act struct {
	output, errors string
	end            string // the reason, if this ends the transport
	done           chan struct{}
}

// Agent is the far end of a [Memory].
type Agent struct{ m *Memory }

var (
	_ transport.Transport = (*Memory)(nil)
	_ Far                 = (*Agent)(nil)
)

// NewMemory makes a transport and its agent. Lines of more than maxLine bytes
// are dropped; 0 is [transport.DefaultMaxLine].
func NewMemory(maxLine int, on transport.Handlers) (*Memory, *Agent) {
	m := &Memory{
		on: on, framer: transport.NewFramer(maxLine, on), acts: make(chan act),
		heard: make(chan struct{}), gone: make(chan struct{}), ended: make(chan struct{}),
	}
	return m, &Agent{m}
}

// Start begins to deliver what the agent says.
func (m *Memory) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return transport.ErrClosed
	}
	if m.started {
		return errors.New("the transport was started before")
	}
	m.started = true
	started := make(chan struct{})
	defer close(started)
	go m.live(started)
	return nil
}

// live carries out what the agent does, one act after the other.
func (m *Memory) live(started <-chan struct{}) {
	defer close(m.ended)
	reason := m.listen()
	m.framer.Close()
	<-started
	m.tell(reason)
	// After the end of its output an agent may still live, and complain.
	for {
		select {
		case a := <-m.acts:
			m.complain(a.errors)
			close(a.done)
		case <-m.gone:
			return
		}
	}
}

// listen delivers until the transport ends, and returns why.
func (m *Memory) listen() (reason string) {
	for {
		select {
		case a := <-m.acts:
			m.framer.Write([]byte(a.output))
			m.complain(a.errors)
			close(a.done)
			if a.end != "" {
				return a.end
			}
		case <-m.gone:
			return "killed"
		}
	}
}

// complain delivers the whole lines of standard error.
func (m *Memory) complain(b string) {
	m.errors += b
	for {
		line, rest, ok := strings.Cut(m.errors, "\n")
		if !ok {
			return
		}
		m.errors = rest
		if line = strings.TrimSuffix(line, "\r"); line != "" && m.on.Stderr != nil {
			m.on.Stderr([]byte(line))
		}
	}
}

func (m *Memory) tell(reason string) {
	m.mu.Lock()
	m.told = true
	m.endInput()
	owners := m.closed
	m.mu.Unlock()
	if !owners && m.on.Closed != nil {
		m.on.Closed(reason)
	}
}

// endInput lets the agent hear the end; the caller holds the lock.
func (m *Memory) endInput() {
	m.eof = true
	close(m.heard)
	m.heard = make(chan struct{})
}

// Write hands the object to the agent. It never waits for it.
func (m *Memory) Write(object []byte) error {
	if !transport.IsObject(object) {
		return &transport.WriteError{Err: transport.ErrNotObject}
	}
	line := bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, object)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.alive() {
		return &transport.WriteError{Err: transport.ErrClosed}
	}
	m.input = append(m.input, string(line))
	close(m.heard)
	m.heard = make(chan struct{})
	return nil
}

// Close ends the agent's input and waits for its end. When the context ends
// first, the agent is made to end.
func (m *Memory) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.endInput()
	if !m.started {
		m.die()
	}
	over := m.ended
	if m.told || !m.started {
		over = m.gone // Closed may be the caller
	}
	m.mu.Unlock()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	m.die()
	m.mu.Unlock()
	<-over
	return nil
}

// die makes the agent be gone; the caller holds the lock.
func (m *Memory) die() {
	if !m.dead {
		m.dead = true
		close(m.gone)
	}
}

// Alive reports whether the transport has not ended.
func (m *Memory) Alive() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alive()
}

func (m *Memory) alive() bool { return m.started && !m.told && !m.closed && !m.dead }

func (a *Agent) do(what act) {
	what.done = make(chan struct{})
	select {
	case a.m.acts <- what:
		select {
		case <-what.done:
		case <-a.m.gone:
		}
	case <-a.m.gone:
	}
}

// Say writes to the agent's output; it returns when that was delivered.
func (a *Agent) Say(b string) { a.do(act{output: b}) }

// Complain writes to its standard error.
func (a *Agent) Complain(b string) { a.do(act{errors: b}) }

// CloseOutput ends its output.
func (a *Agent) CloseOutput() { a.do(act{end: "end of the agent's output"}) }

// Exit ends it with a code.
func (a *Agent) Exit(code int) { a.end(fmt.Sprintf("process exited with code %d", code)) }

// Die ends it by a signal.
func (a *Agent) Die(signal int) { a.end(fmt.Sprintf("process terminated by signal %d", signal)) }

func (a *Agent) end(reason string) {
	a.do(act{errors: "\n", end: reason}) // its last line may lack its end
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.m.die()
}

// Gone is closed when it has ended.
func (a *Agent) Gone() <-chan struct{} { return a.m.gone }

// Hear returns the next line that it was sent.
func (a *Agent) Hear() (line string, ok bool) {
	for {
		a.m.mu.Lock()
		heard := a.m.heard
		if len(a.m.input) > 0 {
			line, a.m.input = a.m.input[0], a.m.input[1:]
			a.m.mu.Unlock()
			return line, true
		}
		eof := a.m.eof
		a.m.mu.Unlock()
		if eof {
			return "", false
		}
		select {
		case <-heard:
		case <-a.m.gone:
			return "", false
		}
	}
}

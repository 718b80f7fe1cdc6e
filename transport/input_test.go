package transport_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/transport"
	"github.com/castctl/castctl/transport/transporttest"
)

type exit = proc.Exit

// ended is a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// deaf starts an agent that does not read its input.
func deaf(t *testing.T, change setup) (*fake, transporttest.Far) {
	far := transporttest.NewProcess(t)
	f := startProgram(t, func(c *transport.Config, on *transport.Handlers) {
		c.Env = append(c.Env, far.Env()...)
		if change != nil {
			change(c, on)
		}
	}, far.Path())
	far.Say("{}\n") // it is there
	return f, far
}

// big is an object that no pipe takes whole.
var big = []byte(`{"pad":"` + strings.Repeat("x", 3<<20) + `"}`)

func TestAWriteThatBlocksIsFreedAndSaysWhatWasSent(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*fake, transporttest.Far)
		err  error
	}{
		{"by Close", func(f *fake, _ transporttest.Far) { f.kill() }, transport.ErrClosed},
		{"by the agent's death", func(_ *fake, far transporttest.Far) { far.Die(9) }, nil},
		{"by the end of the output", func(f *fake, far transporttest.Far) { far.CloseOutput(); f.await("closed", 1) }, transport.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, far := deaf(t, func(c *transport.Config, _ *transport.Handlers) { c.Drain = 1 })
			first, second := make(chan error, 1), make(chan error, 1)
			go func() { first <- f.Write(big) }()
			eventually(t, "the pipe is full", func() bool { return pending(t, f.Child().PID(), 0) > 0 })
			go func() { second <- f.Write(big) }() // waits for the first, or comes too late
			c.end(f, far)
			check := func(name string, errs <-chan error, sent bool) {
				t.Helper()
				var err error
				select {
				case err = <-errs:
				case <-time.After(patience):
					t.Fatalf("the %s Write is not freed", name)
				}
				we, ok := errors.AsType[*transport.WriteError](err)
				if !ok || we.Sent != sent {
					t.Errorf("the %s Write: %v; want a WriteError with Sent=%t", name, err, sent)
				}
				if c.err != nil && !errors.Is(err, c.err) {
					t.Errorf("the %s Write: %v, want %v", name, err, c.err)
				}
			}
			check("first", first, true)
			check("second", second, false)
		})
	}
}

func TestAWriteToAnAgentThatTakesNoInputSendsNothing(t *testing.T) {
	f := startProgram(t, nil, "/bin/sh", "-c", `exec 0<&-; echo '{}'; exec sleep 600`)
	f.await("message", 1) // its input is closed by now
	err := f.Write([]byte(`{"a":1}`))
	we, ok := errors.AsType[*transport.WriteError](err)
	if !ok || we.Sent || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Write: %v, want EPIPE and nothing sent", err)
	}
	if !f.Alive() {
		t.Error("not Alive although the agent lives")
	}
}

func TestAWriteAfterCloseInputSendsNothing(t *testing.T) {
	f := startFake(t, nil, "--ignore-eof")
	f.CloseInput()
	err := f.Write([]byte(`{"a":1}`))
	we, ok := errors.AsType[*transport.WriteError](err)
	if !ok || we.Sent || !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Write: %v, want ErrClosed and nothing sent", err)
	}
}

func TestRequestsFromManyGoroutinesAreAllAnsweredOnce(t *testing.T) {
	f := startFake(t, nil)
	const n = 200
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range n / 4 {
				if err := f.Write([]byte(`{"version":1,"id":"x","command":{"op":"echo"}}`)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	f.CloseInput()
	f.await("closed", 1)
	if got := len(f.all("message")); got != n {
		t.Errorf("%d answers to %d requests", got, n)
	}
}

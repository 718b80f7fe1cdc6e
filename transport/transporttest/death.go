package transporttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/castctl/castctl/transport"
)

func death(t *testing.T, make Factory) {
	for _, c := range []struct {
		name   string
		end    func(Far)
		reason string
	}{
		{"killed", func(f Far) { f.Die(9) }, "process terminated by signal 9"},
		{"terminated", func(f Far) { f.Die(15) }, "process terminated by signal 15"},
		{"exited well", func(f Far) { f.Exit(0) }, "process exited with code 0"},
		{"exited with a code", func(f Far) { f.Exit(3) }, "process exited with code 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, make, maxLine)
			const n = 300
			var want []string
			for i := range n {
				line := fmt.Sprintf(`{"n":%d}`, i)
				r.Say(line + "\n")
				want = append(want, "message "+line)
			}
			c.end(r.Far)
			r.await("closed", 1)
			want = append(want, "closed "+c.reason)
			r.same(want, "message", "closed", "notice", "stderr")
			// What came too late would show after Close.
			if err := r.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			r.same(want, "message", "closed", "notice", "stderr")
		})
	}
}

func endOfOutput(t *testing.T, make Factory) {
	r := start(t, make, maxLine)
	r.Say("{\"a\":1}\n{\"a\":2}")
	r.CloseOutput()
	r.await("closed", 1)
	got := r.all("message", "closed")
	if len(got) != 3 || got[0] != `message {"a":1}` || got[1] != `message {"a":2}` || got[2] == "closed " {
		t.Fatalf("told %q, want two messages and a death with a reason", got)
	}
	if r.Alive() {
		t.Error("Alive after the death was told")
	}
	err := r.Write([]byte(`{}`))
	if we, ok := errors.AsType[*transport.WriteError](err); !ok || we.Sent || !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Write: %v, want ErrClosed and nothing sent", err)
	}
	if _, ok := r.Hear(); ok {
		t.Error("the agent's input goes on")
	}
	// The agent itself lives on, and Close must not leave it behind.
	select {
	case <-r.Gone():
		t.Fatal("the agent is gone already")
	default:
	}
	within(t, "Close", func() { r.kill() })
	wait(t, "the agent", r.Gone())
	if n := len(r.all("closed")); n != 1 {
		t.Errorf("death was told %d times", n)
	}
}

func earlyDeath(t *testing.T, make Factory) {
	var owner sync.Mutex // as an owner holds one while it starts its transport
	r := &rig{t: t, more: newSignal()}
	on := r.handlers()
	closed := on.Closed
	on.Closed = func(reason string) {
		owner.Lock()
		defer owner.Unlock()
		closed(reason)
	}
	r.Transport, r.Far = make(t, on, maxLine)
	t.Cleanup(r.end)
	go r.Die(9)
	within(t, "Start", func() {
		owner.Lock()
		defer owner.Unlock()
		r.start()
		if n := len(r.all("closed")); n > 0 {
			t.Error("the death was told before Start had returned")
		}
	})
	r.await("closed", 1)
	r.same([]string{"closed process terminated by signal 9"}, "closed")
}

func ownersClose(t *testing.T, make Factory) {
	for _, c := range []struct {
		name string
		end  func(Far)
	}{
		{"the agent exits", func(f Far) { f.Exit(0) }},
		{"the agent fails", func(f Far) { f.Exit(1) }},
		{"the agent dies", func(f Far) { f.Die(9) }},
		{"the agent ends its output first", func(f Far) { f.CloseOutput(); f.Exit(0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, make, maxLine)
			r.Say("{\"a\":1}\n")
			closed := beside(func() { r.check(r.Close(t.Context())) })
			if line, ok := r.Hear(); ok {
				t.Fatalf("the agent heard %q, want the end of its input", line)
			}
			c.end(r.Far)
			wait(t, "Close", closed)
			r.same([]string{`message {"a":1}`}, "message", "closed")
		})
	}
}

func (r *rig) check(err error) {
	if err != nil {
		r.t.Errorf("Close: %v", err)
	}
}

func lastWords(t *testing.T, make Factory) {
	r := start(t, make, maxLine)
	closed := beside(func() { r.check(r.Close(t.Context())) })
	r.Hear()
	r.Say("{\"last\":1}\n{\"last\":2}")
	r.Exit(0)
	wait(t, "Close", closed)
	r.same([]string{`message {"last":1}`, `message {"last":2}`}, "message", "closed")
}

func closeKills(t *testing.T, make Factory) {
	r := start(t, make, maxLine)
	ctx, cancel := context.WithCancel(t.Context())
	closed := beside(func() { r.check(r.Close(ctx)) })
	r.Hear() // the end of the input, which it takes no notice of
	select {
	case <-closed:
		t.Fatal("Close has returned although the agent lives")
	default:
	}
	cancel()
	wait(t, "Close", closed)
	wait(t, "the agent", r.Gone())
	r.same([]string{}, "closed")
}

func closeInClosed(t *testing.T, make Factory) {
	for _, c := range []struct {
		name string
		end  func(Far)
	}{
		{"after an exit", func(f Far) { f.Exit(0) }},
		{"after the end of the output", func(f Far) { f.CloseOutput() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			done := newSignal()
			var r *rig
			tr, far := make(t, transport.Handlers{Closed: func(string) {
				defer close(done)
				r.check(r.kill())
			}}, maxLine)
			r = &rig{t: t, Transport: tr, Far: far, more: newSignal()}
			t.Cleanup(r.end)
			r.start()
			c.end(far)
			wait(t, "Close within Closed", done)
			wait(t, "the agent", far.Gone())
		})
	}
}

func closeOften(t *testing.T, make Factory) {
	t.Run("at once", func(t *testing.T) {
		r := start(t, make, maxLine)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { r.check(r.Close(t.Context())) })
		}
		r.Hear()
		r.Exit(0)
		within(t, "Close", all.Wait)
		r.check(r.Close(t.Context()))
		r.same([]string{}, "closed")
	})
	t.Run("before Start", func(t *testing.T) {
		r := newRig(t, make, maxLine)
		r.check(r.Close(t.Context()))
		if err := r.Start(t.Context()); err == nil {
			t.Error("Start after Close: no error")
		}
		r.same([]string{}, "closed")
	})
}

func closeRacesDeath(t *testing.T, make Factory) {
	for range 20 {
		r := start(t, make, maxLine)
		r.Say("{}\n") // it is there
		var both sync.WaitGroup
		both.Go(func() { r.Exit(0) })
		both.Go(func() { r.kill() })
		within(t, "Close", both.Wait)
		if n := len(r.all("closed")); n > 1 {
			t.Fatalf("death was told %d times", n)
		}
		r.end()
	}
}

func startEnded(t *testing.T, make Factory) {
	r := newRig(t, make, maxLine)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v, want %v", err, context.Canceled)
	}
	if r.Alive() {
		t.Error("Alive although nothing was started")
	}
	r.check(r.Close(t.Context()))
	r.same([]string{}, "closed", "message", "stderr")
}

func alive(t *testing.T, make Factory) {
	var atDeath bool
	told := newSignal()
	var r *rig
	tr, far := make(t, transport.Handlers{Closed: func(string) {
		atDeath = r.Alive()
		close(told)
	}}, maxLine)
	r = &rig{t: t, Transport: tr, Far: far, more: newSignal()}
	t.Cleanup(r.end)
	if r.Alive() {
		t.Error("Alive before Start")
	}
	r.start()
	far.Say("{}\n")
	if !r.Alive() {
		t.Error("not Alive after Start")
	}
	far.Exit(0)
	wait(t, "Closed", told)
	if atDeath || r.Alive() {
		t.Error("Alive after the death")
	}

	r = start(t, make, maxLine)
	closed := beside(func() { r.kill() })
	wait(t, "Close", closed)
	if r.Alive() {
		t.Error("Alive after Close")
	}
}

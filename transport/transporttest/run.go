package transporttest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/castctl/castctl/transport"
)

// Run judges a transport: one subtest for each sentence of the contract.
func Run(t *testing.T, make Factory) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Factory)
	}{
		{"messages come in order and one at a time", inOrder},
		{"T01 lines are framed by LF alone", framing},
		{"T02 a character split anywhere is the same character", splits},
		{"T03 a line over the cap is dropped and counted, and the next is read", oversize},
		{"standard error comes by lines", complaints},
		{"standard error and noise come one at a time", complaintsAndNoise},
		{"handlers may be nil", nilHandlers},
		{"death is told once, after every message, with its reason", death},
		{"the end of the output is a death", endOfOutput},
		{"a death before Start has returned is told after it", earlyDeath},
		{"an owner's Close is no death", ownersClose},
		{"last words at an owner's Close are delivered", lastWords},
		{"Close with an ended context kills", closeKills},
		{"Close may be called from Closed", closeInClosed},
		{"Close may be called often, at once, and before Start", closeOften},
		{"Close and death at once tell at most once", closeRacesDeath},
		{"Start with an ended context starts nothing", startEnded},
		{"Alive until it has ended", alive},
		{"Write sends one line for each object", writeLines},
		{"Write refuses what is not one JSON object", writeRefuses},
		{"Write from many goroutines never interleaves", writeTogether},
		{"Write after the end sends nothing and says so", writeAfterEnd},
		{"Close frees whoever waits in Write", closeFreesWriters},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, make) })
	}
}

// patience is how long a case waits before it calls something lost. No case
// takes that long unless it fails.
const patience = 30 * time.Second

// rig is a transport under test with what it has told so far.
type rig struct {
	transport.Transport
	Far
	t testing.TB

	mu   sync.Mutex // guards the fields below
	told []string   // "kind text", in order
	more chan struct{}
}

// maxLine is the cap in cases that are not about it.
const maxLine = 1 << 20

// newRig makes a transport that is not started.
func newRig(t testing.TB, make Factory, limit int) *rig {
	r := &rig{t: t}
	r.more = newSignal()
	r.Transport, r.Far = make(t, r.handlers(), limit)
	t.Cleanup(r.end)
	return r
}

func newSignal() chan struct{} { return make(chan struct{}) }

// start makes a transport and starts it.
func start(t testing.TB, make Factory, limit int) *rig {
	r := newRig(t, make, limit)
	r.start()
	return r
}

func (r *rig) start() {
	r.t.Helper()
	if err := r.Start(r.t.Context()); err != nil {
		r.t.Fatalf("Start: %v", err)
	}
}

func (r *rig) handlers() transport.Handlers {
	return transport.Handlers{
		Message: func(b []byte) { r.tell("message", string(b)) },
		Stderr:  func(b []byte) { r.tell("stderr", string(b)) },
		Closed:  func(reason string) { r.tell("closed", reason) },
		Notice:  func(n transport.Notice) { r.tell("notice", fmt.Sprintf("%s %d", n.Kind, n.Bytes)) },
	}
}

func (r *rig) tell(kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, kind+" "+text)
	close(r.more)
	r.more = newSignal()
}

// all returns what was told of some kinds, in order.
func (r *rig) all(kinds ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []string{}
	for _, s := range r.told {
		kind, _, _ := strings.Cut(s, " ")
		for _, k := range kinds {
			if k == kind {
				out = append(out, s)
			}
		}
	}
	return out
}

// await waits until n of a kind were told.
func (r *rig) await(kind string, n int) {
	r.t.Helper()
	lost := time.After(patience)
	for {
		r.mu.Lock()
		more := r.more
		r.mu.Unlock()
		have := len(r.all(kind))
		if have >= n {
			return
		}
		select {
		case <-more:
		case <-lost:
			r.t.Fatalf("only %d of %d came: %s", have, n, kind)
		}
	}
}

// hear returns what the agent heard next.
func (r *rig) hear() string {
	r.t.Helper()
	line, ok := r.Hear()
	if !ok {
		r.t.Fatal("the agent's input has ended")
	}
	return line
}

// kill closes without any patience.
func (r *rig) kill() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return r.Close(ctx)
}

// end leaves nothing behind, and checks what holds after every case.
func (r *rig) end() {
	if err := r.kill(); err != nil {
		r.t.Errorf("Close: %v", err)
	}
	if got := r.all("closed"); len(got) > 1 {
		r.t.Errorf("death was told %d times: %q", len(got), got)
	}
}

// within runs do, which must return.
func within(t testing.TB, what string, do func()) {
	t.Helper()
	wait(t, what, beside(do))
}

// beside runs do beside the test; the channel is closed when it has returned.
func beside(do func()) <-chan struct{} {
	done := newSignal()
	go func() {
		defer close(done)
		do()
	}()
	return done
}

func wait(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: does not end", what)
	}
}

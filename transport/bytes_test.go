package transport_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/castctl/castctl/transport"
	"github.com/castctl/castctl/transport/transporttest"
)

// numbered is what the fake agent prints in n bytes of --plain.
func numbered(n int) []byte {
	var b []byte
	for i := 1; len(b) < n; i++ {
		b = append(strconv.AppendInt(append(b, "line "...), int64(i), 10), '\n')
	}
	return b[:n]
}

// collector takes output in byte mode and keeps back what keep says.
type collector struct {
	mu      sync.Mutex // guards the fields below
	got     []byte
	batches int
	again   int // batches that did not begin with what was kept
	keep    func(batch []byte) int
	before  []byte
}

func (c *collector) take(b []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches++
	if !bytes.HasPrefix(b, c.before) {
		c.again++
	}
	keep := c.keep(b)
	n := min(max(keep, 0), len(b))
	c.got = append(c.got, b[:len(b)-n]...)
	c.before = bytes.Clone(b[len(b)-n:])
	return keep
}

func TestBytesComeInOrderAndNoneIsLost(t *testing.T) {
	const size = 3<<20 + 17
	for _, c := range []struct {
		name string
		keep func(b []byte) int
	}{
		{"nothing is kept", func([]byte) int { return 0 }},
		{"the unfinished line is kept", func(b []byte) int { return len(b) - 1 - bytes.LastIndexByte(b, '\n') }},
		{"half of it is kept", func(b []byte) int { return len(b) / 2 }},
		{"all of it is kept until there is much", func(b []byte) int {
			if len(b) < 2<<20 {
				return len(b)
			}
			return 0
		}},
		{"less than nothing is nothing", func([]byte) int { return -5 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := &collector{keep: c.keep}
			f := startFake(t, func(cfg *transport.Config, _ *transport.Handlers) { cfg.Output = out.take }, "--plain", "--bytes", fmt.Sprint(size))
			f.await("closed", 1)
			if got, want := append(out.got, out.before...), numbered(size); !bytes.Equal(got, want) {
				t.Errorf("%d bytes came, want %d, or others", len(got), len(want))
			}
			if out.again > 0 {
				t.Errorf("%d of %d batches did not begin with what was kept", out.again, out.batches)
			}
			if got := f.all("message", "notice", "stderr"); len(got) > 0 {
				t.Errorf("told %.100q in byte mode", got)
			}
		})
	}
}

func TestWhatWasKeptComesOnceMoreAtTheEnd(t *testing.T) {
	var last []byte
	calls := 0
	f := startProgram(t, func(c *transport.Config, _ *transport.Handlers) {
		c.Output = func(b []byte) int { calls++; last = bytes.Clone(b); return len(b) }
	}, "/bin/sh", "-c", `printf 'ab\303'`)
	wait(t, "the end", f.Ended())
	if calls != 2 || string(last) != "ab\xc3" {
		t.Errorf("%d calls, the last with %q, want 2 and what was kept", calls, last)
	}
}

func TestBackPressureLosesNothing(t *testing.T) {
	const size = 4 << 20 // more than all buffers on the way
	free := make(chan struct{})
	out := &collector{keep: func([]byte) int { return 0 }}
	f := startFake(t, func(c *transport.Config, _ *transport.Handlers) {
		c.Output = func(b []byte) int { <-free; return out.take(b) }
	}, "--plain", "--bytes", fmt.Sprint(size))
	eventually(t, "the pipe is full", func() bool { return pending(t, f.Child().PID(), 1) > 32<<10 })
	if got := f.all("exited"); len(got) > 0 {
		t.Fatalf("the agent could write it all: %q", got)
	}
	close(free)
	f.await("closed", 1)
	if !bytes.Equal(out.got, numbered(size)) {
		t.Errorf("%d bytes came, want %d, or others", len(out.got), size)
	}
}

func TestInByteModeTheEndOfTheOutputIsNoDeath(t *testing.T) {
	far := transporttest.NewProcess(t)
	out := &collector{keep: func([]byte) int { return 0 }}
	f := startProgram(t, func(c *transport.Config, _ *transport.Handlers) {
		c.Env = append(c.Env, far.Env()...)
		c.Drain = 1
		c.Output = out.take
	}, far.Path())
	far.Say("said")
	far.CloseOutput()
	far.Complain("and complained\n")
	f.await("stderr", 1)
	if !f.Alive() {
		t.Error("not Alive although the process lives")
	}
	far.Die(9)
	f.await("closed", 1)
	want := []string{"stderr and complained", "exited terminated by signal 9", "closed process terminated by signal 9"}
	if got := f.all("stderr", "exited", "closed"); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if string(out.got) != "said" {
		t.Errorf("the output is %q", out.got)
	}
}

func TestInByteModeNothingIsEverWritten(t *testing.T) {
	far := transporttest.NewProcess(t)
	f := startProgram(t, func(c *transport.Config, _ *transport.Handlers) {
		c.Env = append(c.Env, far.Env()...)
		c.Output = func([]byte) int { return 0 }
	}, far.Path())
	far.Say("up")
	err := f.Write([]byte(`{}`))
	we, ok := errors.AsType[*transport.WriteError](err)
	if !ok || we.Sent || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Write: %v, want ErrUnsupported and nothing sent", err)
	}
	f.CloseInput()
	if line, ok := far.Hear(); ok {
		t.Errorf("the agent heard %q", line)
	}
}

func TestT05BytesWhileAGrandchildHoldsTheOutput(t *testing.T) {
	const size = 2 << 20
	out := &collector{keep: func([]byte) int { return 0 }}
	f := startFake(t, func(c *transport.Config, _ *transport.Handlers) {
		c.Output = out.take
		c.Drain = 1
	}, "--plain", "--bytes", fmt.Sprint(size), "--setsid-holder")
	f.await("closed", 1)
	if !bytes.Equal(out.got, numbered(size)) {
		t.Errorf("%d bytes came, want %d, or others", len(out.got), size)
	}
	if got, want := f.all("exited", "closed"), []string{"exited exited with code 0", "closed process exited with code 0"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

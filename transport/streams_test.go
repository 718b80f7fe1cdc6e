package transport_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/castctl/castctl/transport"
	"github.com/castctl/castctl/transport/transporttest"
)

func TestT02EveryFlushOfARealAgentIsSafe(t *testing.T) {
	const text = "é 你 😀"
	want := fmt.Sprintf(`message {"version":1,"id":"r0","result":{"op":"echo","t":"%s"}}`, text)
	for n := 1; n <= len(want)-len("message "); n++ {
		f := startFake(t, nil, "--split-at", fmt.Sprint(n))
		if got := f.ask(`{"op":"echo","t":"` + text + `"}`); got != want {
			t.Fatalf("split at %d: %q", n, got)
		}
		f.kill()
	}
}

func TestT03GiantLines(t *testing.T) {
	const limit = transport.DefaultMaxLine
	f := startFake(t, nil)
	for _, c := range []struct {
		name  string
		bytes int // of the line without its end
	}{
		{"64 KiB less one", 64<<10 - 1},
		{"64 KiB", 64 << 10},
		{"1 MiB", 1 << 20},
		{"16 MiB", 16 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := f.ask(fmt.Sprintf(`{"op":"big","bytes":%d}`, c.bytes))
			if n := len(got) - len("message "); n != c.bytes {
				t.Errorf("a line of %d bytes was delivered, want %d", n, c.bytes)
			}
		})
		f.forget()
	}
	t.Run("one more than the cap, and a good line", func(t *testing.T) {
		if err := f.Write(fmt.Appendf(nil, `{"version":1,"id":"over","command":{"op":"big","bytes":%d}}`, limit+1)); err != nil {
			t.Fatal(err)
		}
		if got, want := f.ask(`{"op":"echo"}`), `message {"version":1,"id":"r0","result":{"op":"echo"}}`; got != want {
			t.Errorf("the next line is %.200q, want %q", got, want)
		}
		if got, want := f.all("notice"), []string{fmt.Sprintf("notice oversize %d", limit+1)}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// forget drops what was told, so that giant lines are not kept.
func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = nil
}

func TestT04HandshakeBehindNoiseAndStandardError(t *testing.T) {
	f := startFake(t, nil, "--noise", "5", "--stderr-bytes", fmt.Sprint(1<<20))
	if got, want := f.ask(`{"op":"echo"}`), `message {"version":1,"id":"r0","result":{"op":"echo"}}`; got != want {
		t.Errorf("the first answer is %q, want %q", got, want)
	}
	if n := f.Junk(); n != 5 {
		t.Errorf("%d lines of noise were counted, want 5", n)
	}
	if got := f.all("notice"); len(got) != 5 || got[0] != fmt.Sprintf("notice not_json %d", len("fakeagent banner 1 of 5")) {
		t.Errorf("the banner was told as %q", got)
	}
	f.CloseInput()
	wait(t, "the agent's end", f.Ended())
	lines := slices.DeleteFunc(f.all("stderr"), func(l string) bool { return strings.HasPrefix(l, "stderr fakeagent banner") })
	if want := complaints(1 << 20); !slices.Equal(lines, want) {
		t.Errorf("%d lines of standard error came, want %d, or others", len(lines), len(want))
	}
	tail := f.StderrTail(1 << 20)
	if n := len(strings.Join(tail, "\n")) + 1; n > 64<<10 || n < 60<<10 {
		t.Errorf("a tail of %d bytes is kept, want up to 64 KiB", n)
	}
	if last := "stderr " + tail[len(tail)-1]; last != lines[len(lines)-1] {
		t.Errorf("the tail ends with %q, want %q", last, lines[len(lines)-1])
	}
}

// complaints is what n bytes of the fake agent's standard error are told as.
func complaints(n int) []string {
	var out []string
	for i := 1; n > 0; i++ {
		line := fmt.Sprintf("fakeagent complaint %d\n", i)
		line = line[:min(len(line), n)]
		n -= len(line)
		out = append(out, "stderr "+strings.TrimSuffix(line, "\n"))
	}
	return out
}

func TestALongLineOfStandardErrorIsCutBetweenCharacters(t *testing.T) {
	var f *fake
	far := transporttest.NewProcess(t)
	f = startProgram(t, func(c *transport.Config, _ *transport.Handlers) { c.Env = append(c.Env, far.Env()...) }, far.Path())
	line := strings.Repeat("你", 90_000)
	far.Complain(line + "\n")
	far.Say(line + "\n") // noise is cut up in the same way
	far.Exit(0)
	f.await("closed", 1)
	var got strings.Builder
	for _, s := range f.all("stderr") {
		piece := strings.TrimPrefix(s, "stderr ")
		if len(piece) > 32<<10 {
			t.Errorf("a piece of %d bytes", len(piece))
		}
		if strings.ToValidUTF8(piece, "?") != piece {
			t.Errorf("a piece ends within a character: …%q", piece[len(piece)-5:])
		}
		got.WriteString(piece)
	}
	if got.Len() != 2*len(line) {
		t.Errorf("%d bytes came, want %d", got.Len(), 2*len(line))
	}
	if n := f.Junk(); n != 1 {
		t.Errorf("%d lines of noise were counted, want 1", n)
	}
}

func TestStandardErrorIsDrainedToTheExitAfterTheOutputHasEnded(t *testing.T) {
	far := transporttest.NewProcess(t)
	f := startProgram(t, func(c *transport.Config, _ *transport.Handlers) {
		c.Env = append(c.Env, far.Env()...)
		c.Drain = 1
	}, far.Path())
	far.Say("{}\n")
	far.CloseOutput()
	f.await("closed", 1)
	select {
	case <-f.Ended():
		t.Error("Ended although the process lives")
	default:
	}
	far.Complain(strings.Repeat("last words\n", 20_000)) // blocks if nobody drains it
	far.Exit(7)
	wait(t, "the end", f.Ended())
	if n := len(f.all("stderr")); n != 20_000 {
		t.Errorf("%d last words came, want 20000", n)
	}
	want := []string{"message {}", "closed end of the agent's output", "exited exited with code 7"}
	if got := f.all("message", "closed", "exited"); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if got := f.StderrTail(1); !slices.Equal(got, []string{"last words"}) {
		t.Errorf("the tail is %q", got)
	}
}

func TestAFloodOfStandardErrorDoesNotDelayAnswers(t *testing.T) {
	f := startFake(t, func(_ *transport.Config, on *transport.Handlers) { on.Stderr = nil }, "--stderr-flood", "1h")
	for i := range 20 {
		if got := f.ask(`{"op":"echo"}`); !strings.Contains(got, fmt.Sprintf(`"id":"r%d"`, i)) {
			t.Fatalf("the answer to request %d is %q", i, got)
		}
	}
	eventually(t, "much was said", func() bool { return len(f.StderrTail(3)) == 3 })
	f.kill()
	for _, l := range f.StderrTail(3)[1:] {
		if !strings.HasPrefix(l, "fakeagent flood") {
			t.Errorf("the tail has %q", l)
		}
	}
}

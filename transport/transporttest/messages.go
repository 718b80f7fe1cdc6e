package transporttest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/castctl/castctl/transport"
)

// same compares what was told of some kinds.
func (r *rig) same(want []string, kinds ...string) {
	r.t.Helper()
	got := r.all(kinds...)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			r.t.Fatalf("%v: missing %s", kinds, brief(want[i]))
		case i >= len(want):
			r.t.Fatalf("%v: one too many: %s", kinds, brief(got[i]))
		case got[i] != want[i]:
			r.t.Fatalf("%v: number %d is %s, want %s", kinds, i, brief(got[i]), brief(want[i]))
		}
	}
}

func brief(s string) string {
	if len(s) > 200 {
		return fmt.Sprintf("%.100q…%q (%d bytes)", s, s[len(s)-20:], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// alone wraps a handler so that it counts its calls that overlap.
func alone(do func([]byte), together *atomic.Int32) func([]byte) {
	var inside atomic.Int32
	return func(b []byte) {
		if inside.Add(1) > 1 {
			together.Add(1)
		}
		runtime.Gosched()
		do(b)
		inside.Add(-1)
	}
}

func inOrder(t *testing.T, make Factory) {
	const n = 2000
	var together atomic.Int32
	r := &rig{t: t, more: newSignal()}
	on := r.handlers()
	on.Message = alone(on.Message, &together)
	r.Transport, r.Far = make(t, on, maxLine)
	t.Cleanup(r.end)
	r.start()

	var stream strings.Builder
	var want []string
	for i := range n {
		line := fmt.Sprintf(`{"n":%d,"pad":%q}`, i, strings.Repeat("x", i%97))
		stream.WriteString(line + "\n")
		want = append(want, "message "+line)
	}
	rest := stream.String()
	random := rand.New(rand.NewPCG(1, 2))
	for rest != "" {
		cut := min(len(rest), 1+random.IntN(9000))
		r.Say(rest[:cut])
		rest = rest[cut:]
	}
	r.Exit(0)
	r.await("closed", 1)
	r.same(want, "message")
	if together.Load() > 0 {
		t.Errorf("Message was called beside itself %d times", together.Load())
	}
}

func framing(t *testing.T, make Factory) {
	for _, c := range []struct {
		name, stream             string
		messages, noise, notices []string
	}{
		{name: "LF", stream: "{\"a\":1}\n{\"a\":2}\n", messages: []string{`{"a":1}`, `{"a":2}`}},
		{name: "one CR before it is stripped", stream: "{\"a\":1}\r\n", messages: []string{`{"a":1}`}},
		{name: "a second CR is white space", stream: "{\"a\":1}\r\r\n", messages: []string{"{\"a\":1}\r"}},
		{name: "a CR alone ends nothing", stream: "{\"a\":\r1}\n", messages: []string{"{\"a\":\r1}"}},
		{name: "U+2028 and U+2029 are data", stream: "{\"a\":\"\u2028x\u2029\"}\n", messages: []string{"{\"a\":\"\u2028x\u2029\"}"}},
		{name: "U+0085 and U+FEFF are data", stream: "{\"a\":\"\u0085x\ufeff\"}\n", messages: []string{"{\"a\":\"\u0085x\ufeff\"}"}},
		{name: "an escaped NUL is data", stream: "{\"a\":\"\\u0000\"}\n", messages: []string{`{"a":"\u0000"}`}},
		{name: "empty lines are skipped", stream: "\n\r\n{\"a\":1}\n\n\r\n{\"a\":2}\n\n", messages: []string{`{"a":1}`, `{"a":2}`}},
		{name: "a last line without its end is delivered", stream: "{\"a\":1}\n{\"a\":2}", messages: []string{`{"a":1}`, `{"a":2}`}},
		{name: "its CR is stripped too", stream: "{\"a\":1}\r", messages: []string{`{"a":1}`}},
		{name: "a torn last line is told", stream: "{\"a\":1}\n{\"a\":", messages: []string{`{"a":1}`}, notices: []string{"torn 5"}},
		{name: "nothing at all", stream: ""},
		{name: "white space around an object", stream: "  {\"a\":1}\t\n", messages: []string{"  {\"a\":1}\t"}},
		{name: "members twice are left to the reader", stream: "{\"a\":1,\"a\":2}\n", messages: []string{`{"a":1,"a":2}`}},
		{
			name:     "what is no object is noise",
			stream:   "banner\nnull\n[1]\n\"x\"\n{\"a\":1} trailing\n{\"a\":1}{\"b\":2}\n{\"a\":1}\n",
			messages: []string{`{"a":1}`},
			noise:    []string{"banner", "null", "[1]", `"x"`, `{"a":1} trailing`, `{"a":1}{"b":2}`},
			notices:  []string{"not_json 6", "not_json 4", "not_json 3", "not_json 3", "not_json 16", "not_json 14"},
		},
		{
			name: "broken UTF-8 is noise", stream: "{\"a\":\"\xff\"}\n{\"a\":1}\n", messages: []string{`{"a":1}`},
			noise: []string{"{\"a\":\"\xff\"}"}, notices: []string{"not_json 9"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, make, maxLine)
			r.Say(c.stream)
			r.Exit(0)
			r.await("closed", 1)
			r.same(prefixed("message", c.messages), "message")
			r.same(prefixed("stderr", c.noise), "stderr")
			r.same(prefixed("notice", c.notices), "notice")
		})
	}
}

func prefixed(kind string, texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = kind + " " + s
	}
	return out
}

func splits(t *testing.T, make Factory) {
	record := "{\"t\":\"é 你 😀\u2028\"}"
	line := record + "\r\n"
	r := start(t, make, maxLine)
	n := 0
	for cut := range len(line) + 1 {
		r.Say(line[:cut])
		r.Say(line[cut:])
		n++
	}
	for i := range len(line) {
		r.Say(line[i : i+1])
	}
	r.Exit(0)
	r.await("closed", 1)
	r.same(prefixed("message", slices.Repeat([]string{record}, n+1)), "message")
	r.same([]string{}, "notice", "stderr")
}

func oversize(t *testing.T, make Factory) {
	const limit = 40
	object := func(n int) string { return `{"a":"` + strings.Repeat("x", n-8) + `"}` }
	for _, c := range []struct {
		name, stream      string
		messages, notices []string
	}{
		{name: "as long as the cap", stream: object(limit) + "\n", messages: []string{object(limit)}},
		{name: "as long as the cap, with a CR", stream: object(limit) + "\r\n", messages: []string{object(limit)}},
		{name: "one more", stream: object(limit+1) + "\n", notices: []string{"oversize 41"}},
		{name: "one more, with a CR", stream: object(limit+1) + "\r\n", notices: []string{"oversize 41"}},
		{name: "much more, with a CR", stream: object(5*limit) + "\r\n", notices: []string{"oversize 200"}},
		{
			name: "and the next line", stream: object(5*limit) + "\n" + object(20) + "\n" + object(limit+1) + "\n\n" + object(21) + "\n",
			messages: []string{object(20), object(21)}, notices: []string{"oversize 200", "oversize 41"},
		},
		{name: "without its end", stream: object(5 * limit), notices: []string{"oversize 200"}},
		{name: "one more, without its end", stream: object(limit + 1), notices: []string{"oversize 41"}},
		{name: "as long as the cap, without its end", stream: object(limit), messages: []string{object(limit)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, step := range []int{len(c.stream), 23, 1} {
				r := start(t, make, limit)
				for rest := c.stream; rest != ""; {
					n := min(step, len(rest))
					r.Say(rest[:n])
					rest = rest[n:]
				}
				r.Exit(0)
				r.await("closed", 1)
				r.same(prefixed("message", c.messages), "message")
				r.same(prefixed("notice", c.notices), "notice")
				r.same([]string{}, "stderr")
			}
		})
	}
}

func complaints(t *testing.T, make Factory) {
	r := start(t, make, maxLine)
	r.Complain("one\ntwo\r\n\nthr")
	r.Complain("ee\n")
	long := strings.Repeat("0123456789", 30_000)
	r.Complain(long + "\nlast without its end")
	r.Say("{\"a\":1}\n")
	r.Exit(0)
	r.await("closed", 1)
	got := r.all("stderr")
	if len(got) < 5 {
		t.Fatalf("stderr came in %d lines: %.300q", len(got), got)
	}
	r.told = got[:3]
	r.same([]string{"stderr one", "stderr two", "stderr three"}, "stderr")
	var pieces strings.Builder
	for _, s := range got[3 : len(got)-1] {
		pieces.WriteString(strings.TrimPrefix(s, "stderr "))
	}
	if pieces.String() != long {
		t.Errorf("a line of %d bytes came as %d, in %d pieces", len(long), pieces.Len(), len(got)-4)
	}
	if last := got[len(got)-1]; last != "stderr last without its end" {
		t.Errorf("the last line is %q", last)
	}
}

func complaintsAndNoise(t *testing.T, make Factory) {
	const n = 3000
	var together atomic.Int32
	r := &rig{t: t, more: newSignal()}
	on := r.handlers()
	on.Stderr = alone(on.Stderr, &together)
	r.Transport, r.Far = make(t, on, maxLine)
	t.Cleanup(r.end)
	r.start()
	within(t, "the agent", func() {
		var both sync.WaitGroup
		both.Go(func() { r.Say(strings.Repeat("noise\n", n)) })
		both.Go(func() { r.Complain(strings.Repeat("complaint\n", n)) })
		both.Wait()
	})
	r.Exit(0)
	r.await("closed", 1)
	if got := len(r.all("stderr")); got != 2*n {
		t.Errorf("%d lines came, want %d", got, 2*n)
	}
	if together.Load() > 0 {
		t.Errorf("Stderr was called beside itself %d times", together.Load())
	}
}

func nilHandlers(t *testing.T, make Factory) {
	tr, far := make(t, transport.Handlers{}, 10)
	if err := tr.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	far.Say("{\"a\":1}\nnoise\n{\"a\":\"much too long\"}\n{\"torn\"")
	far.Complain("x\n")
	far.Exit(1)
	within(t, "Close", func() {
		if err := tr.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

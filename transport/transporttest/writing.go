package transporttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/castctl/castctl/transport"
)

func writeLines(t *testing.T, make Factory) {
	r := start(t, make, maxLine)
	for _, c := range []struct{ name, object, line string }{
		{"plain", `{"a":1}`, `{"a":1}`},
		{"empty", `{}`, `{}`},
		{"line ends between the tokens", "{\n  \"a\": 1,\r\n  \"b\": [\n1]\n}\n", `{  "a": 1,  "b": [1]}`},
		{"line ends in a string stay escaped", `{"a":"x\r\ny"}`, `{"a":"x\r\ny"}`},
		{"separators are data", "{\"a\":\"\u2028\u2029\u0085\ufeff\"}", "{\"a\":\"\u2028\u2029\u0085\ufeff\"}"},
		{"beyond the basic plane", `{"a":"é 你 😀"}`, `{"a":"é 你 😀"}`},
		{"deep", strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500), strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500)},
	} {
		if err := r.Write([]byte(c.object)); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if line := r.hear(); line != c.line {
			t.Errorf("%s: the agent heard %s, want %s", c.name, brief(line), brief(c.line))
		}
	}
}

func writeRefuses(t *testing.T, make Factory) {
	r := start(t, make, maxLine)
	for _, c := range []struct{ name, line string }{
		{"null", `null`},
		{"an array", `[1]`},
		{"a string", `"{}"`},
		{"a number", `1`},
		{"garbage", `garbage`},
		{"nothing", ``},
		{"blank", " \t\r\n"},
		{"two values", `{"a":1}{"b":2}`},
		{"two lines", "{\"a\":1}\n{\"b\":2}"},
		{"unfinished", `{"a":1`},
		{"a raw line end in a string", "{\"a\":\"x\ny\"}"},
		{"broken UTF-8", "{\"a\":\"\xff\"}"},
		{"a byte order mark", "\ufeff{}"},
		{"a comment", `{} // no`},
	} {
		err := r.Write([]byte(c.line))
		we, ok := errors.AsType[*transport.WriteError](err)
		if !ok || we.Sent || !errors.Is(err, transport.ErrNotObject) {
			t.Errorf("%s: %v, want ErrNotObject and nothing sent", c.name, err)
		}
	}
	if err := r.Write([]byte(`{"good":1}`)); err != nil {
		t.Fatal(err)
	}
	if line := r.hear(); line != `{"good":1}` {
		t.Errorf("the agent heard %q of what was refused", line)
	}
}

func writeTogether(t *testing.T, make Factory) {
	const writers, each = 6, 20
	type object struct {
		Writer, N int
		Pad       string
	}
	r := start(t, make, maxLine)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range each {
				pad := strings.Repeat(fmt.Sprint(w), (n*n*w*59)%90_000) // past a pipe's buffer too
				b, err := json.Marshal(object{w, n, pad})
				if err != nil {
					t.Error(err)
				}
				if err := r.Write(b); err != nil {
					t.Errorf("Write: %v", err)
				}
			}
		})
	}
	next := [writers]int{}
	for range writers * each {
		line := r.hear()
		var o object
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("the agent heard %s: %v", brief(line), err)
		}
		if o.Pad != strings.Repeat(fmt.Sprint(o.Writer), (o.N*o.N*o.Writer*59)%90_000) {
			t.Fatalf("the agent heard something else: %s", brief(line))
		}
		if o.N != next[o.Writer] {
			t.Fatalf("writer %d: number %d came, want %d", o.Writer, o.N, next[o.Writer])
		}
		next[o.Writer]++
	}
	all.Wait()
}

func writeAfterEnd(t *testing.T, make Factory) {
	nothing := func(t *testing.T, r *rig) {
		t.Helper()
		err := r.Write([]byte(`{"late":1}`))
		we, ok := errors.AsType[*transport.WriteError](err)
		if !ok || we.Sent || !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Write: %v, want ErrClosed and nothing sent", err)
		}
	}
	t.Run("before Start", func(t *testing.T) { nothing(t, newRig(t, make, maxLine)) })
	t.Run("after the death", func(t *testing.T) {
		r := start(t, make, maxLine)
		r.Exit(0)
		r.await("closed", 1)
		nothing(t, r)
	})
	t.Run("after Close", func(t *testing.T) {
		r := start(t, make, maxLine)
		r.kill()
		nothing(t, r)
	})
}

func closeFreesWriters(t *testing.T, make Factory) {
	r := start(t, make, maxLine)
	b := []byte(`{"pad":"` + strings.Repeat("x", 600_000) + `"}`)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			err := r.Write(b)
			if _, ok := errors.AsType[*transport.WriteError](err); err != nil && !ok {
				t.Errorf("Write: %v, which is no WriteError", err)
			}
		})
	}
	within(t, "Close", func() { r.kill() })
	within(t, "Write", all.Wait)
}

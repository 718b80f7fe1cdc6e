package forecast_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

// prefix is how the answer with an id begins.
func prefix(id string, kept bool) string {
	if !kept {
		return `{"version":1,"id":null,"`
	}
	return strings.TrimSuffix(string(wire.Succeed(id, 0).Encode()), `result":0}`+"\n")
}

// A million lines, of which few are what they should be: the agent lives, and
// every line that is not blank has exactly one answer, in its place, with the
// id that the line gave or null.
func TestMillionLines(t *testing.T) {
	total := 1_000_000
	if testing.Short() || raceEnabled {
		total = 30_000
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // memory for time
	stream := &fuzzedStream{chunks: make(chan chunk, 8), expected: make(chan []string, 64)}
	go stream.produce(rand.New(rand.NewPCG(2026, 7)), goldenLines(t), total)
	seen := &answers{t: t, expected: stream.expected}
	a := &forecast.Agent{Ledger: memory(t)}
	clean, err := a.Serve(t.Context(), stream, seen)
	if clean || err != nil {
		t.Errorf("clean %v, %v", clean, err)
	}
	if len(seen.next) > 0 || len(stream.expected) > 0 {
		t.Errorf("%d lines have no answer, and %d more chunks", len(seen.next), len(stream.expected))
	}
	t.Logf("%d answers: %d results, %d errors with an id, %d without", seen.total, seen.results, seen.errors, seen.nulls)
	if seen.results < total/10 || seen.errors < total/10 || seen.nulls < total/10 {
		t.Error("the lines are too good or too bad to prove much")
	}
}

// fuzzedStream is a reader of mutated lines, which are made and judged by the
// oracle in another goroutine.
type fuzzedStream struct {
	chunks   chan chunk
	rest     []byte
	expected chan []string // how the answers to a chunk begin
}

type chunk struct {
	data     []byte
	expected []string
}

func (s *fuzzedStream) produce(r *rand.Rand, lines [][]byte, total int) {
	defer close(s.chunks)
	var c chunk
	for range total {
		line := mutate(r, lines)
		c.data = append(append(c.data, line...), '\n')
		if len(bytes.Trim(line, " \t\r")) > 0 {
			c.expected = append(c.expected, prefix(oracle(line)))
		}
		if len(c.data) > 1<<15 {
			s.chunks <- c
			c = chunk{}
		}
	}
	c.data = bytes.TrimSuffix(c.data, []byte("\n")) // the last line has none
	s.chunks <- c
}

func (s *fuzzedStream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		c, more := <-s.chunks
		if !more {
			return 0, io.EOF
		}
		s.rest = c.data
		s.expected <- c.expected
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// answers is a writer that holds every answer against what is expected next.
type answers struct {
	t                             *testing.T
	expected                      chan []string
	next                          []string
	total, results, errors, nulls int
}

func (a *answers) Write(p []byte) (int, error) {
	for len(a.next) == 0 {
		a.next = <-a.expected
	}
	want := a.next[0]
	a.next = a.next[1:]
	a.total++
	rest, ok := strings.CutPrefix(string(p), want)
	switch {
	case !ok || !strings.HasSuffix(rest, "}\n") || strings.Count(rest, "\n") != 1:
		a.t.Errorf("answer %d is %q, and should begin %q", a.total, p, want)
	case strings.HasPrefix(rest, `result":{`):
		a.results++
	case strings.HasPrefix(rest, `error":{`) && strings.HasSuffix(want, `null,"`):
		a.nulls++
	case strings.HasPrefix(rest, `error":{`):
		a.errors++
	default:
		a.t.Errorf("answer %d is neither a result nor an error: %q", a.total, p)
	}
	if a.t.Failed() {
		return 0, errors.New("enough")
	}
	return len(p), nil
}

var spice = []string{
	"null", "true", "-1", "1e400", "0.30000000000000004", `"\ud800"`, `"\ud83d\ude00"`, "\u2028", "\u0085", "\ufeff", "\xff", "\xc3", "\x00", "\r", "\t",
	"{}", "[]", "[[[[", `{"a":1,"a":2}`, `\u0069d`, `"id":"z",`, `"version":2,`, `"op":"leap"`, `,`, `:`, `"`, `\`, "{", "}", "  ",
}

// mutate makes a line out of good ones. Few are left as they are; most of the
// others are near misses.
func mutate(r *rand.Rand, lines [][]byte) []byte {
	line := bytes.Clone(lines[r.IntN(len(lines))])
	if r.IntN(50) > 0 && (bytes.Contains(line, []byte(`"board"`)) || bytes.Contains(line, []byte(`"list-1"`))) {
		line = bytes.Clone(lines[0]) // reading hundreds of events is slow, and no news
	}
	if r.IntN(3) == 0 { // a request of its own: another id, event and forecaster
		n := r.IntN(400)
		line = bytes.Replace(line, []byte(`"id":"`), fmt.Appendf(nil, `"id":"%d-`, n), 1)
		line = bytes.Replace(line, []byte(`"event_id":"`), fmt.Appendf(nil, `"event_id":"%d-`, n%40), 1)
		line = bytes.Replace(line, []byte(`ann"`), fmt.Appendf(nil, `%d"`, n%7), 1)
	}
	for range r.IntN(4) {
		at := r.IntN(len(line) + 1)
		to := at + r.IntN(min(12, len(line)-at)+1)
		switch r.IntN(6) {
		case 0: // a bit
			if at < len(line) {
				line[at] ^= 1 << r.IntN(8)
			}
		case 1: // a stretch is missing
			line = append(line[:at:at], line[to:]...)
		case 2: // a stretch is doubled
			line = append(line[:to:to], line[at:]...)
		case 3: // something stands in between
			s := spice[r.IntN(len(spice))]
			line = append(line[:at:at], append([]byte(s), line[at:]...)...)
		case 4: // something stands instead
			s := spice[r.IntN(len(spice))]
			line = append(line[:at:at], append([]byte(s), line[to:]...)...)
		case 5: // the rest is another line's
			other := lines[r.IntN(len(lines))]
			line = append(line[:at:at], other[r.IntN(len(other)):]...)
		}
		if len(line) == 0 {
			break
		}
	}
	return bytes.ReplaceAll(line, []byte("\n"), []byte(" "))
}

// The oracle itself, on lines whose answer is plain.
func TestOracle(t *testing.T) {
	const good = `{"version":1,"id":"x","command":{"op":"sweep"}}`
	for line, want := range map[string]bool{
		good: true, " " + good + "\r": true, good + "}": false, good + "\u00a0": false, "null": false, `{"version":2,"id":"x","command":{"op":""}}`: true,
		`{"version":1,"id":"x","command":{"op":"a","b":{"c":[{"d":1,"\u0064":2}]}}}`: false, `{"version":1,"id":"x","command":{"op":"a","op":"b"}}`: false,
		`{"version":1,"id":" ","command":{"op":"a"}}`: false, `{"version":1,"id":"x","command":{"op":1}}`: false, `{"version":true,"id":"x","command":{"op":"a"}}`: false,
		`{"version":1,"id":"x","command":{"op":"\ud800"}}`: false, `{"version":1,"id":"x","command":{"op":"\ud83d\ude00\\ud800"}}`: true,
		`{"version":1,"id":"x","command":{"op":"a"},"y":1}`: false, `{"version":1,"id":"x","command":{"op":"a","x":[1,[2],{"k":3}]}}`: true,
	} {
		if _, got := oracle([]byte(line)); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}

// FuzzServe: any stream gets one well-formed answer for each line that is not
// blank, with the id of its line.
func FuzzServe(f *testing.F) {
	lines := goldenLines(f)
	f.Add(bytes.Join(lines, []byte("\n")))
	for _, line := range lines {
		f.Add(line)
	}
	f.Add([]byte("\n\r\n \t\n" + string(lines[0]) + "\r\n\u2028\n" + string(lines[1])))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) >= wire.MaxLine {
			return
		}
		var want []string
		for line := range bytes.SplitSeq(in, []byte("\n")) {
			if len(bytes.Trim(line, " \t\r")) > 0 {
				want = append(want, prefix(oracle(line)))
			}
		}
		var out bytes.Buffer
		a := &forecast.Agent{Ledger: memory(t)}
		clean, err := a.Serve(t.Context(), bytes.NewReader(in), &out)
		if err != nil {
			t.Fatal(err)
		}
		n, failed := 0, false
		for line := range bytes.Lines(out.Bytes()) {
			if n == len(want) || !bytes.HasPrefix(line, []byte(want[n])) || !json.Valid(line) {
				t.Fatalf("answer %d is %q, want %q", n+1, line, want[min(n, len(want)-1)])
			}
			failed = failed || bytes.HasPrefix(line[len(want[n]):], []byte("error"))
			n++
		}
		if n != len(want) || clean == failed {
			t.Fatalf("%d answers to %d lines, clean %v", n, len(want), clean)
		}
	})
}

// What ends a stream, and what is said about it.
func TestServeEnds(t *testing.T) {
	good := string(goldenLines(t)[0]) + "\n"
	broken := errors.New("broken")
	tooLong := strings.Repeat(" ", wire.MaxLine) + "\n"
	for _, c := range []struct {
		name    string
		in      io.Reader
		out     io.Writer
		clean   bool
		stream  string // of the error
		answers int
	}{
		{"no input", strings.NewReader(""), nil, true, "", 0},
		{"the end of input", strings.NewReader(good + good), nil, true, "", 2},
		{"a failed request", strings.NewReader(good + "x\n" + good), nil, false, "", 3},
		{"a line that is too long", strings.NewReader(good + tooLong + good), nil, false, "", 2},
		{"input that fails", io.MultiReader(strings.NewReader(good), iotest.ErrReader(broken)), nil, true, "stdin", 1},
		{"output that fails", strings.NewReader(good + good), brokenWriter{broken}, true, "stdout", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if c.out == nil {
				c.out = &out
			}
			a := &forecast.Agent{Ledger: memory(t)}
			clean, err := a.Serve(t.Context(), c.in, c.out)
			if clean != c.clean || bytes.Count(out.Bytes(), []byte("\n")) != c.answers {
				t.Errorf("clean %v with the answers\n%s", clean, out.Bytes())
			}
			if se, is := errors.AsType[*forecast.StreamError](err); is != (c.stream != "") || is && (se.Stream != c.stream || !errors.Is(err, broken)) {
				t.Errorf("%v, want one of %q", err, c.stream)
			}
		})
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// Asked to end, the agent ends between two requests, even while it waits for
// input that never comes.
func TestServeEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, feed := io.Pipe()
	defer feed.Close()
	a := &forecast.Agent{Ledger: memory(t)}
	clean, err := a.Serve(ctx, io.MultiReader(bytes.NewReader(append(goldenLines(t)[0], '\n')), in), writerFunc(func(p []byte) (int, error) {
		cancel() // while it answers
		return len(p), nil
	}))
	if !clean || err != nil {
		t.Errorf("clean %v, %v", clean, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

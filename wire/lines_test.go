package wire_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/castctl/castctl/wire"
)

// read returns all lines and how the stream ended.
func read(r io.Reader, most int) (lines []string, end error) {
	l := wire.NewLines(r, most)
	for {
		line, err := l.Next()
		if err != nil {
			return lines, err
		}
		lines = append(lines, string(line))
	}
}

// PITFALLS T01, T02, T03: what ends a line, what does not, and how long one is.
func TestLines(t *testing.T) {
	long := func(n int) string { return strings.Repeat("é", n/2) + strings.Repeat("x", n%2) }
	const most = 10_000
	for _, c := range []struct {
		name string
		in   string
		want []string
		end  error
	}{
		{"nothing", "", nil, io.EOF},
		{"one line", "a\n", []string{"a"}, io.EOF},
		{"a last line without its newline", "a\nb", []string{"a", "b"}, io.EOF},
		{"a carriage return stays, being white space of JSON", "a\r\nb\r\n", []string{"a\r", "b\r"}, io.EOF},
		{"a carriage return alone ends nothing", "a\rb\n", []string{"a\rb"}, io.EOF},
		{"blank lines", "\n\r\n \t \r\n\na\n\n\nb\n\n", []string{"a", "b"}, io.EOF},
		{"blank to the end", "a\n  \t", []string{"a"}, io.EOF},
		{"only blank", " \n\t\n\r", nil, io.EOF},
		{"U+2028, U+2029, U+0085 are data", "\u2028a\u2029b\u0085c\u2028\n\u0085\n", []string{"\u2028a\u2029b\u0085c\u2028", "\u0085"}, io.EOF},
		{"so are U+FEFF, NUL, form feed and vertical tab", "\ufeff\n\x00\n\f\n\v\n", []string{"\ufeff", "\x00", "\f", "\v"}, io.EOF},
		{"bytes that are not UTF-8", "\xff\n\xc3\n", []string{"\xff", "\xc3"}, io.EOF},
		{"the reader's buffer", long(4095) + "\n" + long(4096) + "\n" + long(4097) + "\na\n", []string{long(4095), long(4096), long(4097), "a"}, io.EOF},
		{"at the limit with its newline", long(most-1) + "\na\n", []string{long(most - 1), "a"}, io.EOF},
		{"one over the limit", "a\n" + long(most) + "\nb\n", []string{"a"}, wire.ErrLineTooLong},
		{"far over the limit", "a\n" + long(5*most) + "\nb\n", []string{"a"}, wire.ErrLineTooLong},
		{"at the limit without its newline", long(most - 1), []string{long(most - 1)}, io.EOF},
		{"one over the limit without its newline", long(most), nil, wire.ErrLineTooLong},
		{"blank and over the limit", strings.Repeat(" ", most) + "\nb\n", nil, wire.ErrLineTooLong},
		{"a long line after long lines", long(most-1) + "\n" + long(most-1) + "\n" + long(most) + "\n", []string{long(most - 1), long(most - 1)}, wire.ErrLineTooLong},
	} {
		for how, r := range map[string]io.Reader{
			"whole": strings.NewReader(c.in), "byte by byte": iotest.OneByteReader(strings.NewReader(c.in)),
			"with the end": iotest.DataErrReader(strings.NewReader(c.in)),
		} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				got, end := read(r, most)
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if !errors.Is(end, c.end) {
					t.Errorf("ended with %v, want %v", end, c.end)
				}
			})
		}
	}
}

// The limit holds whatever it is, and below the reader's own buffer too.
func TestLineLimit(t *testing.T) {
	for _, most := range []int{2, 100, 4095, 4096, 4097, 8192, wire.MaxLine} {
		fits, over := strings.Repeat("x", most-1), strings.Repeat("x", most)
		if got, end := read(strings.NewReader(fits+"\n"+fits+"\n"), most); len(got) != 2 || !errors.Is(end, io.EOF) {
			t.Errorf("limit %d: %d lines of %d bytes with their newline, %v", most, len(got), most, end)
		}
		if got, end := read(strings.NewReader(over+"\n"), most); len(got) != 0 || !errors.Is(end, wire.ErrLineTooLong) {
			t.Errorf("limit %d: a line of %d bytes with its newline was read", most, most+1)
		}
	}
}

// The rest of a line that was too long is never taken for a line.
func TestNothingAfterTooLong(t *testing.T) {
	l := wire.NewLines(strings.NewReader(strings.Repeat("x", 99)+"\n"+`{"op":"rm"}`+"\n"), 50)
	for range 5 {
		if line, err := l.Next(); !errors.Is(err, wire.ErrLineTooLong) {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

// A failing reader is told as it is, and half a line before it is not a line.
func TestLinesReadError(t *testing.T) {
	broken := errors.New("broken")
	for _, before := range []string{"", "half", strings.Repeat("x", 5000)} {
		got, end := read(io.MultiReader(strings.NewReader("a\n"+before), iotest.ErrReader(broken)), 10_000)
		if diff := cmp.Diff([]string{"a"}, got); diff != "" || !errors.Is(end, broken) {
			t.Errorf("%d bytes before the error: %v, %s", len(before), end, diff)
		}
	}
}

// However a stream arrives, its lines are the same, and are what a plain split
// says.
func TestLinesAnyStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{"a", "é", "\n", "\r\n", " ", "\t", "\u2028", strings.Repeat("x", 4094), strings.Repeat("y", 4096)})).Draw(t, "parts")
		in := strings.Join(parts, "")
		var want []string
		for line := range strings.SplitSeq(in, "\n") {
			if strings.Trim(line, " \t\r") != "" {
				want = append(want, line)
			}
		}
		got, end := read(iotest.HalfReader(strings.NewReader(in)), 1<<20)
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(end, io.EOF) {
			t.Fatalf("%v (-want +got):\n%s", end, diff)
		}
	})
}

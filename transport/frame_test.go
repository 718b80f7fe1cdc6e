package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// reference says what a whole stream means, in the plainest way: it is what
// every splitting of the stream must come to.
func reference(stream []byte, limit int) []string {
	var out []string
	for len(stream) > 0 {
		line, rest, ended := bytes.Cut(stream, []byte("\n"))
		stream = rest
		line = bytes.TrimSuffix(line, []byte("\r"))
		switch {
		case len(line) == 0:
		case len(line) > limit:
			out = append(out, fmt.Sprintf("oversize %d", len(line)))
		case IsObject(line):
			out = append(out, "message "+string(line))
		case !ended:
			out = append(out, fmt.Sprintf("torn %d", len(line)))
		default:
			out = append(out, fmt.Sprintf("not_json %d", len(line)), "stderr "+string(line))
		}
	}
	return out
}

// recorder returns handlers that record what they are told.
func recorder(out *[]string) Handlers {
	return Handlers{
		Message: func(b []byte) { *out = append(*out, "message "+string(b)) },
		Stderr:  func(b []byte) { *out = append(*out, "stderr "+string(b)) },
		Notice:  func(n Notice) { *out = append(*out, fmt.Sprintf("%s %d", n.Kind, n.Bytes)) },
	}
}

// frameInPieces gives the stream to a Framer in pieces; splits are their sizes,
// used over and over.
func frameInPieces(stream []byte, limit int, splits []byte) []string {
	var out []string
	f := NewFramer(limit, recorder(&out))
	for i := 0; len(stream) > 0; i++ {
		n := len(stream)
		if len(splits) > 0 {
			n = min(n, 1+int(splits[i%len(splits)]))
		}
		piece := bytes.Clone(stream[:n])
		f.Write(piece)
		clear(piece) // it is the writer's again
		stream = stream[n:]
	}
	f.Close()
	return out
}

func FuzzFramer(f *testing.F) {
	for _, s := range []string{
		"", "\n", "\r\n", "\r", "{}", "{}\n{}", "{\"a\":\"\u2028\u0085\ufeff é 你 😀\"}\r\n{\"b\":1}\n", "noise\n{}\nnull\n[1]\n",
		"{\"a\":\"0123456789012345678901234567890123456789\"}\n{}\r\n", "0123456789012345678901234567890123456789\r", "0123456789012345678901234567890123456789\r\n",
		"{\"torn", "\x00\xff\xfe\n{\"a\":\"\xff\"}\n", "\r\r\n\n\r", "01234567890123456\r\n", "01234567890123456\r\r\n", "{\"a\":1234567890}\n",
	} {
		f.Add([]byte(s), []byte{0}, uint8(15))
		f.Add([]byte(s), []byte{}, uint8(63))
		f.Add([]byte(s), []byte{1, 4, 0}, uint8(31))
	}
	f.Fuzz(func(t *testing.T, stream, splits []byte, limit uint8) {
		want := reference(stream, int(limit)+1)
		if got := frameInPieces(stream, int(limit)+1, splits); !slices.Equal(got, want) {
			t.Errorf("%q with a cap of %d in pieces of %v:\n got %q\nwant %q", stream, int(limit)+1, splits, got, want)
		}
	})
}

// randomStream has lines of all lengths around the sizes that matter to the
// pump, objects and others.
func randomStream(r *rand.Rand, size int) []byte {
	var b []byte
	for len(b) < size {
		n := r.IntN(200)
		switch r.IntN(40) {
		case 0:
			n = smallBuffer - 8 + r.IntN(16)
		case 1:
			n = largeBuffer - 8 + r.IntN(16)
		case 2:
			n = 3 * largeBuffer
		}
		switch r.IntN(4) {
		case 0:
			b = append(b, strings.Repeat("n", n)...)
		default:
			b = fmt.Appendf(b, `{"a":"%s"}`, strings.Repeat("x", n))
		}
		if r.IntN(3) == 0 {
			b = append(b, '\r')
		}
		b = append(b, '\n')
	}
	return b[:len(b)-r.IntN(3)]
}

func TestThePumpAndTheFramerSeeWhatTheReferenceSees(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			stream := randomStream(r, 4<<20)
			limit := []int{64, smallBuffer, largeBuffer, 3*largeBuffer + 20}[r.IntN(4)]
			var got []string
			lines := newSorter(limit, recorder(&got), func(line []byte) { got = append(got, "stderr "+string(line)) })
			p := &pump{deliver: lines.feed}
			feedPipe(t, p, stream, r)
			if err := p.run(); err != nil {
				t.Fatal(err)
			}
			lines.finishStream(p.rest())
			p.close()
			want := reference(stream, limit)
			if !slices.Equal(got, want) {
				t.Fatalf("%d things were told, want %d, or others", len(got), len(want))
			}
		})
	}
}

// feedPipe gives the pump a pipe that gets the stream in pieces of random
// sizes.
func feedPipe(t testing.TB, p *pump, stream []byte, r *rand.Rand) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.pipe = in
	t.Cleanup(func() { in.Close() })
	go func() {
		defer out.Close()
		for len(stream) > 0 {
			n := min(len(stream), 1+r.IntN(1<<(4+r.IntN(15))))
			out.Write(stream[:n])
			stream = stream[n:]
		}
	}()
}

// errorReference is what a stream of standard error means: its text without
// empty lines.
func errorReference(stream []byte) string {
	var out []byte
	for line := range bytes.SplitSeq(stream, []byte("\n")) {
		out = append(out, bytes.TrimSuffix(line, []byte("\r"))...)
	}
	return string(out)
}

func FuzzErrorLines(f *testing.F) {
	f.Add([]byte("one\ntwo\r\n\nthree"), uint16(1))
	f.Add([]byte("€€€€"), uint16(2))
	f.Add(bytes.Repeat([]byte("你"), 40_000), uint16(20_000))
	f.Add(bytes.Repeat([]byte{0x80}, 70_000), uint16(9_999))
	f.Fuzz(func(t *testing.T, stream []byte, split uint16) {
		var got, rest []byte
		step := max(1+int(split), len(stream)/300)
		for b := stream; len(b) > 0; {
			n := min(len(b), step)
			rest = append(rest, b[:n]...)
			b = b[n:]
			keep := errorLines(rest, func(line []byte) {
				if len(line) == 0 || len(line) > maxStderrLine || bytes.IndexByte(line, '\n') >= 0 {
					t.Fatalf("a piece of %d bytes", len(line))
				}
				got = append(got, line...)
			})
			rest = bytes.Clone(rest[len(rest)-keep:])
			if len(rest) > maxStderrLine {
				t.Fatalf("%d bytes are kept", len(rest))
			}
		}
		got = append(got, bytes.TrimSuffix(rest, cr)...)
		// A CR where a line was cut up is a line's end only if an LF follows.
		if want := errorReference(stream); strings.ReplaceAll(string(got), "\r", "") != strings.ReplaceAll(want, "\r", "") {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestTheTailIsTheEndOfWhatWasSaid(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var tl tail
	var all []byte
	if got := tl.last(5); got != nil {
		t.Errorf("the tail of nothing is %q", got)
	}
	for i := range 200 {
		line := binary.AppendUvarint(nil, uint64(i))
		line = append(fmt.Appendf(nil, "%x ", line), strings.Repeat("x", r.IntN(2000))...)
		if i == 150 {
			line = bytes.Repeat([]byte("giant "), 20_000)
		}
		tl.add(line)
		all = append(append(all, line...), '\n')
		kept := all[max(0, len(all)-tailSize):]
		want := strings.Split(strings.TrimSuffix(string(kept), "\n"), "\n")
		if got := tl.last(1 << 20); !slices.Equal(got, want) {
			t.Fatalf("after %d lines %d are kept, want %d, or others", i+1, len(got), len(want))
		}
		if got := tl.last(3); !slices.Equal(got, want[max(0, len(want)-3):]) {
			t.Fatalf("after %d lines the last three are wrong", i+1)
		}
	}
	if len(tl.buf) > tailSize {
		t.Errorf("%d bytes are kept, want %d", len(tl.buf), tailSize)
	}
}

func TestTheTailIsValidUTF8(t *testing.T) {
	var tl tail
	tl.add([]byte("a\xffb"))
	if got := tl.last(1); !slices.Equal(got, []string{"a\uFFFDb"}) {
		t.Errorf("%q", got)
	}
}

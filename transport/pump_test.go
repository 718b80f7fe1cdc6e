package transport

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

// newPipe is a pump on a pipe, with the end to write to.
func newPipe(t testing.TB) (*pump, *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return &pump{pipe: r}, w
}

func write(t testing.TB, f *os.File, b []byte) {
	t.Helper()
	if _, err := f.Write(b); err != nil {
		t.Error(err)
	}
}

func TestAStoppedPumpStillDeliversWhatIsInThePipe(t *testing.T) {
	p, w := newPipe(t) // w stays open, as a grandchild's would
	said := bytes.Repeat([]byte("x"), 60_000)
	first, stopped := make(chan struct{}), make(chan struct{})
	n := 0
	p.deliver = func(b []byte) int {
		if n == 0 {
			close(first)
			<-stopped // the taker is slow
		}
		n += len(b)
		return 0
	}
	done := make(chan error)
	go func() { done <- p.run() }()
	write(t, w, said)
	<-first
	p.stop()
	close(stopped)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n != len(said) {
		t.Errorf("%d bytes were delivered, want %d", n, len(said))
	}
	p.close()
}

func TestAStoppedPumpWakesUp(t *testing.T) {
	p, w := newPipe(t)
	took := make(chan struct{}, 1)
	p.deliver = func([]byte) int { took <- struct{}{}; return 0 }
	done := make(chan error)
	go func() { done <- p.run() }()
	write(t, w, []byte("x"))
	<-took
	p.stop() // while it reads, or before it reads again
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestAStoppedPumpDoesNotFollowAWriterThatGoesOn(t *testing.T) {
	p, w := newPipe(t)
	flooding := make(chan struct{})
	go func() {
		defer close(flooding)
		b := make([]byte, 64<<10)
		for {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}()
	n := 0
	p.deliver = func(b []byte) int {
		if n += len(b); n > 8*largeBuffer {
			w.Close() // or it never ends
			return 0
		}
		for pipeHolds(t, p.pipe) == 0 { // the writer is always faster
			runtime.Gosched()
		}
		return 0
	}
	await(t, "something is in the pipe", func() bool { return pipeHolds(t, p.pipe) > 0 })
	p.stop()
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if n > 3*largeBuffer {
		t.Errorf("%d bytes were delivered after the stop, more than a pipe holds", n)
	}
	p.pipe.Close()
	<-flooding
}

func TestLargeBuffersAreGivenBack(t *testing.T) {
	p, w := newPipe(t)
	keep := 0
	p.deliver = func(b []byte) int { return min(keep, len(b)) }
	sizes := func() []int { return []int{len(p.buf), pipeSize(t, p.pipe)} }
	step := func(n int) { // writes and lets the pump take it
		write(t, w, make([]byte, n))
		read, err := p.pipe.Read(p.buf[p.kept:])
		if err != nil || read != n {
			t.Fatalf("read %d of %d: %v", read, n, err)
		}
		p.take(read)
	}
	p.buf = make([]byte, smallBuffer)
	step(smallBuffer - 1)
	if got, want := sizes(), []int{smallBuffer, defaultPipe}; !slices.Equal(got, want) {
		t.Errorf("a quiet stream has buffer and pipe of %v, want %v", got, want)
	}
	step(smallBuffer)
	if got, want := sizes(), []int{largeBuffer, largeBuffer}; !slices.Equal(got, want) {
		t.Errorf("a fast one has %v, want %v", got, want)
	}
	keep = 1 << 30
	step(largeBuffer)
	step(largeBuffer)
	if got, want := len(p.buf), 4*largeBuffer; got != want {
		t.Errorf("within a giant line the buffer is %d, want %d", got, want)
	}
	p.shrink()
	if got, want := len(p.buf), 4*largeBuffer; got != want {
		t.Errorf("a pause within it makes it %d, want %d", got, want)
	}
	keep = 10
	step(100)
	if got, want := sizes(), []int{largeBuffer, largeBuffer}; !slices.Equal(got, want) {
		t.Errorf("behind it there are %v, want %v", got, want)
	}
	p.shrink()
	if got, want := sizes(), []int{smallBuffer, defaultPipe}; !slices.Equal(got, want) {
		t.Errorf("after a pause there are %v, want %v", got, want)
	}
	if len(p.rest()) != 10 {
		t.Errorf("%d bytes are kept, want 10", len(p.rest()))
	}
	p.close()
}

func TestAPauseIsNoticed(t *testing.T) {
	t.Parallel()
	p, w := newPipe(t)
	p.deliver = func([]byte) int { return 0 }
	done := make(chan error)
	go func() { done <- p.run() }()
	write(t, w, make([]byte, 3*smallBuffer))
	await(t, "the pipe is large", func() bool { return pipeSize(t, p.pipe) == largeBuffer })
	await(t, "it is small again", func() bool { return pipeSize(t, p.pipe) == defaultPipe })
	w.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(p.buf) != smallBuffer {
		t.Errorf("the buffer is %d, want %d", len(p.buf), smallBuffer)
	}
}

func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	lost := time.After(30 * time.Second)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !so() {
		select {
		case <-look.C:
		case <-lost:
			t.Fatalf("%s: does not become so", what)
		}
	}
}

func BenchmarkLines(b *testing.B) {
	line := []byte(`{"type":"message_update","delta":{"type":"text","text":"some words of an answer"}}` + "\n")
	benchmark(b, line, func(p *pump) {
		s := newSorter(DefaultMaxLine, Handlers{Message: func([]byte) {}}, nil)
		p.deliver = s.feed
	})
}

func BenchmarkBytes(b *testing.B) {
	benchmark(b, []byte("a line of a log that somebody may read one day\n"), func(p *pump) {
		p.deliver = func([]byte) int { return 0 }
	})
}

// benchmark pumps b.N lines through a pipe.
func benchmark(b *testing.B, line []byte, set func(*pump)) {
	p, w := newPipe(b)
	set(p)
	batch := bytes.Repeat(line, 64<<10/len(line))
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	go func() {
		defer w.Close()
		for left := b.N * len(line); left > 0; left -= len(batch) {
			w.Write(batch[:min(left, len(batch))])
		}
	}()
	if err := p.run(); err != nil {
		b.Fatal(err)
	}
	p.close()
}

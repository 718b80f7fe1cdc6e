package transport

import (
	"errors"
	"io"
	"os"
	"time"
)

const (
	smallBuffer = 4 << 10
	largeBuffer = 1 << 20
	// calm is how long a fast stream must be quiet before its large pipe and
	// buffer are given back.
	calm = time.Second
)

// pump reads a pipe to its end. deliver gets what was read, and returns how
// many bytes at the end it wants to see again in front of the next.
//
// A stream that fills the small buffer gets a large one, outside the Go heap so
// that it can be given back at once, and a pipe of the same size: an agent that
// writes a lot is not slowed, and one that does not costs nothing.
type pump struct {
	pipe    *os.File
	deliver func(b []byte) (keep int)

	buf   []byte
	large bool
	kept  int
	until time.Time // the read deadline in force
}

// run returns nil at the end of the stream.
func (p *pump) run() error {
	p.buf = make([]byte, smallBuffer)
	defer p.shrink()
	for {
		n, err := p.pipe.Read(p.buf[p.kept:])
		if n > 0 {
			p.take(n)
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && p.large:
			p.shrink()
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

func (p *pump) take(n int) {
	have := p.kept + n
	full := have == len(p.buf)
	keep := p.deliver(p.buf[:have])
	if keep > 0 && keep < have {
		copy(p.buf, p.buf[have-keep:have])
	}
	p.kept = keep
	if full {
		p.grow()
	}
	if !p.large {
		return
	}
	// Not at every read: a deadline costs as much as a short read.
	if now := time.Now(); p.until.Sub(now) < calm/2 {
		p.until = now.Add(calm)
		p.pipe.SetReadDeadline(p.until)
	}
}

// rest returns the bytes that were kept when the stream ended.
func (p *pump) rest() []byte { return p.buf[:p.kept] }

func (p *pump) grow() {
	switch {
	case !p.large:
		p.large = true
		resizePipe(p.pipe, largeBuffer)
		p.swap(mapBuffer(largeBuffer))
	case p.kept == len(p.buf): // one line fills it all
		p.swap(mapBuffer(2 * len(p.buf)))
	}
}

// shrink goes back to the small pipe and buffer, unless a long line is being
// read.
func (p *pump) shrink() {
	p.until = time.Time{}
	p.pipe.SetReadDeadline(p.until)
	if !p.large || p.kept > smallBuffer/2 {
		return
	}
	p.large = false
	resizePipe(p.pipe, defaultPipe)
	p.swap(make([]byte, smallBuffer))
}

func (p *pump) swap(buf []byte) {
	old := p.buf
	copy(buf, old[:p.kept])
	p.buf = buf
	if len(old) > smallBuffer {
		unmapBuffer(old)
	}
}

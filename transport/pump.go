package transport

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	smallBuffer = 4 << 10
	largeBuffer = 1 << 20
	// calm is how long a fast stream must be quiet before its large pipe and
	// buffer are given back.
	calm = time.Second
	// A stream whose pieces follow each other within brisk is read every pause,
	// and not piece by piece: one that writes each line by itself would keep both
	// sides busy with waking each other. Pieces of more than a gulp are taken as
	// they come.
	brisk = 200 * time.Microsecond
	pause = time.Millisecond
	gulp  = 64 << 10
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
	last  time.Time // when the last piece was taken, of a fast stream
	over  atomic.Bool
}

// run returns nil at the end of the stream, and after stop. What was kept then
// is in rest until close.
func (p *pump) run() error {
	p.buf = make([]byte, smallBuffer)
	for !p.over.Load() {
		n, err := p.pipe.Read(p.buf[p.kept:])
		if n > 0 {
			p.take(n)
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.shrink()
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
	return p.leftover()
}

// stop ends the reading although somebody may still hold the other end. What is
// in the pipe is still delivered, however long that takes; nothing is waited
// for. It may be called from another goroutine.
func (p *pump) stop() {
	p.over.Store(true)
	// Once a deadline has passed Read takes nothing, so run comes here. It looks
	// at over after every deadline of its own, and cannot undo this one unseen.
	p.pipe.SetReadDeadline(time.Unix(0, 1))
}

// leftover delivers what the pipe holds, but no more than a pipe can hold:
// whoever goes on writing is not waited for.
func (p *pump) leftover() error {
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return err
	}
	for left := largeBuffer; left > 0; {
		n, failed := 0, error(nil)
		if err := raw.Control(func(fd uintptr) {
			for {
				n, failed = unix.Read(int(fd), p.buf[p.kept:])
				if failed != unix.EINTR {
					return
				}
			}
		}); err != nil {
			return err
		}
		if n <= 0 {
			if failed == unix.EAGAIN {
				return nil
			}
			return failed
		}
		p.take(n)
		left -= n
	}
	return nil
}

func (p *pump) take(n int) {
	have := p.kept + n
	full := have == len(p.buf)
	keep := min(max(p.deliver(p.buf[:have]), 0), have)
	if keep > 0 && keep < have {
		copy(p.buf, p.buf[have-keep:have])
	}
	p.kept = keep
	p.fit(full)
	if !p.large {
		return
	}
	now := time.Now()
	if n < gulp && now.Sub(p.last) < brisk && !p.over.Load() {
		time.Sleep(pause)
		now = time.Now()
	}
	p.last = now
	// Not at every read: a deadline costs as much as a short read.
	if p.until.Sub(now) < calm/2 {
		p.until = now.Add(calm)
		p.pipe.SetReadDeadline(p.until)
	}
}

// rest returns the bytes that were kept when the stream ended.
func (p *pump) rest() []byte { return p.buf[:p.kept] }

// fit chooses the buffer for the next read. full says that the last one filled
// it.
func (p *pump) fit(full bool) {
	switch {
	case full && !p.large:
		p.large = true
		resizePipe(p.pipe, largeBuffer)
		p.swap(mapBuffer(largeBuffer))
	case p.kept == len(p.buf): // one line fills it all
		p.swap(mapBuffer(2 * len(p.buf)))
	case len(p.buf) > largeBuffer && p.kept <= largeBuffer/2: // a giant line is over
		p.swap(mapBuffer(largeBuffer))
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
	copy(buf, p.buf[:p.kept])
	p.free()
	p.buf = buf
}

// close gives the buffer back, whatever is in it.
func (p *pump) close() {
	p.free()
	p.buf, p.kept = nil, 0
}

func (p *pump) free() {
	if len(p.buf) > smallBuffer {
		unmapBuffer(p.buf)
	}
}

package transport

import (
	"bytes"
	"sync"
)

// tailSize is how much of an agent's standard error is kept, in bytes.
const tailSize = 64 << 10

// tail keeps the last bytes that were written to it, in a ring once there are
// enough of them.
type tail struct {
	mu  sync.Mutex // guards the fields below
	buf []byte
	at  int // of the oldest byte, which the next one replaces
}

func (t *tail) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write(line)
	t.write([]byte{'\n'})
}

func (t *tail) write(b []byte) {
	if over := len(b) - tailSize; over > 0 {
		b = b[over:]
	}
	n := min(tailSize-len(t.buf), len(b))
	t.buf = append(t.buf, b[:n]...)
	for b = b[n:]; len(b) > 0; b = b[n:] {
		n = copy(t.buf[t.at:], b)
		t.at = (t.at + n) % tailSize
	}
}

// last returns at most n of the last lines, the first of which may be cut.
func (t *tail) last(n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := bytes.TrimSuffix(append(t.buf[t.at:len(t.buf):len(t.buf)], t.buf[:t.at]...), []byte{'\n'})
	if len(b) == 0 {
		return nil
	}
	lines := bytes.Split(b, []byte{'\n'})
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = string(bytes.ToValidUTF8(l, []byte("\uFFFD")))
	}
	return out
}

package transport

import (
	"bytes"
	"sync"
)

// tailSize is how much of an agent's standard error is kept, in bytes.
const tailSize = 64 << 10

// tail keeps the last bytes that were written to it.
type tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

func (t *tail) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(line) > tailSize-1 {
		line = line[len(line)-tailSize+1:]
	}
	if over := len(t.buf) + len(line) + 1 - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	t.buf = append(append(t.buf, line...), '\n')
}

// last returns at most n of the last lines, the first of which may be cut.
func (t *tail) last(n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := bytes.TrimSuffix(t.buf, []byte{'\n'})
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

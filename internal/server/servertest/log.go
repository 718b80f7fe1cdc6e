package servertest

import (
	"bytes"
	"sync"
)

// Log is what a supervisor has logged.
type Log struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write takes a line.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String is everything so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

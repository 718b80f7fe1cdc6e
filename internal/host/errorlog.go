package host

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/wire"
)

// errorLog takes an agent's standard error. All of it goes to stderr.log, which
// is rotated by its one writer at a line's end. Into the journal goes what a
// person could read: beyond a rate it is suppressed there, and what was
// suppressed is counted and told.
type errorLog struct {
	path    string
	journal *journal.Journal
	echo    func(line []byte)

	mu         sync.Mutex // guards the fields below
	file       *os.File
	size       int64
	tokens     float64 // bytes that may go to the journal now
	filled     time.Time
	suppressed struct{ lines, bytes int64 }
}

const (
	maxErrorFile = 8 << 20
	errorBurst   = 1 << 20
	errorRate    = 64 << 10 // bytes a second, in the long run
)

func newErrorLog(path string, j *journal.Journal, echo func([]byte)) *errorLog {
	return &errorLog{path: path, journal: j, echo: echo, tokens: errorBurst, filled: time.Now()}
}

// line takes one line, without its end.
func (l *errorLog) line(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := append(append(make([]byte, 0, len(line)+1), line...), '\n')
	l.store(b)
	if l.echo != nil {
		l.echo(b)
	}
	if !l.afford(len(b)) {
		l.suppressed.lines++
		l.suppressed.bytes += int64(len(b))
		return
	}
	l.tell()
	l.journal.AppendRaw(wire.EventStderr, b) // a full disk loses it; the file has it or has not
}

// afford spends the line's bytes from the budget if there is enough. A budget
// that ran dry is used again only when a tenth of it has come back, so that a
// flood is told in few notices.
func (l *errorLog) afford(n int) bool {
	now := time.Now()
	l.tokens = min(errorBurst, l.tokens+now.Sub(l.filled).Seconds()*errorRate)
	l.filled = now
	if l.tokens < float64(n) || l.suppressed.lines > 0 && l.tokens < errorBurst/10 {
		return false
	}
	l.tokens -= float64(n)
	return true
}

// tell appends a notice of what was suppressed, if anything was.
func (l *errorLog) tell() {
	s := l.suppressed
	if s.lines == 0 {
		return
	}
	l.suppressed.lines, l.suppressed.bytes = 0, 0
	ev := wire.NewEvent(wire.EventNotice, wire.NoticeData{
		Kind:    wire.NoticeSuppressed,
		Message: fmt.Sprintf("%d lines of standard error came too fast and are only in stderr.log", s.lines),
		Count:   &s.lines, Bytes: &s.bytes,
	})
	l.journal.Append(false, &ev)
}

// flush tells what is still untold, at the end of a run.
func (l *errorLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell()
}

func (l *errorLog) store(b []byte) {
	if l.file == nil || l.size+int64(len(b)) > maxErrorFile {
		if !l.rotate() {
			return
		}
	}
	n, _ := l.file.Write(b)
	l.size += int64(n)
}

// rotate opens the file; a full one becomes stderr.log.1 first.
func (l *errorLog) rotate() bool {
	if l.file != nil {
		l.file.Close()
		l.file = nil
		os.Rename(l.path, l.path+".1")
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return false
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return false
	}
	l.file, l.size = f, st.Size()
	return true
}

func (l *errorLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

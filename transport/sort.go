package transport

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// sorter sorts the lines of an agent's output: what is a JSON object is a
// message, anything else is noise.
type sorter struct {
	framer
	on    Handlers
	noise func(line []byte)
}

func newSorter(maxLine int, on Handlers, noise func(line []byte)) *sorter {
	s := &sorter{on: on, noise: noise}
	s.framer = framer{max: maxLine, line: s.sort, lost: func(n int64) { s.notice(Oversize, n) }}
	return s
}

func (s *sorter) sort(line []byte) {
	if IsObject(line) {
		if s.on.Message != nil {
			s.on.Message(line)
		}
		return
	}
	s.notice(NotJSON, int64(len(line)))
	s.noise(line)
}

// finishStream takes what was kept when the output ended. If the last line
// lacks its end but is whole, the agent only forgot it.
func (s *sorter) finishStream(b []byte) {
	switch b = s.end(b); {
	case len(b) == 0:
	case IsObject(b):
		s.sort(b)
	default:
		s.notice(Torn, int64(len(b)))
	}
}

func (s *sorter) notice(k NoticeKind, bytes int64) {
	if s.on.Notice != nil {
		s.on.Notice(Notice{Kind: k, Bytes: bytes})
	}
}

// IsObject reports whether a line is one JSON object. Duplicate names are left
// to whoever reads it.
func IsObject(line []byte) bool {
	v := jsontext.Value(line)
	return v.Kind() == jsontext.KindBeginObject && v.IsValid(jsontext.AllowDuplicateNames(true))
}

// Framer applies the contract's rules to an agent's output, for a transport
// that gets it in its own way. It is an [io.WriteCloser]: write the bytes as
// they come, in pieces of any size, and close it at the end of the output. It
// calls Message, Stderr and Notice meanwhile, and is not safe for use from
// several goroutines.
type Framer struct {
	sorter *sorter
	rest   []byte // the unfinished line
}

// NewFramer returns a framer that drops lines of more than maxLine bytes; 0 is
// [DefaultMaxLine].
func NewFramer(maxLine int, on Handlers) *Framer {
	if maxLine == 0 {
		maxLine = DefaultMaxLine
	}
	return &Framer{sorter: newSorter(maxLine, on, func(line []byte) {
		if on.Stderr != nil {
			pieces(line, on.Stderr)
		}
	})}
}

// Write takes the next bytes of the output. It never fails.
func (f *Framer) Write(b []byte) (int, error) {
	n := len(b)
	if len(f.rest) > 0 {
		f.rest = append(f.rest, b...)
		b = f.rest
	}
	keep := f.sorter.feed(b)
	if cap(f.rest) > largeBuffer && keep <= smallBuffer {
		f.rest = nil // a giant line is over
	}
	f.rest = append(f.rest[:0], b[len(b)-keep:]...)
	return n, nil
}

// Close says that the output has ended. An unfinished last line is delivered if
// it is a JSON object, else reported as torn.
func (f *Framer) Close() error {
	f.sorter.finishStream(f.rest)
	f.rest = nil
	return nil
}

// maxStderrLine caps a line of standard error; a longer one is cut up.
const maxStderrLine = 32 << 10

// pieces passes a line on, cut up if it is too long.
func pieces(line []byte, do func([]byte)) {
	for len(line) > maxStderrLine {
		n := pieceEnd(line)
		do(line[:n])
		line = line[n:]
	}
	do(line)
}

// pieceEnd is where the first piece of a line that is too long ends: before the
// start of a character.
func pieceEnd(line []byte) int {
	for n := maxStderrLine; n > maxStderrLine-utf8.UTFMax; n-- {
		if utf8.RuneStart(line[n]) {
			return n
		}
	}
	return maxStderrLine // it is no text
}

// errorLines cuts standard error into lines. One that is too long is passed on
// in pieces while it is still being written, so little is ever kept.
func errorLines(b []byte, do func([]byte)) (keep int) {
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		if line := bytes.TrimSuffix(b[:i], cr); len(line) > 0 {
			pieces(line, do)
		}
		b = b[i+1:]
	}
	for len(b) > maxStderrLine {
		n := pieceEnd(b)
		do(b[:n])
		b = b[n:]
	}
	return len(b)
}

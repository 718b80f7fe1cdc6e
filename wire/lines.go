package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrLineTooLong says that a line exceeds the reader's limit. The stream cannot
// be read on: where the line ends is not known without reading it.
var ErrLineTooLong = errors.New("the line is too long")

// Lines reads a stream of newline-delimited JSON with a limit on each line.
type Lines struct {
	r    *bufio.Reader
	max  int // bytes of a line with its newline
	buf  []byte
	lost bool // a line was too long: what follows is the middle of it
}

// NewLines reads lines of at most max bytes, newline included.
func NewLines(r io.Reader, max int) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 4096), max: max}
}

// Next returns the next line that is not blank, without its newline, valid
// until the next call. Blank is a line of only spaces, tabs and carriage
// returns. A last line without a newline counts. The error is [io.EOF] at the
// end, and [ErrLineTooLong] for a line over the limit and ever after: the rest
// of such a line must not be taken for a request.
func (l *Lines) Next() ([]byte, error) {
	for {
		if l.lost {
			return nil, ErrLineTooLong
		}
		line, err := l.line()
		l.lost = errors.Is(err, ErrLineTooLong)
		if err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)) {
			return nil, err
		}
		if len(bytes.Trim(line, " \t\r")) > 0 {
			return line, nil
		}
	}
}

// line reads one line. Short ones stay in the reader's own buffer.
func (l *Lines) line() ([]byte, error) {
	part, err := l.r.ReadSlice('\n')
	if err == nil && len(part) <= l.max {
		return part[:len(part)-1], nil
	}
	l.buf = append(l.buf[:0], part...)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(l.buf) >= l.max {
			return nil, ErrLineTooLong
		}
		part, err = l.r.ReadSlice('\n')
		l.buf = append(l.buf, part...)
	}
	if len(l.buf) > l.max || len(l.buf) == l.max && err != nil {
		return nil, ErrLineTooLong
	}
	line := bytes.TrimSuffix(l.buf, []byte{'\n'})
	if cap(l.buf) > 64<<10 {
		l.buf = nil // one large request must not be kept for the connection's life
	}
	return line, err
}

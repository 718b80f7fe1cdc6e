package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const suffix = ".log"

// header is the first line of a segment.
type header struct {
	Journal    int            `json:"cast_journal"` // version of the format
	Instance   string         `json:"instance"`
	Epoch      string         `json:"epoch"`
	Boot       string         `json:"boot"`
	First      uint64         `json:"first"`
	Checkpoint jsontext.Value `json:"checkpoint,omitzero"`
}

const format = 1

func segmentPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", first, suffix))
}

// segment is what a listing shows of a segment.
type segment struct {
	first uint64
	size  int64
}

// segments lists a journal's segments, oldest first. A missing folder has none.
func segments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []segment
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		first, err := strconv.ParseUint(name, 10, 64)
		if !ok || err != nil {
			continue
		}
		in, err := e.Info()
		if err != nil {
			continue // removed meanwhile
		}
		out = append(out, segment{first: first, size: in.Size()})
	}
	slices.SortFunc(out, func(a, b segment) int { return int(a.first) - int(b.first) })
	return out, nil
}

func readHeader(dir string, first uint64) (header, int64, error) {
	f, err := os.Open(segmentPath(dir, first))
	if err != nil {
		return header{}, 0, err
	}
	defer f.Close()
	w := window{file: f}
	return w.header()
}

// errPartial says that a record is not whole (yet).
var errPartial = errors.New("the record is not whole")

// errDamaged says that a record cannot be understood.
var errDamaged = errors.New("the record is damaged")

// window reads a segment forward through a buffer. off is the file offset of
// the first byte that was not consumed.
type window struct {
	file *os.File
	off  int64
	buf  []byte // bytes read from off on
}

// chunk is how much is read at once.
const chunk = 64 << 10

// maxRecordLine bounds the search for the end of a line.
const maxRecordLine = 128 << 20

// more reads on; it returns errPartial at the end of the file.
func (w *window) more(want int) error {
	n := max(chunk, want)
	start := len(w.buf)
	w.buf = slices.Grow(w.buf, n)
	got, err := w.file.ReadAt(w.buf[start:start+n], w.off+int64(start))
	w.buf = w.buf[:start+got]
	if got > 0 {
		return nil
	}
	if errors.Is(err, io.EOF) || err == nil {
		return errPartial
	}
	return err
}

// line returns the next line without its newline, unconsumed.
func (w *window) line() ([]byte, error) {
	from := 0
	for {
		if i := bytes.IndexByte(w.buf[from:], '\n'); i >= 0 {
			return w.buf[:from+i], nil
		}
		from = len(w.buf)
		if from > maxRecordLine {
			return nil, errDamaged
		}
		if err := w.more(0); err != nil {
			return nil, err
		}
	}
}

func (w *window) consume(n int) {
	w.off += int64(n)
	w.buf = w.buf[n:]
}

// forget drops what was read ahead: the file may have been cut and continued.
func (w *window) forget() { w.buf = nil }

func (w *window) header() (header, int64, error) {
	line, err := w.line()
	if err != nil {
		return header{}, 0, err
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil || h.Journal != format {
		return header{}, 0, fmt.Errorf("%w: header of %s", errDamaged, w.file.Name())
	}
	w.consume(len(line) + 1)
	return h, w.off, nil
}

// record returns the next whole record and consumes it. The entry's bytes are
// valid until the next call.
func (w *window) record() (Entry, error) {
	line, err := w.line()
	if err != nil {
		return Entry{}, err
	}
	e, rest, err := parseLine(line)
	if err != nil {
		return Entry{}, err
	}
	size := len(line) + 1
	if e.raw {
		for len(w.buf) < size+rest+1 {
			if err := w.more(size + rest + 1 - len(w.buf)); err != nil {
				return Entry{}, err
			}
		}
		e.line = w.buf[:size-1] // the buffer may have moved
		e.payload = w.buf[size : size+rest]
		if w.buf[size+rest] != '\n' {
			return Entry{}, errDamaged
		}
		size += rest + 1
	}
	w.consume(size)
	return e, nil
}

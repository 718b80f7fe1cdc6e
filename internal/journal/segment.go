package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// nameDigits is how many digits name a segment: any number has so many at most.
const nameDigits = 20

func segmentPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%0*d%s", nameDigits, first, suffix))
}

// segment is a file of the journal.
type segment struct {
	first uint64
	size  int64
	file  *os.File // of a finished one, for the syncer; nil if it was found
}

// parseName reads a segment's name.
func parseName(name string) (first uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != nameDigits {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, err == nil && first > 0
}

// names lists a journal's segments by their first events, in order. A missing
// folder has none.
func names(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []uint64 // in the order of the names, which have all the same length
	for _, e := range entries {
		if first, ok := parseName(e.Name()); ok && e.Type().IsRegular() {
			out = append(out, first)
		}
	}
	return out, nil
}

// segments lists a journal's segments with their sizes.
func segments(dir string) ([]segment, error) {
	all, err := names(dir)
	if err != nil {
		return nil, err
	}
	var out []segment
	for _, first := range all {
		in, err := os.Lstat(segmentPath(dir, first))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, segment{first: first, size: in.Size()})
	}
	return out, nil
}

// openSegment opens a segment for reading, behind its header, through a buffer
// that may be nil. Without an error the window's file is open.
func openSegment(dir string, first uint64, mem []byte) (window, header, error) {
	f, err := os.Open(segmentPath(dir, first))
	if err != nil {
		return window{}, header{}, err
	}
	w := window{file: f, mem: mem}
	h, err := w.header(first)
	if err != nil {
		f.Close()
		return window{}, header{}, err
	}
	return w, h, nil
}

func readHeader(dir string, first uint64) (header, error) {
	w, h, err := openSegment(dir, first, nil)
	if err != nil {
		return header{}, err
	}
	return h, w.file.Close()
}

// errPartial says that a record is not whole (yet).
var errPartial = errors.New("the record is not whole")

// errDamaged says that a record cannot be understood.
var errDamaged = errors.New("the record is damaged")

// window reads a segment forward through a buffer. Each record comes out of a
// single read: one put together from several could mix what a failed write left
// with what was written over it.
type window struct {
	file *os.File
	off  int64  // in the file, of the first byte that was not consumed
	mem  []byte // the buffer
	buf  []byte // the part of it that holds what was read from off on
}

// chunk is how much is read at once, if a record needs no more.
const chunk = 64 << 10

// maxRecord bounds a record: nothing larger is written, and the end of no
// longer line is searched for.
const maxRecord = 128 << 20

// more reads from off again, more than before and at least want bytes. It
// returns errPartial if there are no more, or less than want.
func (w *window) more(want int) error {
	n := max(chunk, 2*len(w.buf), want)
	if len(w.mem) < n {
		w.mem = make([]byte, n)
	}
	had := len(w.buf)
	got, err := w.file.ReadAt(w.mem[:n], w.off)
	w.buf = w.mem[:got]
	if got > had && got >= want {
		return nil
	}
	if errors.Is(err, io.EOF) || err == nil {
		return errPartial
	}
	return err
}

// line returns the next line without its newline, unconsumed.
func (w *window) line() ([]byte, error) {
	for {
		if i := bytes.IndexByte(w.buf, '\n'); i >= 0 {
			return w.buf[:i], nil
		}
		if len(w.buf) > maxRecord {
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
// The buffer of a giant record is not kept for ever.
func (w *window) forget() {
	w.buf = nil
	if len(w.mem) > 4*chunk {
		w.mem = nil
	}
}

// header reads the first line of the segment that is named by first.
func (w *window) header(first uint64) (header, error) {
	line, err := w.line()
	if err != nil {
		return header{}, err
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil || h.Journal != format || h.First != first {
		return header{}, fmt.Errorf("%w: header of %s", errDamaged, w.file.Name())
	}
	w.consume(len(line) + 1)
	return h, nil
}

// record returns the next whole record and consumes it. The entry's bytes are
// valid until the next call.
func (w *window) record() (Entry, error) {
	for {
		line, err := w.line()
		if err != nil {
			return Entry{}, err
		}
		e, size, err := parseLine(line)
		if err != nil {
			return Entry{}, err
		}
		end := len(line) + 1
		if !e.raw {
			w.consume(end)
			return e, nil
		}
		if len(w.buf) < end+size+1 {
			if err := w.more(end + size + 1); err != nil {
				return Entry{}, err
			}
			continue // all of it anew
		}
		e.payload = w.buf[end : end+size]
		if w.buf[end+size] != '\n' {
			return Entry{}, errDamaged
		}
		w.consume(end + size + 1)
		return e, nil
	}
}

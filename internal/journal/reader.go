package journal

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/castctl/castctl/wire"
)

var (
	// ErrExpired says that events were asked for that are not kept any more.
	ErrExpired = errors.New("these events are not kept any more")
	// ErrForeign says that a position is of another instance.
	ErrForeign = errors.New("the position is of another instance")
	// ErrFuture says that a position lies behind the last event.
	ErrFuture = errors.New("the position lies in the future")
	// ErrNoJournal says that there are no events at all.
	ErrNoJournal = errors.New("there is no journal")
)

// Reader reads a journal forward, while it is written or not. It is not safe
// for use from several goroutines.
type Reader struct {
	dir      string
	w        window
	instance string
	epoch    string
	first    uint64 // of the open segment
	next     uint64 // number of the event to be returned next
}

// NewReader returns a reader that begins with the first event kept.
func NewReader(dir string) *Reader { return &Reader{dir: dir} }

// Close releases the open segment.
func (r *Reader) Close() error {
	if r.w.file == nil {
		return nil
	}
	err := r.w.file.Close()
	r.w = window{}
	return err
}

// Epoch is the epoch of the last event returned.
func (r *Reader) Epoch() string { return r.epoch }

// SeekAfter positions the reader so that the next event is the one after seq.
// It returns [ErrExpired] if that one is not kept any more.
func (r *Reader) SeekAfter(seq uint64) error {
	r.Close()
	all, err := segments(r.dir)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if seq > 0 {
			return ErrNoJournal
		}
		r.next = 1
		return nil
	}
	if all[0].first > seq+1 {
		return ErrExpired
	}
	i := len(all) - 1
	for all[i].first > seq+1 {
		i--
	}
	if err := r.open(all[i].first); err != nil {
		return err
	}
	for r.next <= seq {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return nil // in the future: its event will be the next
		} else if err != nil {
			return err
		}
	}
	return nil
}

// open opens the segment that begins with the given event.
func (r *Reader) open(first uint64) error {
	f, err := os.Open(segmentPath(r.dir, first))
	if err != nil {
		return err
	}
	w := window{file: f}
	h, _, err := w.header()
	if err != nil {
		f.Close()
		return err
	}
	r.Close()
	r.w, r.instance, r.epoch, r.first, r.next = w, h.Instance, h.Epoch, first, first
	return nil
}

// Next returns the next event, or [io.EOF] if there is none yet; the entry is
// valid until the next call. It returns [ErrExpired] if the next event was
// removed before it was read.
func (r *Reader) Next() (Entry, error) {
	if r.w.file == nil {
		if err := r.start(); err != nil {
			return Entry{}, err
		}
	}
	for {
		e, err := r.w.record()
		if err == nil {
			r.next = e.Seq + 1
			e.instance = r.instance
			return e, nil
		}
		if !errors.Is(err, errPartial) {
			return Entry{}, fmt.Errorf("segment %d at byte %d: %w", r.first, r.w.off, err)
		}
		r.w.forget()
		if err := r.follow(); err != nil {
			return Entry{}, err
		}
	}
}

// start opens the first segment of a reader that has none.
func (r *Reader) start() error {
	all, err := segments(r.dir)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return io.EOF
	}
	if r.next > 0 && all[0].first > r.next {
		return ErrExpired
	}
	return eofIfPartial(r.open(all[0].first))
}

// eofIfPartial treats a segment whose header is not whole as one that is not
// there yet.
func eofIfPartial(err error) error {
	if errors.Is(err, errPartial) {
		return io.EOF
	}
	return err
}

// follow goes on to the next segment at the end of one. It returns io.EOF if
// there is none, and nil if there is more to read.
func (r *Reader) follow() error {
	if r.next > r.first {
		err := r.open(r.next)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return eofIfPartial(err)
		}
	}
	all, err := segments(r.dir)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.first <= r.first {
			continue
		}
		if s.first > r.next && s.first == all[0].first {
			return ErrExpired
		}
		// A power cut can lose the end of a segment whose successor survived.
		return eofIfPartial(r.open(s.first))
	}
	if len(all) > 0 && all[len(all)-1].first < r.first {
		return ErrExpired
	}
	return io.EOF
}

// Bounds is how much of a journal is kept.
type Bounds struct {
	First uint64 // number of the first event kept
	Last  wire.Pos
}

// Find reads the bounds of a journal. It returns [ErrNoJournal] if it holds no
// event.
func Find(dir string) (Bounds, error) {
	all, err := segments(dir)
	if err != nil {
		return Bounds{}, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		r := NewReader(dir)
		if r.open(all[i].first) != nil {
			continue
		}
		for {
			if _, err := r.w.record(); err != nil {
				break
			}
			r.next++
		}
		last := wire.Pos{Epoch: r.epoch, Seq: r.next - 1}
		r.Close()
		if last.Seq == 0 {
			break
		}
		return Bounds{First: all[0].first, Last: last}, nil
	}
	return Bounds{}, ErrNoJournal
}

// Locate checks that a position was given out by this journal and that the
// events after it are kept. last is the number of the last event. Its errors
// are [ErrForeign], [ErrFuture] and [ErrExpired].
func Locate(dir string, p wire.Pos, last uint64) error {
	all, err := segments(dir)
	if err != nil {
		return err
	}
	found := false
	for i, s := range all {
		h, _, err := readHeader(dir, s.first)
		if err != nil || h.Epoch != p.Epoch {
			if found {
				// The epoch ended where the next one begins.
				return before(p.Seq, s.first-1)
			}
			continue
		}
		if !found && p.Seq+1 < s.first {
			return ErrExpired
		}
		found = true
		if i == len(all)-1 {
			return before(p.Seq, last)
		}
	}
	if found {
		return before(p.Seq, last)
	}
	return ErrForeign
}

func before(seq, end uint64) error {
	if seq > end {
		return ErrFuture
	}
	return nil
}

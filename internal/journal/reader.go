package journal

import (
	"errors"
	"fmt"
	"io"
	"math"
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
//
// What cannot be read because the disk was damaged is passed over as soon as
// there is a later segment; the numbers show the gap.
type Reader struct {
	dir   string
	w     window
	head  header // of the open segment
	at    uint64 // number of the next event in it
	next  uint64 // number of the event to be returned next; 0 is the first one kept
	epoch string
}

// NewReader returns a reader that begins with the first event kept.
func NewReader(dir string) *Reader { return &Reader{dir: dir} }

// Close releases the open segment. The reader can go on afterwards.
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

// SeekAfter positions the reader so that the next event is the one after seq,
// even if that one is still to come. It returns [ErrExpired] if it is not kept
// any more.
func (r *Reader) SeekAfter(seq uint64) error {
	r.Close()
	all, err := names(r.dir)
	switch {
	case err != nil:
		return err
	case seq == math.MaxUint64:
		return ErrFuture
	case len(all) == 0 && seq > 0:
		return ErrNoJournal
	case len(all) > 0 && all[0] > seq+1:
		return ErrExpired
	}
	r.next = seq + 1
	if err := r.seek(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// seek opens the segment that holds the next event, or will. It returns io.EOF
// if there is nothing to read yet.
func (r *Reader) seek() error {
	for {
		all, err := names(r.dir)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return io.EOF
		}
		if r.next == 0 {
			r.next = all[0]
		}
		if all[0] > r.next {
			return ErrExpired
		}
		i := len(all) - 1
		for all[i] > r.next {
			i--
		}
		err = r.open(all[i:]...)
		if !errors.Is(err, os.ErrNotExist) { // else it was removed meanwhile
			return eofIfPartial(err)
		}
	}
}

// eofIfPartial treats a segment whose header is not whole as one that is not
// there yet.
func eofIfPartial(err error) error {
	if errors.Is(err, errPartial) {
		return io.EOF
	}
	return err
}

// open opens the first of some segments whose header is not damaged.
func (r *Reader) open(firsts ...uint64) error {
	var damaged error
	for _, first := range firsts {
		w, h, err := openSegment(r.dir, first, r.w.mem)
		if errors.Is(err, errDamaged) {
			damaged = err
			continue
		}
		if err != nil {
			return err
		}
		r.Close()
		r.w, r.head, r.at = w, h, first
		return nil
	}
	return damaged
}

// Next returns the next event, or [io.EOF] if there is none yet; the entry is
// valid until the next call. It returns [ErrExpired] if the next event was
// removed before it was read.
func (r *Reader) Next() (Entry, error) {
	if r.w.file == nil {
		if err := r.seek(); err != nil {
			return Entry{}, err
		}
	}
	// The end of a segment is read again once a successor was seen: the writer
	// may have gone on in between. It must be the same successor, because one
	// that could not be begun on a full disk is taken back.
	var successor uint64
	again := false // it was read again because it was damaged
	for {
		e, err := r.read()
		switch {
		case err == nil && e.Seq < r.next:
			continue
		case err == nil:
			r.next, r.epoch, e.instance = r.at, r.head.Epoch, r.head.Instance
			return e, nil
		case !errors.Is(err, errPartial) && !errors.Is(err, errDamaged):
			return Entry{}, r.explain(err)
		}
		behind, expired, nerr := r.behind()
		switch {
		case nerr != nil:
			return Entry{}, nerr
		case len(behind) > 0 && behind[0] != successor:
			successor = behind[0]
		case expired:
			return Entry{}, ErrExpired
		case len(behind) > 0:
			if err := r.follow(behind); err != nil {
				return Entry{}, err
			}
		case errors.Is(err, errDamaged) && !again:
			again = true // perhaps in the middle of a write
		case errors.Is(err, errDamaged):
			return Entry{}, r.explain(err)
		case !r.replaced():
			return Entry{}, io.EOF
		}
	}
}

// read returns the open segment's next record.
func (r *Reader) read() (Entry, error) {
	begin := r.w.off
	e, err := r.w.record()
	if err == nil && e.Seq != r.at {
		err = errDamaged
	}
	if err != nil {
		r.w.off = begin
		r.w.forget()
		return Entry{}, err
	}
	r.at++
	return e, nil
}

func (r *Reader) explain(err error) error {
	return fmt.Errorf("segment %d at byte %d: %w", r.head.First, r.w.off, err)
}

// behind lists the segments behind the open one. expired says that events
// between that one and these were removed.
func (r *Reader) behind() (firsts []uint64, expired bool, err error) {
	all, err := names(r.dir)
	if err != nil || len(all) == 0 {
		return nil, false, err
	}
	i := 0
	for i < len(all) && all[i] <= r.head.First {
		i++
	}
	if i == len(all) {
		// If ours is gone without a successor, the journal was begun anew; one
		// without events may only be replaced just now.
		return nil, all[i-1] < r.head.First && r.at > r.head.First, nil
	}
	return all[i:], i == 0 && all[0] > r.next, nil
}

// follow goes on to the first of the segments behind that can be read. What is
// missing in between is lost: a power cut can take the end of a segment whose
// successor survived.
func (r *Reader) follow(behind []uint64) error {
	epoch := r.head.Epoch
	err := r.open(behind...)
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed meanwhile: look again
	}
	if err != nil {
		return eofIfPartial(err)
	}
	if r.at > r.next || r.head.Epoch != epoch {
		r.next = r.at // a new epoch gives numbers again that were lost
	}
	return nil
}

// replaced opens the segment again if there is another one by its name: one of
// which nothing was left is begun anew for a new epoch.
func (r *Reader) replaced() bool {
	ours, err := r.w.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(segmentPath(r.dir, r.head.First))
	return err == nil && !os.SameFile(ours, there) && r.follow([]uint64{r.head.First}) == nil
}

// Bounds is how much of a journal is kept.
type Bounds struct {
	First uint64 // number of the first event kept
	Last  wire.Pos
}

// Find reads the bounds of a journal. It returns [ErrNoJournal] if it holds no
// event.
func Find(dir string) (Bounds, error) {
	all, err := names(dir)
	if err != nil {
		return Bounds{}, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		r := NewReader(dir)
		if r.open(all[i]) != nil {
			continue // being begun, or removed meanwhile
		}
		for {
			if _, err := r.read(); err != nil {
				break
			}
		}
		last := wire.Pos{Epoch: r.head.Epoch, Seq: r.at - 1}
		r.Close()
		if last.Seq == 0 {
			break
		}
		return Bounds{First: all[0], Last: last}, nil
	}
	return Bounds{}, ErrNoJournal
}

// Locate checks that a position was given out by this journal and that the
// events after it are kept. last is the number of the last event. Its errors
// are [ErrForeign], [ErrFuture] and [ErrExpired].
func Locate(dir string, p wire.Pos, last uint64) error {
	all, err := names(dir)
	if err != nil {
		return err
	}
	found := false
	for _, first := range all {
		h, err := readHeader(dir, first)
		switch {
		case err != nil: // being begun, removed meanwhile, or damaged
		case h.Epoch == p.Epoch && !found && p.Seq < first-1:
			return ErrExpired
		case h.Epoch == p.Epoch:
			found = true
		case found:
			// The epoch ended where the next one begins.
			return before(p.Seq, first-1)
		}
	}
	if !found {
		return ErrForeign
	}
	return before(p.Seq, last)
}

func before(seq, end uint64) error {
	if seq > end {
		return ErrFuture
	}
	return nil
}

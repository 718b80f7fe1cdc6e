package journal

import (
	"errors"
	"os"
	"syscall"

	"github.com/go-json-experiment/json/jsontext"
)

// Memory is what a writer wants to know again after a restart, kept by the
// journal so that it cannot disagree with it.
type Memory interface {
	// Save returns what stands in the header of a new segment. It is called
	// under the journal's lock and must not call back.
	Save() any
	// Restore takes what Save returned when the last segment began.
	Restore(checkpoint jsontext.Value)
	// Replay takes each record of the last segment, in order.
	Replay(Entry)
}

// Recovery is what opening a journal found.
type Recovery struct {
	Torn     int64 // bytes of an unfinished record, or of damaged ones, that were cut off
	NewEpoch bool  // the machine was booted since the last event
	// Damaged says that records were cut off which somebody may have seen: they
	// could not be read. Their numbers are given again, in a new epoch.
	Damaged bool
	boot    string
}

// recover finds the last segment that can be read, cuts what is torn and
// replays it. Without any segment the journal begins anew.
func (j *Journal) recover() (Recovery, error) {
	var rec Recovery
	all, err := segments(j.dir)
	if err != nil {
		return rec, err
	}
	for len(all) > 0 {
		s := all[len(all)-1]
		all = all[:len(all)-1]
		err := j.resume(s, &rec)
		switch {
		case err == nil:
			j.closed = all
			return rec, nil
		case errors.Is(err, errPartial):
			// The writer was killed while it began the segment.
			err = os.Remove(segmentPath(j.dir, s.first))
		case errors.Is(err, errDamaged):
			rec.Damaged = true
			err = os.Rename(segmentPath(j.dir, s.first), segmentPath(j.dir, s.first)+".damaged")
		}
		if err != nil {
			return rec, err
		}
		rec.Torn += s.size
	}
	return rec, nil
}

// resume opens the last segment for appending. It returns errPartial or
// errDamaged if not even its header can be read.
func (j *Journal) resume(s segment, rec *Recovery) (err error) {
	f, err := os.OpenFile(segmentPath(j.dir, s.first), os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	w := window{file: f}
	h, err := w.header(s.first)
	if err != nil {
		return err
	}
	if j.cfg.Memory != nil && len(h.Checkpoint) > 0 {
		j.cfg.Memory.Restore(h.Checkpoint)
	}
	last, err := j.replay(&w, h)
	if errors.Is(err, errDamaged) {
		rec.Damaged = true
	} else if !errors.Is(err, errPartial) {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() > w.off {
		rec.Torn += st.Size() - w.off
		if err := f.Truncate(w.off); err != nil {
			return err
		}
	}
	j.file, j.size, j.first, j.last, j.epoch = f, w.off, h.First, last, h.Epoch
	rec.boot = h.Boot
	return nil
}

// replay reads a segment up to what cannot be read, which its error tells.
func (j *Journal) replay(w *window, h header) (last uint64, err error) {
	last = h.First - 1
	for {
		begin := w.off
		e, err := w.record()
		if err == nil && e.Seq != last+1 {
			w.off, err = begin, errDamaged
		}
		if err != nil {
			return last, err
		}
		last = e.Seq
		if j.cfg.Memory != nil {
			e.instance = h.Instance
			j.cfg.Memory.Replay(e)
		}
	}
}

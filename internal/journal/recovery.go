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
	Torn     int64 // bytes of an unfinished record that were cut off
	NewEpoch bool  // the machine was booted since the last event
	boot     string
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
		ok, err := j.resume(s, &rec)
		if err != nil {
			return rec, err
		}
		if ok {
			j.closed = all
			return rec, nil
		}
		rec.Torn += s.size
		if err := os.Remove(segmentPath(j.dir, s.first)); err != nil {
			return rec, err
		}
	}
	return rec, nil
}

// resume opens the last segment for appending. It reports false if not even
// its header is whole: the writer was killed while it began the segment.
func (j *Journal) resume(s segment, rec *Recovery) (ok bool, err error) {
	f, err := os.OpenFile(segmentPath(j.dir, s.first), os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, err
	}
	defer func() {
		if !ok {
			f.Close()
		}
	}()
	w := window{file: f}
	h, _, err := w.header()
	if errors.Is(err, errPartial) || errors.Is(err, errDamaged) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if j.cfg.Memory != nil && len(h.Checkpoint) > 0 {
		j.cfg.Memory.Restore(h.Checkpoint)
	}
	last := h.First - 1
	for {
		e, err := w.record()
		if errors.Is(err, errPartial) || errors.Is(err, errDamaged) || err == nil && e.Seq != last+1 {
			break
		}
		if err != nil {
			return false, err
		}
		last = e.Seq
		if j.cfg.Memory != nil {
			e.instance = h.Instance
			j.cfg.Memory.Replay(e)
		}
	}
	end := w.off
	if st, err := f.Stat(); err == nil && st.Size() > end {
		rec.Torn += st.Size() - end
		if err := f.Truncate(end); err != nil {
			return false, err
		}
	}
	j.file, j.size, j.first, j.last, j.epoch = f, end, h.First, last, h.Epoch
	rec.boot = h.Boot
	return true, nil
}

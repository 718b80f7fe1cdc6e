package journal

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/wire"
)

// ErrFull says that there is no room for an event. Nothing of it was written,
// its number was not used, and the next attempt may succeed.
var ErrFull = errors.New("the disk is full")

// errData and errSize refuse an event that no reader could read.
var (
	errData = errors.New("the event's data is not one line of JSON")
	errSize = fmt.Errorf("the event has more than %d bytes", maxRecord)
)

// Config says how a journal is kept.
type Config struct {
	Instance string // id that every event names
	Boot     string // this boot; another one than the last begins an epoch
	Max      int64  // bytes of all segments; the oldest are removed beyond it
	Segment  int64  // bytes of one segment; 0 is 8 MiB
	Memory   Memory // what to find again after a restart; may be nil
	// Grown is called after each append, outside the lock.
	Grown func()
}

const (
	defaultSegment = 8 << 20
	syncEvery      = 100 * time.Millisecond
)

// Journal is the writing end. Its methods may be called from many goroutines.
type Journal struct {
	cfg Config
	dir string

	mu       sync.Mutex // guards the fields below
	file     *os.File
	size     int64 // of the current segment
	first    uint64
	last     uint64
	epoch    string
	closed   []segment // the finished segments, oldest first
	scratch  []byte
	ragged   bool // what a failed write left could not be cut off yet
	scarce   bool // the last write found the disk full
	syncer   syncer
	finished bool
}

// Open opens the journal in dir for writing, makes it if there is none, and
// cuts a torn tail. Only the holder of the instance's alive lock may call it.
// What the writer's predecessor knew comes back in the recovery.
func Open(dir string, cfg Config) (*Journal, Recovery, error) {
	if cfg.Segment == 0 {
		cfg.Segment = defaultSegment
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, Recovery{}, err
	}
	j := &Journal{cfg: cfg, dir: dir, syncer: syncer{dir: dir, sync: datasync, last: time.Now()}}
	rec, err := j.recover()
	if err != nil {
		return nil, rec, err
	}
	if j.file != nil {
		if rec.NewEpoch = rec.boot != cfg.Boot; !rec.NewEpoch {
			j.syncFound()
		}
	}
	if j.file == nil || rec.NewEpoch || rec.Damaged {
		if err := j.beginEpoch(); err != nil {
			return nil, rec, full(err)
		}
	}
	j.drop(cfg.Max)
	return j, rec, nil
}

// maxFound is how many of the segments found are synced at the opening. Long
// before a writer has filled so many, the oldest is.
const maxFound = 64

// syncFound makes durable what was found: its writer was perhaps killed before
// it did that. Later events must not survive a power cut that these do not.
func (j *Journal) syncFound() {
	for i := max(0, len(j.closed)-maxFound); i < len(j.closed); i++ {
		if f, err := os.Open(segmentPath(j.dir, j.closed[i].first)); err == nil {
			j.closed[i].file = f
			j.syncer.retire(f)
		}
	}
	j.syncer.begun()
	j.syncer.dirty(j.file)
}

// beginEpoch starts a segment of a new epoch.
func (j *Journal) beginEpoch() error {
	j.epoch = randomEpoch()
	old := j.file
	if old != nil && j.last < j.first {
		// It holds no event, and the new one will have its name.
		if err := errors.Join(old.Close(), os.Remove(segmentPath(j.dir, j.first))); err != nil {
			return err
		}
		old = nil
	}
	done := segment{first: j.first, size: j.size, file: old}
	if err := j.begin(); err != nil {
		if old != nil {
			old.Close()
		}
		return err
	}
	if old != nil {
		j.closed = append(j.closed, done)
		j.syncer.retire(old)
	}
	return nil
}

// segmentSize is where a segment ends: a cap leaves room for a few.
func (j *Journal) segmentSize() int64 {
	if j.cfg.Max <= 0 {
		return j.cfg.Segment
	}
	return min(j.cfg.Segment, max(j.cfg.Max/4, 64<<10))
}

func randomEpoch() string {
	b := make([]byte, 8)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// begin starts a new segment after the last event.
func (j *Journal) begin() error {
	h := header{Journal: format, Instance: j.cfg.Instance, Epoch: j.epoch, Boot: j.cfg.Boot, First: j.last + 1}
	if j.cfg.Memory != nil {
		if b, err := json.Marshal(j.cfg.Memory.Save()); err == nil {
			h.Checkpoint = jsontext.Value(b)
		}
	}
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	path := segmentPath(j.dir, h.First)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err := f.Write(line); err != nil {
		f.Close()
		os.Remove(path)
		return err
	}
	j.file, j.size, j.first = f, int64(len(line)), h.First
	j.syncer.begun()
	return nil
}

// Append numbers the events and writes them in one write: all of them or none.
// They are synced within 100 ms; with durable, before Append returns.
func (j *Journal) Append(durable bool, events ...*wire.Event) error {
	for _, ev := range events {
		if len(ev.Data) == 0 || bytes.IndexByte(ev.Data, '\n') >= 0 {
			return errData
		}
	}
	j.mu.Lock()
	b := j.scratch[:0]
	now := wire.Now()
	for i, ev := range events {
		ev.Seq = j.last + 1 + uint64(i)
		ev.Instance = j.cfg.Instance
		if ev.Time.IsZero() {
			ev.Time = now
		}
		b = appendEvent(b, ev)
	}
	j.keepScratch(b)
	crashpoint.At("journal.append")
	err := j.write(len(events), b)
	file := j.file
	j.mu.Unlock()
	if err != nil {
		return err
	}
	j.grown()
	if !durable {
		return nil
	}
	// Outside the lock: output goes on meanwhile. A segment that is retired
	// before it was synced stays open until it is.
	return j.syncer.now(file)
}

// AppendRaw writes a batch of an agent's own bytes as one event.
func (j *Journal) AppendRaw(t wire.EventType, payload []byte) error {
	if len(payload) == 0 {
		return nil
	}
	if len(payload) > maxRecord {
		return errSize
	}
	j.mu.Lock()
	lines := bytes.Count(payload, newline)
	b := appendRawLine(j.scratch[:0], j.last+1, wire.Now(), t, len(payload), lines)
	j.keepScratch(b)
	err := j.write(1, b, payload, newline)
	j.mu.Unlock()
	if err != nil {
		return err
	}
	j.grown()
	return nil
}

var newline = []byte{'\n'}

func (j *Journal) keepScratch(b []byte) {
	if cap(b) <= 16<<10 {
		j.scratch = b[:0]
	}
}

func (j *Journal) grown() {
	if j.cfg.Grown != nil {
		j.cfg.Grown()
	}
}

// write appends n whole records. A write that fails half-way is cut off again.
func (j *Journal) write(n int, parts ...[]byte) error {
	if j.finished {
		return os.ErrClosed
	}
	if n == 0 {
		return nil
	}
	total := 0
	for _, p := range parts {
		total += len(p)
	}
	if total > maxRecord {
		return errSize
	}
	if j.ragged {
		if err := j.cut(); err != nil {
			return full(err)
		}
	}
	if j.size+int64(total) > j.segmentSize() && j.last >= j.first {
		if err := j.rotate(); err != nil {
			return full(err)
		}
	}
	// A reader must not see the first of several and then none, nor many a
	// fragment while the disk stays full.
	if n > 1 || j.scarce {
		if err := reserve(j.file, j.size, total); err != nil {
			return full(err)
		}
	}
	if err := writeAll(j.file, parts); err != nil {
		j.scarce = true
		return errors.Join(full(err), j.cut())
	}
	j.scarce = false
	j.size += int64(total)
	j.last += uint64(n)
	j.syncer.dirty(j.file)
	return nil
}

// cut removes what a failed write left. Until that has succeeded nothing may be
// appended: it would stand behind a fragment.
func (j *Journal) cut() error {
	err := j.file.Truncate(j.size)
	j.ragged = err != nil
	return err
}

func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

func (j *Journal) rotate() error {
	old, done := j.file, segment{first: j.first, size: j.size, file: j.file}
	if err := j.begin(); err != nil {
		return err
	}
	j.syncer.retire(old)
	j.closed = append(j.closed, done)
	j.drop(j.cfg.Max)
	return nil
}

// drop removes the oldest segments while all together exceed the cap.
func (j *Journal) drop(max int64) {
	if max <= 0 {
		return
	}
	total := j.size + j.segmentSize() // room for the one that begins
	for _, s := range j.closed {
		total += s.size
	}
	for len(j.closed) > 0 && total > max {
		if j.settle() != nil {
			return // rather too much than nothing
		}
		os.Remove(segmentPath(j.dir, j.closed[0].first))
		total -= j.closed[0].size
		j.closed = j.closed[1:]
	}
}

// settle makes sure that what will be the first segment kept is durable. Else a
// power cut could take everything: the old ones were removed and the new ones,
// with what the writer remembers, never reached the disk.
func (j *Journal) settle() error {
	if len(j.closed) > 1 && j.syncer.settled(j.closed[1].file) {
		return nil
	}
	return j.syncer.now(j.file)
}

// SetMax changes the cap.
func (j *Journal) SetMax(max int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cfg.Max = max
	j.drop(j.cfg.Max)
}

// Last is the position of the last event.
func (j *Journal) Last() wire.Pos {
	j.mu.Lock()
	defer j.mu.Unlock()
	return wire.Pos{Epoch: j.epoch, Seq: j.last}
}

// Sync makes everything appended so far durable.
func (j *Journal) Sync() error {
	j.mu.Lock()
	file := j.file
	j.mu.Unlock()
	return j.syncer.now(file)
}

// Close makes everything durable and closes the journal. Later appends fail
// with [os.ErrClosed].
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.finished {
		j.mu.Unlock()
		return nil
	}
	j.finished = true
	j.mu.Unlock()
	return j.syncer.close(j.file)
}

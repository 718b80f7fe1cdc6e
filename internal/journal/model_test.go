package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/castctl/castctl/wire"
)

// TestAJournalIsWhatTheModelSays runs random histories of a journal — writers,
// rotations, deaths, power cuts — against the simplest model of one: a list.
func TestAJournalIsWhatTheModelSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		defer m.end()
		t.Repeat(map[string]func(*rapid.T){
			"":               m.check,
			"append":         m.append,
			"append raw":     m.appendRaw,
			"restart":        m.restart,
			"die in a write": m.die,
			"power cut":      m.powerCut,
			"follow":         m.follow,
			"locate":         m.locate,
		})
	})
}

// model is a journal together with what it should hold.
type model struct {
	dir  string
	cfg  Config
	j    *Journal
	boot int

	events []string // text of event 1, 2, …
	places []place  // and where they stand
	epochs []era

	mu      sync.Mutex       // guards durable
	durable map[string]int64 // so many bytes of a file are on the disk

	reader *Reader
	next   int // number of the event that the follower must see next
}

// place is where an event ends.
type place struct {
	path string
	end  int64
}

// era is an epoch with the number of its first event.
type era struct {
	name  string
	first int
}

func newModel(t *rapid.T) *model {
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		t.Fatal(err)
	}
	m := &model{dir: filepath.Join(dir, "journal"), next: 1, durable: map[string]int64{}}
	m.cfg = Config{Instance: instance, Segment: int64(rapid.IntRange(300, 3000).Draw(t, "segment"))}
	if rapid.Bool().Draw(t, "capped") {
		m.cfg.Max = 6 * m.cfg.Segment
	}
	m.open(t)
	m.reader = NewReader(m.dir)
	if err := m.reader.SeekAfter(0); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *model) end() {
	m.reader.Close()
	m.j.Close()
	os.RemoveAll(filepath.Dir(m.dir))
}

// open opens the journal and notes a new epoch.
func (m *model) open(t *rapid.T) Recovery {
	m.cfg.Boot = fmt.Sprint(m.boot)
	j, rec, err := Open(m.dir, m.cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	m.j = j
	hook(j, m.sync)
	if rec.Damaged {
		t.Fatalf("recovered %+v", rec)
	}
	if n := len(m.epochs); n == 0 || m.epochs[n-1].name != j.Last().Epoch {
		m.epochs = append(m.epochs, era{j.Last().Epoch, int(j.Last().Seq) + 1})
	}
	return rec
}

// sync stands for the disk.
func (m *model) sync(f *os.File) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := f.Stat()
	if err == nil {
		m.durable[f.Name()] = st.Size()
	}
	return err
}

// kept is how many events are on the disk.
func (m *model) kept() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, p := range slices.Backward(m.places) {
		if m.durable[p.path] >= p.end {
			return i + 1
		}
	}
	return 0
}

// wrote notes what was appended.
func (m *model) wrote(texts ...string) {
	for _, text := range texts {
		m.events = append(m.events, text)
		m.places = append(m.places, place{segmentPath(m.dir, m.j.first), m.j.size})
	}
}

func (m *model) append(t *rapid.T) {
	durable := rapid.Bool().Draw(t, "durable")
	var batch []*wire.Event
	var texts []string
	for range rapid.IntRange(1, 4).Draw(t, "events") {
		text := rapid.String().Draw(t, "text")
		ev := wire.NewEvent(wire.EventError, wire.ErrorData{Code: wire.Internal, Message: text})
		batch = append(batch, &ev)
		texts = append(texts, string(ev.Data))
	}
	if err := m.j.Append(durable, batch...); err != nil {
		t.Fatal(err)
	}
	m.wrote(texts...)
	if durable && m.kept() != len(m.events) {
		t.Fatalf("event %d is durable, but only %d are on the disk", len(m.events), m.kept())
	}
}

func (m *model) appendRaw(t *rapid.T) {
	payload := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "payload")
	if rapid.IntRange(0, 9).Draw(t, "big") == 0 {
		payload = slices.Repeat(payload, 100)
	}
	if err := m.j.AppendRaw(wire.EventOutput, payload); err != nil {
		t.Fatal(err)
	}
	m.wrote(string(payload))
}

func (m *model) restart(t *rapid.T) {
	if err := m.j.Close(); err != nil {
		t.Fatal(err)
	}
	if m.kept() != len(m.events) {
		t.Fatalf("after Close only %d of %d are on the disk", m.kept(), len(m.events))
	}
	if rec := m.open(t); rec.Torn != 0 || rec.NewEpoch {
		t.Fatalf("after a clean end: recovered %+v", rec)
	}
}

// die is kill -9 within a write: a part of a record stands at the end.
func (m *model) die(t *rapid.T) {
	ev := note(1)
	ev.Seq, ev.Instance, ev.Time = m.j.Last().Seq+1, instance, wire.Now()
	record := appendEvent(nil, ev)
	if rapid.Bool().Draw(t, "raw") {
		payload := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "payload")
		record = append(appendRawLine(nil, ev.Seq, ev.Time, wire.EventOutput, len(payload), 0), payload...)
		record = append(record, '\n')
	}
	path := segmentPath(m.dir, m.j.first)
	m.drop()
	n := rapid.IntRange(0, len(record)-1).Draw(t, "written")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(record[:n])
	f.Close()
	if rec := m.open(t); rec.Torn != int64(n) || rec.NewEpoch {
		t.Fatalf("recovered %+v, want %d torn bytes", rec, n)
	}
}

// powerCut loses what was not synced from some point on, anywhere in a record.
func (m *model) powerCut(t *rapid.T) {
	m.drop()
	m.boot++
	keep := rapid.IntRange(m.kept(), len(m.events)).Draw(t, "kept")
	cut, torn := "", 0
	all, err := names(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range slices.Backward(all) {
		path := segmentPath(m.dir, first)
		if int(first) > keep+1 || int(first) == keep+1 && len(m.events) > keep && first > all[0] {
			os.Remove(path)
			continue
		}
		w, _, err := openSegment(m.dir, first, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := first; int(n) <= keep; n++ {
			if _, err := w.record(); err != nil {
				t.Fatalf("record %d: %v", n, err)
			}
		}
		end := w.off
		cut = path
		if _, err := w.record(); err == nil {
			torn = rapid.IntRange(0, int(w.off-end)-1).Draw(t, "torn")
		}
		w.file.Close()
		if err := os.Truncate(path, end+int64(torn)); err != nil {
			t.Fatal(err)
		}
		break
	}
	m.events, m.places = m.events[:keep], m.places[:keep]
	for i, p := range m.places { // what is there now has survived
		st, err := os.Stat(p.path)
		if err != nil {
			continue // removed for the cap
		}
		size := st.Size()
		if p.path == cut {
			size -= int64(torn)
		}
		m.durable[p.path] = size
		m.places[i].end = min(p.end, size)
	}
	if rec := m.open(t); rec.Torn != int64(torn) || !rec.NewEpoch {
		t.Fatalf("recovered %+v, want %d torn bytes and a new epoch", rec, torn)
	}
	m.reader.Close() // nobody survives a power cut
	m.reader = NewReader(m.dir)
	m.next = m.first(t)
	if err := m.reader.SeekAfter(uint64(m.next) - 1); err != nil {
		t.Fatal(err)
	}
}

// drop lets go of the journal as a death does: nothing is synced any more.
func (m *model) drop() {
	hook(m.j, func(*os.File) error { return nil })
	m.j.Close()
}

// first is the number of the first event kept.
func (m *model) first(t *rapid.T) int {
	b, err := Find(m.dir)
	if errors.Is(err, ErrNoJournal) {
		return 1
	}
	if err != nil {
		t.Fatal(err)
	}
	return int(b.First)
}

// same checks an event against the model.
func (m *model) same(t *rapid.T, e Entry, want int) {
	if int(e.Seq) != want || want > len(m.events) {
		t.Fatalf("event %d came, want %d of %d", e.Seq, want, len(m.events))
	}
	got := ""
	if b, raw := e.Raw(); raw {
		got = string(b)
	} else {
		ev, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		got = string(ev.Data)
	}
	if got != m.events[want-1] {
		t.Fatalf("event %d is %q, want %q", want, got, m.events[want-1])
	}
}

// follow lets the follower read some events.
func (m *model) follow(t *rapid.T) {
	for range rapid.IntRange(0, 10).Draw(t, "steps") {
		e, err := m.reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			if m.next != len(m.events)+1 {
				t.Fatalf("nothing comes, want event %d of %d", m.next, len(m.events))
			}
		case errors.Is(err, ErrExpired):
			first := m.first(t)
			if first <= m.next {
				t.Fatalf("event %d is expired, but %d is kept", m.next, first)
			}
			if err := m.reader.SeekAfter(uint64(first) - 1); err != nil {
				t.Fatal(err)
			}
			m.next = first
		case err != nil:
			t.Fatal(err)
		default:
			m.same(t, e, m.next)
			m.next++
		}
	}
}

func (m *model) locate(t *rapid.T) {
	i := rapid.IntRange(0, len(m.epochs)-1).Draw(t, "epoch")
	seq := rapid.IntRange(0, len(m.events)+3).Draw(t, "seq")
	end := len(m.events)
	if i+1 < len(m.epochs) {
		end = m.epochs[i+1].first - 1
	}
	first := m.first(t)
	err := Locate(m.dir, wire.Pos{Epoch: m.epochs[i].name, Seq: uint64(seq)}, uint64(len(m.events)))
	removed := end < first || end < m.epochs[i].first // perhaps the whole epoch
	var allowed []error
	switch {
	case removed:
		allowed = []error{ErrForeign, ErrExpired, ErrFuture}
		if seq >= first-1 && seq >= m.epochs[i].first-1 && seq <= end {
			allowed = append(allowed, nil)
		}
	case seq > end:
		allowed = []error{ErrFuture}
	case seq < first-1 || seq < m.epochs[i].first-1:
		allowed = []error{ErrExpired}
	default:
		allowed = []error{nil}
	}
	if !slices.ContainsFunc(allowed, func(want error) bool { return errors.Is(err, want) }) {
		t.Fatalf("epoch %d (%d to %d, %d is the first kept), number %d: %v, want one of %v", i, m.epochs[i].first, end, first, seq, err, allowed)
	}
}

// check reads the whole journal.
func (m *model) check(t *rapid.T) {
	if got, want := m.j.Last(), (wire.Pos{Epoch: m.epochs[len(m.epochs)-1].name, Seq: uint64(len(m.events))}); got != want {
		t.Fatalf("the last is %v, want %v", got, want)
	}
	r := NewReader(m.dir)
	defer r.Close()
	n := 1
	if m.cfg.Max > 0 {
		n = m.first(t)
	}
	for ; ; n++ {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		m.same(t, e, n)
	}
	if n != len(m.events)+1 && len(m.events) > 0 {
		t.Fatalf("read up to %d of %d", n-1, len(m.events))
	}
	if m.cfg.Max > 0 {
		if files, err := segments(m.dir); err != nil || len(files) > 1 && sizes(files) > m.cfg.Max+5000 { // a big record may be over
			t.Fatalf("the journal has %d bytes, want at most %d (%v)", sizes(files), m.cfg.Max, err)
		}
	}
}

func sizes(all []segment) (n int64) {
	for _, s := range all {
		n += s.size
	}
	return n
}

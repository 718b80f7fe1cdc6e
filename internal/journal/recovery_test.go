package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

func TestT27ATornTailIsCutAtEveryByte(t *testing.T) {
	for _, c := range []struct {
		name string
		last func(*Journal) error
	}{
		{"of an event", func(j *Journal) error { return j.Append(false, note(6)) }},
		{"of raw output", func(j *Journal) error { return j.AppendRaw(wire.EventOutput, []byte("one\ntwo\n\n{\"seq\":7}\n")) }},
		{"of raw bytes", func(j *Journal) error { return j.AppendRaw(wire.EventOutput, []byte("\xff\n\x00\n")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t)
			j, _ := open(t, dir, Config{})
			add(t, j, 5)
			epoch := j.Last().Epoch
			before := len(content(t, lastFile(t, dir)))
			if err := c.last(j); err != nil {
				t.Fatal(err)
			}
			j.Close()
			path := lastFile(t, dir)
			full := content(t, path)
			for n := before; n <= len(full); n++ {
				put(t, path, full[:n])
				want := uint64(5)
				if n == len(full) {
					want = 6
				}
				if seqs, _ := whole(t, dir); !slices.Equal(seqs, counted(1, want)) {
					t.Fatalf("cut at %d of %d: read %v", n, len(full), seqs)
				}
				j, rec := open(t, dir, Config{})
				torn := int64(n - before)
				if want == 6 {
					torn = 0
				}
				if rec.Torn != torn || rec.NewEpoch || rec.Damaged {
					t.Errorf("cut at %d: recovered %+v, want %d torn bytes", n, rec, torn)
				}
				if got, want := j.Last(), (wire.Pos{Epoch: epoch, Seq: want}); got != want {
					t.Errorf("cut at %d: the last is %v, want %v", n, got, want)
				}
				add(t, j, 2)
				j.Close()
				seqs, events := whole(t, dir)
				if !slices.Equal(seqs, counted(1, want+2)) {
					t.Fatalf("cut at %d: then read %v", n, seqs)
				}
				if got, want := noteText(t, events[want]), fmt.Sprintf("note %d", want+1); got != want {
					t.Errorf("cut at %d: event %q, want %q", n, got, want)
				}
			}
		})
	}
}

func TestT27ATornHeaderIsAsIfTheSegmentWasNeverBegun(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{Segment: 1000})
	for len(files(t, dir)) < 3 {
		add(t, j, 1)
	}
	last := j.Last()
	j.Close()
	path := lastFile(t, dir)
	full := content(t, path)
	first, _ := parseName(filepath.Base(path))
	for n := range bytes.IndexByte(full, '\n') + 1 {
		dir := copyJournal(t, dir)
		put(t, filepath.Join(dir, filepath.Base(path)), full[:n])
		j, rec := open(t, dir, Config{Segment: 1000})
		if rec.Torn != int64(n) || rec.Damaged || rec.NewEpoch {
			t.Errorf("%d bytes of it: recovered %+v", n, rec)
		}
		if got, want := j.Last(), (wire.Pos{Epoch: last.Epoch, Seq: first - 1}); got != want {
			t.Errorf("%d bytes of it: the last is %v, want %v", n, got, want)
		}
		add(t, j, 5)
		if seqs, _ := whole(t, dir); !slices.Equal(seqs, counted(1, first+4)) {
			t.Errorf("%d bytes of it: then read %v", n, seqs)
		}
		j.Close()
	}
	// The first of all.
	dir = folder(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, segmentPath(dir, 1), full[:20])
	j, rec := open(t, dir, Config{})
	if rec.Torn != 20 || j.Last().Seq != 0 {
		t.Errorf("recovered %+v with the last %v", rec, j.Last())
	}
}

func TestDamageIsCutOffAndItsNumbersAreGivenAgainInANewEpoch(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{Segment: 1500})
	for len(files(t, dir)) < 2 {
		add(t, j, 1)
	}
	add(t, j, 2)
	if err := j.AppendRaw(wire.EventOutput, []byte("abc\n")); err != nil {
		t.Fatal(err)
	}
	add(t, j, 2)
	last := j.Last()
	j.Close()
	path := lastFile(t, dir)
	first, _ := parseName(filepath.Base(path))
	header := bytes.IndexByte(content(t, path), '\n')
	for _, c := range []struct {
		name   string
		damage func(b []byte) []byte
		kept   uint64
	}{
		{"garbage behind the last", func(b []byte) []byte { return append(b, "garbage\n"...) }, last.Seq},
		{"zeros behind the last", func(b []byte) []byte { return append(b, "\x00\x00\n"...) }, last.Seq},
		{"a record broken", func(b []byte) []byte {
			return bytes.Replace(b, fmt.Appendf(nil, `{"seq":%d,"time"`, last.Seq-1), fmt.Appendf(nil, `{"seq":%d,"tome"`, last.Seq-1), 1)
		}, last.Seq - 2},
		{"a record missing", func(b []byte) []byte {
			from := bytes.Index(b, fmt.Appendf(nil, `{"seq":%d,`, last.Seq-1))
			to := bytes.Index(b, fmt.Appendf(nil, `{"seq":%d,`, last.Seq))
			return slices.Delete(b, from, to)
		}, last.Seq - 2},
		{"a length too small", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"raw":4,"type":"output","lines":1`), []byte(`"raw":2,"type":"output","lines":1`), 1)
		}, last.Seq - 3},
		{"the first record broken", func(b []byte) []byte { b[header+2] = 'x'; return b }, first - 1},
		{"the header broken", func(b []byte) []byte { b[2] = 'x'; return b }, first - 1},
		{"the header of another segment", func(b []byte) []byte {
			return bytes.Replace(b, fmt.Appendf(nil, `"first":%d`, first), fmt.Appendf(nil, `"first":%d`, first+1), 1)
		}, first - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyJournal(t, dir)
			damageIsCutOff(t, dir, last, c.kept, func() { rot(t, filepath.Join(dir, filepath.Base(path)), c.damage) })
		})
	}
}

// damageIsCutOff damages a journal so that the events up to kept are left, and
// checks what follows.
func damageIsCutOff(t *testing.T, dir string, last wire.Pos, kept uint64, damage func()) {
	follower := NewReader(dir)
	defer follower.Close()
	all(t, follower) // somebody has seen everything
	damage()

	j, rec := open(t, dir, Config{Segment: 1500})
	if !rec.Damaged || rec.NewEpoch || rec.Torn == 0 {
		t.Errorf("recovered %+v, want damage", rec)
	}
	if got := j.Last(); got.Seq != kept || got.Epoch == last.Epoch {
		t.Errorf("the last is %v, want %d in another epoch than %s", got, kept, last.Epoch)
	}
	add(t, j, 3)
	if seqs, _ := whole(t, dir); !slices.Equal(seqs, counted(1, kept+3)) {
		t.Errorf("read %v, want 1 to %d", seqs, kept+3)
	}
	if seqs, _ := all(t, follower); !slices.Equal(seqs, counted(kept+1, kept+3)) {
		t.Errorf("who followed sees %v, want %d to %d", seqs, kept+1, kept+3)
	}
	if follower.Epoch() != j.Last().Epoch {
		t.Errorf("in epoch %q, want %q", follower.Epoch(), j.Last().Epoch)
	}
	for seq, want := range map[uint64]error{kept: nil, kept + 1: ErrFuture} {
		if err := Locate(dir, wire.Pos{Epoch: last.Epoch, Seq: seq}, kept+3); !errors.Is(err, want) {
			t.Errorf("the old position %d: %v, want %v", seq, err, want)
		}
	}
}

// rot changes a file's content in place, as bits rot.
func rot(t *testing.T, path string, change func([]byte) []byte) {
	b := change(content(t, path))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedHeadersSegmentIsMovedAside(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	add(t, j, 5)
	j.Close()
	path := lastFile(t, dir)
	rot(t, path, func(b []byte) []byte { b[0] = 'x'; return b })
	was := content(t, path)
	open(t, dir, Config{})
	if got := content(t, path+".damaged"); !bytes.Equal(got, was) {
		t.Errorf("%d bytes are kept of %d", len(got), len(was))
	}
}

// remembering is a Memory that adds up the numbers of all events. What it is
// told twice it counts once.
type remembering struct {
	Last     uint64 `json:"last"`
	Sum      uint64 `json:"sum"`
	restored int
	replayed []uint64
}

func (m *remembering) count(seq uint64) {
	if seq > m.Last {
		m.Last = seq
		m.Sum += seq
	}
}

func (m *remembering) Save() any { return *m }

func (m *remembering) Restore(checkpoint jsontext.Value) {
	m.restored++
	if err := json.Unmarshal(checkpoint, m); err != nil {
		panic(err)
	}
}

func (m *remembering) Replay(e Entry) {
	m.replayed = append(m.replayed, e.Seq)
	m.count(e.Seq)
	if ev, err := e.Event(); err != nil || ev.Instance != instance {
		panic(fmt.Sprintf("replayed %v, %v", ev, err))
	}
}

func TestMemoryIsKeptThroughRotationsRestartsAndBoots(t *testing.T) {
	dir := folder(t)
	want := remembering{}
	for round := range 12 {
		m := &remembering{}
		j, _ := open(t, dir, Config{Segment: 1200, Memory: m, Boot: fmt.Sprint(round / 4)})
		if m.Sum != want.Sum || m.Last != want.Last {
			t.Fatalf("round %d: remembers %d up to %d, want %d up to %d", round, m.Sum, m.Last, want.Sum, want.Last)
		}
		if round > 0 && m.restored != 1 {
			t.Errorf("round %d: restored %d times", round, m.restored)
		}
		if len(m.replayed) > 12 {
			t.Errorf("round %d: %d events were replayed, more than a segment has", round, len(m.replayed))
		}
		for range round * 3 {
			n := j.Last().Seq + 1
			m.count(n) // before it is appended: a segment that begins with it knows it
			want.count(n)
			var err error
			if n%2 == 0 {
				err = j.AppendRaw(wire.EventOutput, []byte(strings.Repeat("x", int(n))))
			} else {
				err = j.Append(false, note(int(n)))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		j.Close()
	}
}

func TestMemoryOfALostEventIsForgottenWithIt(t *testing.T) {
	dir := folder(t)
	m := &remembering{}
	j, _ := open(t, dir, Config{Memory: m})
	for n := range uint64(5) {
		m.count(n + 1)
		add(t, j, 1)
	}
	j.Close()
	path := lastFile(t, dir)
	put(t, path, content(t, path)[:len(content(t, path))-1])
	m = &remembering{}
	open(t, dir, Config{Memory: m})
	if m.Sum != 1+2+3+4 {
		t.Errorf("remembers %d, want %d", m.Sum, 1+2+3+4)
	}
}

package journal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/castctl/castctl/wire"
)

func TestAnotherBootBeginsAnEpoch(t *testing.T) {
	dir := folder(t)
	j, rec := open(t, dir, Config{Boot: "a"})
	if rec.NewEpoch {
		t.Error("a new journal says that the machine was booted")
	}
	add(t, j, 3)
	first := j.Last()
	j.Close()

	j, rec = open(t, dir, Config{Boot: "a"})
	if rec.NewEpoch || j.Last() != first {
		t.Errorf("the same boot: recovered %+v, the last is %v, want %v", rec, j.Last(), first)
	}
	j.Close()

	j, rec = open(t, dir, Config{Boot: "b"})
	if !rec.NewEpoch || rec.Damaged || rec.Torn != 0 {
		t.Errorf("another boot: recovered %+v", rec)
	}
	if got := j.Last(); got.Seq != 3 || got.Epoch == first.Epoch {
		t.Errorf("the last is %v, want 3 in another epoch than %s", got, first.Epoch)
	}
	add(t, j, 2)
	r := NewReader(dir)
	defer r.Close()
	for n := range uint64(5) {
		e, err := r.Next()
		if err != nil || e.Seq != n+1 {
			t.Fatalf("event %d, %v; want %d", e.Seq, err, n+1)
		}
		if want := n < 3; (r.Epoch() == first.Epoch) != want {
			t.Errorf("event %d is in epoch %q", e.Seq, r.Epoch())
		}
	}
}

// threeEpochs is a journal of the epochs a (1 to 30, of which a power cut took
// all beyond 25), b (26 to 40) and c (from 41), in segments of a few events.
func threeEpochs(t *testing.T) (dir string, names map[string]string) {
	dir, names = folder(t), map[string]string{}
	for _, e := range []struct {
		boot        string
		events, cut int
	}{{"a", 30, 25}, {"b", 15, 40}, {"c", 0, 40}} {
		j, _ := open(t, dir, Config{Boot: e.boot, Segment: 1200})
		add(t, j, e.events)
		names[e.boot] = j.Last().Epoch
		j.Close()
		cutBehind(t, dir, uint64(e.cut))
	}
	return dir, names
}

func TestLocate(t *testing.T) {
	dir, epochs := threeEpochs(t)
	check := func(t *testing.T, dir string, last uint64, cases []located) {
		t.Helper()
		for _, c := range cases {
			epoch := epochs[c.epoch]
			if epoch == "" {
				epoch = c.epoch
			}
			if err := Locate(dir, wire.Pos{Epoch: epoch, Seq: c.seq}, last); !errors.Is(err, c.want) {
				t.Errorf("%s:%d: %v, want %v", c.epoch, c.seq, err, c.want)
			}
		}
	}
	t.Run("all is kept", func(t *testing.T) {
		check(t, dir, 40, []located{
			{"a", 0, nil},
			{"a", 13, nil},
			{"a", 25, nil},
			{"a", 26, ErrFuture}, // b's now
			{"a", 30, ErrFuture},
			{"b", 25, nil}, // where it began
			{"b", 26, nil},
			{"b", 40, nil},
			{"b", 41, ErrFuture},
			{"b", 7, ErrExpired}, // never given out
			{"c", 40, nil},
			{"c", 41, ErrFuture},
			{"foreign", 7, ErrForeign},
			{"", 7, ErrForeign},
		})
	})
	t.Run("the oldest are removed", func(t *testing.T) {
		dir := copyJournal(t, dir)
		for range 2 {
			os.Remove(files(t, dir)[0])
		}
		b, err := Find(dir)
		if err != nil || b.First < 3 || b.First > 20 || b.Last != (wire.Pos{Epoch: epochs["c"], Seq: 40}) {
			t.Fatalf("bounds %+v, %v", b, err)
		}
		check(t, dir, 40, []located{
			{"a", 0, ErrExpired},
			{"a", b.First - 2, ErrExpired},
			{"a", b.First - 1, nil},
			{"a", 25, nil},
			{"b", 40, nil},
		})
	})
	t.Run("an epoch is removed", func(t *testing.T) {
		dir := copyJournal(t, dir)
		for _, path := range files(t, dir) {
			if first, _ := parseName(filepath.Base(path)); first < 26 {
				os.Remove(path)
			}
		}
		check(t, dir, 40, []located{{"a", 25, ErrForeign}, {"b", 25, nil}, {"b", 40, nil}, {"c", 40, nil}})
	})
	t.Run("a header in the middle of an epoch is damaged", func(t *testing.T) {
		dir := copyJournal(t, dir)
		rot(t, files(t, dir)[1], func(b []byte) []byte { b[0] = 'x'; return b })
		check(t, dir, 40, []located{{"a", 1, nil}, {"a", 25, nil}, {"a", 26, ErrFuture}, {"c", 40, nil}})
	})
}

type located struct {
	epoch string
	seq   uint64
	want  error
}

// cutBehind takes all events behind one, as a power cut does.
func cutBehind(t testing.TB, dir string, seq uint64) {
	t.Helper()
	for _, path := range slices.Backward(files(t, dir)) {
		first, _ := parseName(filepath.Base(path))
		if first > seq+1 {
			os.Remove(path)
			continue
		}
		w, _, err := openSegment(dir, first, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer w.file.Close()
		for n := first; n <= seq; n++ {
			if _, err := w.record(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Truncate(path, w.off); err != nil {
			t.Fatal(err)
		}
		return
	}
}

func TestAnEpochWithoutEventsLeavesNothingBehind(t *testing.T) {
	dir := folder(t)
	for _, boot := range []string{"a", "b", "c", "d"} {
		j, rec := open(t, dir, Config{Boot: boot, Max: 256 << 10})
		if rec.Torn != 0 {
			t.Errorf("recovered %+v", rec)
		}
		j.Close()
	}
	j, _ := open(t, dir, Config{Boot: "e", Max: 256 << 10})
	if n := len(files(t, dir)); n != 1 {
		t.Errorf("%d segments, want 1", n)
	}
	if n := len(j.closed); n != 0 {
		t.Errorf("%d finished segments are counted, want none", n)
	}
	// The cap must not take the segment that is being written.
	for range 100 {
		if err := j.AppendRaw(wire.EventOutput, make([]byte, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Find(dir)
	if err != nil || b.Last != j.Last() {
		t.Errorf("bounds %+v, %v; the last is %v", b, err, j.Last())
	}
	if seqs, _ := whole(t, dir); !slices.Equal(seqs, counted(b.First, 100)) {
		t.Errorf("read %v, want %d to 100", seqs, b.First)
	}
}

package journal

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/castctl/castctl/wire"
)

func TestReadersNeedNoJournal(t *testing.T) {
	dir := folder(t)
	r := NewReader(dir)
	defer r.Close()
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("Next: %v, want %v", err, io.EOF)
	}
	if _, err := Find(dir); !errors.Is(err, ErrNoJournal) {
		t.Errorf("Find: %v, want %v", err, ErrNoJournal)
	}
	if err := r.SeekAfter(0); err != nil {
		t.Errorf("SeekAfter(0): %v", err)
	}
	if err := r.SeekAfter(5); !errors.Is(err, ErrNoJournal) {
		t.Errorf("SeekAfter(5): %v, want %v", err, ErrNoJournal)
	}
	if err := Locate(dir, wire.Pos{Epoch: "e", Seq: 1}, 0); !errors.Is(err, ErrForeign) {
		t.Errorf("Locate: %v, want %v", err, ErrForeign)
	}
	// The journal may begin later.
	r = NewReader(dir)
	defer r.Close()
	j, _ := open(t, dir, Config{})
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("Next: %v, want %v", err, io.EOF)
	}
	if _, err := Find(dir); !errors.Is(err, ErrNoJournal) {
		t.Errorf("Find without an event: %v, want %v", err, ErrNoJournal)
	}
	add(t, j, 2)
	if seqs, _ := all(t, r); !slices.Equal(seqs, counted(1, 2)) {
		t.Errorf("read %v, want 1 and 2", seqs)
	}
}

func TestAReaderFollows(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{Segment: 1500})
	r := NewReader(dir)
	defer r.Close()
	random := rand.New(rand.NewPCG(5, 6))
	next := uint64(1)
	for range 200 {
		add(t, j, random.IntN(8))
		seqs, _ := all(t, r)
		if !slices.Equal(seqs, counted(next, j.Last().Seq)) {
			t.Fatalf("read %v, want %d to %d", seqs, next, j.Last().Seq)
		}
		next = j.Last().Seq + 1
	}
	if r.Epoch() != j.Last().Epoch {
		t.Errorf("the epoch is %q, want %q", r.Epoch(), j.Last().Epoch)
	}
}

// TestReadersBesideTheWriterSeeEveryEventOnce runs readers as fast as they can
// beside a writer that rotates all the time: whatever instant they look at.
func TestReadersBesideTheWriterSeeEveryEventOnce(t *testing.T) {
	const readers, events = 2, 150
	for range 5 {
		dir := folder(t)
		j, _ := open(t, dir, Config{Segment: 300}) // one or two events each
		var following sync.WaitGroup
		for range readers {
			following.Go(func() {
				if err := followTo(dir, events); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range events {
			var err error
			if i%5 == 0 {
				err = j.AppendRaw(wire.EventOutput, []byte(strings.Repeat("x", i%400)+"\n"))
			} else {
				err = j.Append(false, note(i))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		following.Wait()
	}
}

// followTo reads until the given event, which must come without a gap or a
// double.
func followTo(dir string, last uint64) error {
	r := NewReader(dir)
	defer r.Close()
	for next := uint64(1); next <= last; {
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			runtime.Gosched()
		case err != nil:
			return fmt.Errorf("at %d: %w", next, err)
		case e.Seq != next:
			return fmt.Errorf("%d came, want %d", e.Seq, next)
		default:
			next++
		}
	}
	return nil
}

func TestAReaderThatFellBehindIsToldAndSeesTheRestOnce(t *testing.T) {
	const events = 6_000
	dir := folder(t)
	j, _ := open(t, dir, Config{Segment: 3000, Max: 12_000})
	var following sync.WaitGroup
	var expired, seen int
	following.Go(func() {
		r := NewReader(dir)
		defer r.Close()
		for next := uint64(1); next <= events; {
			e, err := r.Next()
			switch {
			case errors.Is(err, io.EOF):
			case errors.Is(err, ErrExpired):
				expired++
				b, err := Find(dir)
				if err != nil {
					continue
				}
				if b.First < next {
					t.Errorf("expired at %d, but %d is kept", next, b.First)
					return
				}
				if err := r.SeekAfter(b.First - 1); err == nil {
					next = b.First
				} else if !errors.Is(err, ErrExpired) {
					t.Errorf("SeekAfter: %v", err)
					return
				}
			case err != nil:
				t.Errorf("at %d: %v", next, err)
				return
			case e.Seq != next:
				t.Errorf("%d came, want %d", e.Seq, next)
				return
			default:
				next++
				seen++
				if seen%50 == 0 { // now and then it is slow
					for j.Last().Seq < min(events, next+200) {
						runtime.Gosched()
					}
				}
			}
		}
	})
	add(t, j, events)
	following.Wait()
	if expired == 0 || seen == 0 {
		t.Errorf("it expired %d times and saw %d events", expired, seen)
	}
}

func TestSeekAfter(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{Segment: 1500})
	add(t, j, 100)
	for range 2 {
		os.Remove(files(t, dir)[0])
	}
	b, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	for seq := range uint64(110) {
		r := NewReader(dir)
		err := r.SeekAfter(seq)
		switch {
		case seq+1 < b.First:
			if !errors.Is(err, ErrExpired) {
				t.Errorf("after %d: %v, want %v", seq, err, ErrExpired)
			}
		case err != nil:
			t.Errorf("after %d: %v", seq, err)
		default:
			seqs, _ := all(t, r)
			if !slices.Equal(seqs, counted(seq+1, 100)) {
				t.Errorf("after %d came %v", seq, seqs)
			}
		}
		r.Close()
	}
	// One in the future waits for its event.
	r := NewReader(dir)
	defer r.Close()
	if err := r.SeekAfter(105); err != nil {
		t.Fatal(err)
	}
	add(t, j, 8)
	if seqs, _ := all(t, r); !slices.Equal(seqs, counted(106, 108)) {
		t.Errorf("after 105 came %v, want 106 to 108", seqs)
	}
	// After Close it goes on where it was.
	r.Close()
	add(t, j, 3)
	if seqs, _ := all(t, r); !slices.Equal(seqs, counted(109, 111)) {
		t.Errorf("after Close came %v, want 109 to 111", seqs)
	}
}

func TestASegmentThatIsJustBeingBegunIsNotThereYet(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	add(t, j, 10)
	header := content(t, lastFile(t, dir))
	header = header[:slices.Index(header, '\n')]
	next := segmentPath(dir, 11)
	for n := range len(header) + 1 {
		put(t, next, header[:n])
		b, err := Find(dir)
		if err != nil || b.Last != j.Last() {
			t.Fatalf("%d bytes of it: Find says %+v, %v", n, b, err)
		}
		if err := Locate(dir, j.Last(), 10); err != nil {
			t.Fatalf("%d bytes of it: Locate: %v", n, err)
		}
		for seq := range uint64(12) {
			r := NewReader(dir)
			if err := r.SeekAfter(seq); err != nil {
				t.Fatalf("%d bytes of it: SeekAfter(%d): %v", n, seq, err)
			}
			if seqs, _ := all(t, r); !slices.Equal(seqs, counted(seq+1, 10)) {
				t.Fatalf("%d bytes of it: after %d came %v", n, seq, seqs)
			}
			r.Close()
		}
	}
}

func TestOnlySegmentsAreRead(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	add(t, j, 3)
	put(t, filepath.Join(dir, "7.log"), []byte("x"))
	put(t, filepath.Join(dir, "00000000000000000000.log"), []byte("x"))
	put(t, filepath.Join(dir, "00000000000000000009.log.damaged"), []byte("x"))
	put(t, filepath.Join(dir, "99999999999999999999.log"), []byte("x"))
	put(t, filepath.Join(dir, "meta"), []byte("x"))
	if err := os.Mkdir(segmentPath(dir, 8), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(lastFile(t, dir), segmentPath(dir, 12)); err != nil {
		t.Fatal(err)
	}
	if seqs, _ := whole(t, dir); !slices.Equal(seqs, counted(1, 3)) {
		t.Errorf("read %v, want 1 to 3", seqs)
	}
	j.Close()
	j, rec := open(t, dir, Config{})
	if rec.Torn != 0 || j.Last().Seq != 3 {
		t.Errorf("recovered %+v with the last %v", rec, j.Last())
	}
}

// damaged returns a journal of several segments, and their paths.
func damaged(t *testing.T) (dir string, paths []string) {
	dir = folder(t)
	j, _ := open(t, dir, Config{Segment: 1500})
	add(t, j, 40)
	j.Close()
	return dir, files(t, dir)
}

func TestDamageIsPassedOver(t *testing.T) {
	dir, paths := damaged(t)
	first := func(i int) uint64 {
		n, _ := parseName(filepath.Base(paths[i]))
		return n
	}
	for _, c := range []struct {
		name   string
		segmnt int
		damage func(b []byte) []byte
		lost   func() (from, to uint64)
	}{
		{
			"zeros at the end of a segment, as a power cut leaves them", 1,
			func(b []byte) []byte { clear(b[len(b)-300:]); return b },
			func() (uint64, uint64) { return first(2) - 2, first(2) - 1 },
		},
		{
			"a segment cut short", 1,
			func(b []byte) []byte { return b[:len(b)-10] },
			func() (uint64, uint64) { return first(2) - 1, first(2) - 1 },
		},
		{
			"garbage in the middle", 2,
			func(b []byte) []byte { copy(b[len(b)/2:], "\nrubbish\n"); return b },
			func() (uint64, uint64) { return 0, first(3) - 1 },
		},
		{
			"a header that cannot be read", 1,
			func(b []byte) []byte { b[3] ^= 0x20; return b },
			func() (uint64, uint64) { return first(1), first(2) - 1 },
		},
		{
			"the first header", 0,
			func(b []byte) []byte { b[3] ^= 0x20; return b },
			func() (uint64, uint64) { return 1, first(1) - 1 },
		},
		{
			"a number out of order", 1,
			func(b []byte) []byte {
				return []byte(strings.Replace(string(b), fmt.Sprintf(`{"seq":%d,`, first(1)+1), fmt.Sprintf(`{"seq":%d,`, first(1)+7), 1))
			},
			func() (uint64, uint64) { return first(1) + 1, first(2) - 1 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyJournal(t, dir)
			path := filepath.Join(dir, filepath.Base(paths[c.segmnt]))
			put(t, path, c.damage(content(t, path)))
			from, to := c.lost()
			seqs, _ := whole(t, dir)
			if from == 0 { // somewhere in the segment
				from = seqs[len(seqs)-1]
				for i, n := range seqs {
					if n != uint64(i)+1 {
						from = uint64(i) + 1
						break
					}
				}
			}
			want := append(counted(1, from-1), counted(to+1, 40)...)
			if !slices.Equal(seqs, want) {
				t.Errorf("read %v, want all but %d to %d", seqs, from, to)
			}
		})
	}
}

func TestDamageInTheLastSegmentIsTold(t *testing.T) {
	dir, paths := damaged(t)
	last := paths[len(paths)-1]
	b := content(t, last)
	copy(b[len(b)-200:], "\nrubbish\n")
	put(t, last, b)
	r := NewReader(dir)
	defer r.Close()
	n := 0
	for {
		_, err := r.Next()
		if err == nil {
			n++
			continue
		}
		if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "at byte") {
			t.Errorf("after %d events: %v, want where the damage is", n, err)
		}
		break
	}
	if bounds, err := Find(dir); err != nil || bounds.Last.Seq != uint64(n) {
		t.Errorf("Find: %+v, %v; %d events can be read", bounds, err, n)
	}
}

func TestAGiantRecordIsReadWhole(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	payload := []byte(strings.Repeat("0123456789abcdef\n", 70_000))
	text := string(payload)
	ev := wire.NewEvent(wire.EventOutput, wire.OutputData{Text: &text, Lines: 70_000})
	for range 2 {
		if err := errors.Join(j.AppendRaw(wire.EventOutput, payload), j.Append(false, &ev), j.Append(false, note(0))); err != nil {
			t.Fatal(err)
		}
	}
	seqs, events := whole(t, dir)
	if !slices.Equal(seqs, counted(1, 6)) {
		t.Fatalf("read %v, want 1 to 6", seqs)
	}
	for _, i := range []int{0, 1, 3, 4} {
		if got := decoded(t, events[i].Data); string(got) != text {
			t.Errorf("event %d came back with %d bytes, want %d", i+1, len(got), len(text))
		}
	}
	r := NewReader(dir)
	defer r.Close()
	all(t, r)
	if n := len(r.w.mem); n > 4*chunk {
		t.Errorf("an idle reader keeps %d bytes", n)
	}
}

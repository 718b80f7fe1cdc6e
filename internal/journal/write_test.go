package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/castctl/castctl/wire"
)

func TestNumbersHaveNoGapThroughRotationAndRestart(t *testing.T) {
	dir := folder(t)
	total := uint64(0)
	for range 4 {
		j, rec := open(t, dir, Config{Segment: 2000})
		if rec != (Recovery{boot: rec.boot}) {
			t.Errorf("a clean end is recovered as %+v", rec)
		}
		for i := range 50 {
			var err error
			if i%3 == 0 {
				err = j.AppendRaw(wire.EventOutput, []byte(strings.Repeat("x", i)+"\n"))
			} else {
				err = j.Append(i%7 == 0, note(i))
			}
			if err != nil {
				t.Fatal(err)
			}
			total++
			if got := j.Last().Seq; got != total {
				t.Fatalf("the last number is %d, want %d", got, total)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	seqs, _ := whole(t, dir)
	if !slices.Equal(seqs, counted(1, total)) {
		t.Errorf("read %v, want 1 to %d", seqs, total)
	}
	if n := len(files(t, dir)); n < 8 {
		t.Errorf("%d segments: nothing was rotated", n)
	}
}

func TestSegmentsEndAtTheirSizeAndAreNamedByTheirFirstEvent(t *testing.T) {
	dir := folder(t)
	const size = 4000
	j, _ := open(t, dir, Config{Segment: size})
	add(t, j, 100)
	if err := j.AppendRaw(wire.EventOutput, make([]byte, 3*size)); err != nil { // larger than a segment
		t.Fatal(err)
	}
	add(t, j, 10)
	next := uint64(1)
	for _, path := range files(t, dir) {
		first, ok := parseName(filepath.Base(path))
		if !ok || first != next {
			t.Errorf("%s: want the first event %d in the name", filepath.Base(path), next)
		}
		w, _, err := openSegment(dir, first, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; ; n++ {
			if _, err := w.record(); err != nil {
				break
			}
		}
		if w.off > size && n > 1 {
			t.Errorf("%s: %d bytes in %d events, want at most %d", filepath.Base(path), w.off, n, size)
		}
		w.file.Close()
		next += uint64(n)
	}
	if next != 112 {
		t.Errorf("the segments hold %d events, want 111", next-1)
	}
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	add(t, j, 1)
	for path, want := range map[string]fs.FileMode{dir: 0o700, lastFile(t, dir): 0o600} {
		in, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := in.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", filepath.Base(path), got, want)
		}
	}
}

// size adds up the journal's files.
func size(t testing.TB, dir string) (n int64) {
	t.Helper()
	for _, path := range files(t, dir) {
		n += int64(len(content(t, path)))
	}
	return n
}

func TestTheCapHoldsAndTheFirstEventIsKnown(t *testing.T) {
	const cap = 400 << 10
	dir := folder(t)
	j, _ := open(t, dir, Config{Max: cap})
	for i := range 3000 {
		if err := j.AppendRaw(wire.EventOutput, []byte(strings.Repeat("x", 500)+"\n")); err != nil {
			t.Fatal(err)
		}
		if i%10 > 0 {
			continue
		}
		if n := size(t, dir); n > cap {
			t.Fatalf("the journal has %d bytes, want at most %d", n, cap)
		}
	}
	b, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	if b.Last != j.Last() || b.First < 2000 || b.First > 2900 {
		t.Errorf("bounds %+v; the last is %v", b, j.Last())
	}
	seqs, _ := whole(t, dir)
	if !slices.Equal(seqs, counted(b.First, b.Last.Seq)) {
		t.Errorf("read %d events from %d on, want %d to %d", len(seqs), seqs[0], b.First, b.Last.Seq)
	}
	r := NewReader(dir)
	defer r.Close()
	if err := r.SeekAfter(b.First - 2); !errors.Is(err, ErrExpired) {
		t.Errorf("before the first: %v, want %v", err, ErrExpired)
	}
	if err := r.SeekAfter(b.First - 1); err != nil {
		t.Errorf("at the first: %v", err)
	}
}

func TestANewCapHoldsFromNowOn(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	line := []byte(strings.Repeat("x", 1000) + "\n")
	fill := func(bytes int) {
		for range bytes / len(line) {
			if err := j.AppendRaw(wire.EventOutput, line); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(3 << 20) // within one segment of 8 MiB
	j.SetMax(512 << 10)
	fill(1 << 20)
	if n := size(t, dir); n > 512<<10 {
		t.Errorf("the journal has %d bytes, want at most %d", n, 512<<10)
	}
	j.SetMax(4 << 20)
	fill(6 << 20)
	if n := size(t, dir); n > 4<<20 || n < 2<<20 {
		t.Errorf("the journal has %d bytes, want up to %d", n, 4<<20)
	}
	seqs, _ := whole(t, dir)
	if !slices.Equal(seqs, counted(seqs[0], j.Last().Seq)) {
		t.Error("the numbers have a gap")
	}
}

func TestASmallerCapHoldsAfterARestart(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{Segment: 10_000})
	add(t, j, 1000)
	j.Close()
	open(t, dir, Config{Segment: 10_000, Max: 40_000})
	if n := size(t, dir); n > 40_000 {
		t.Errorf("the journal has %d bytes, want at most 40000", n)
	}
}

func TestWhatNoReaderCouldReadIsRefused(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	add(t, j, 1)
	for name, ev := range map[string]*wire.Event{
		"no data":       {Type: wire.EventState},
		"several lines": {Type: wire.EventState, Data: []byte("{\n}")},
	} {
		if err := j.Append(false, ev); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
	if err := j.AppendRaw(wire.EventOutput, make([]byte, maxRecord+1)); err == nil {
		t.Error("a giant batch: not refused")
	}
	if err := j.AppendRaw(wire.EventOutput, make([]byte, maxRecord-10)); err == nil {
		t.Error("a batch that is giant with its line: not refused")
	}
	add(t, j, 1)
	if seqs, _ := whole(t, dir); !slices.Equal(seqs, counted(1, 2)) {
		t.Errorf("read %v, want 1 and 2", seqs)
	}
}

func TestManyWritersDoNotMix(t *testing.T) {
	const writers, each = 4, 300
	dir := folder(t)
	j, _ := open(t, dir, Config{Segment: 20_000})
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range each {
				var err error
				switch {
				case w%2 == 0:
					err = j.AppendRaw(wire.EventOutput, fmt.Appendf(nil, "%d %d\n", w, n))
				case n%50 == 0:
					err = j.Append(true, by(w, note(n)))
				default:
					err = j.Append(false, by(w, note(n)))
				}
				if err != nil {
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	all.Wait()
	seqs, events := whole(t, dir)
	if !slices.Equal(seqs, counted(1, writers*each)) {
		t.Fatalf("read %d events, want 1 to %d", len(seqs), writers*each)
	}
	next := [writers]int{}
	for _, ev := range events {
		var w, n int
		if ev.Type == wire.EventOutput {
			fmt.Sscanf(string(decoded(t, ev.Data)), "%d %d", &w, &n)
		} else {
			fmt.Sscanf(*ev.Session, "%d", &w)
			fmt.Sscanf(noteText(t, ev), "note %d", &n)
		}
		if n != next[w] {
			t.Fatalf("writer %d: number %d, want %d", w, n, next[w])
		}
		next[w]++
	}
}

// by names a writer in the event.
func by(w int, ev *wire.Event) *wire.Event {
	named := ev.In(fmt.Sprint(w), "")
	return &named
}

func TestCloseWhileOthersAppend(t *testing.T) {
	for range 20 {
		dir := folder(t)
		j, _ := open(t, dir, Config{Segment: 4000})
		var acknowledged atomic.Int64
		var all sync.WaitGroup
		under := make(chan struct{})
		for w := range 3 {
			all.Go(func() {
				for n := 0; ; n++ {
					if n == 20 && w == 0 {
						close(under)
					}
					var err error
					if w == 0 {
						err = j.AppendRaw(wire.EventOutput, []byte("x\n"))
					} else {
						err = j.Append(w == 1, note(n))
					}
					if errors.Is(err, os.ErrClosed) {
						return
					}
					if err != nil {
						t.Errorf("append: %v", err)
						return
					}
					acknowledged.Add(1)
				}
			})
		}
		<-under
		if err := j.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		all.Wait()
		n := uint64(acknowledged.Load())
		if seqs, _ := whole(t, dir); !slices.Equal(seqs, counted(1, n)) {
			t.Fatalf("read %d events, %d were acknowledged", len(seqs), n)
		}
		if err := errors.Join(j.Close(), j.Sync()); err != nil {
			t.Errorf("Close and Sync after Close: %v", err)
		}
	}
}

func TestOthersAreWokenAtOnceAndADurableAppendWaitsForTheDisk(t *testing.T) {
	dir := folder(t)
	woken := make(chan struct{}, 100)
	j, _ := open(t, dir, Config{Segment: 1000, Grown: func() { woken <- struct{}{} }})
	var mu sync.Mutex // guards synced
	synced := map[string]bool{}
	held := make(chan struct{})
	hook(j, func(f *os.File) error {
		<-held
		mu.Lock()
		defer mu.Unlock()
		synced[f.Name()] = true
		return datasync(f)
	})
	add(t, j, 30) // several segments, not synced
	all := files(t, dir)
	done := make(chan error, 1)
	go func() { done <- j.Append(true, note(31)) }()
	for range 31 {
		select {
		case <-woken:
		case <-time.After(patience):
			t.Fatal("nobody was woken before the disk has it")
		}
	}
	select {
	case err := <-done:
		t.Fatalf("Append has returned before the disk has it: %v", err)
	default:
	}
	close(held)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, path := range all {
		if !synced[path] {
			t.Errorf("%s is not synced although a later event is durable", filepath.Base(path))
		}
	}
}

func TestADurableAppendTellsThatTheDiskFailed(t *testing.T) {
	j, _ := open(t, folder(t), Config{})
	bad := errors.New("input/output error")
	hook(j, func(*os.File) error { return bad })
	if err := j.Append(true, note(1)); !errors.Is(err, bad) {
		t.Errorf("%v, want %v", err, bad)
	}
	hook(j, datasync)
	if err := j.Append(true, note(2)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestEventsAreSyncedWithinATenthOfASecondAndAnIdleJournalHasNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, _, err := Open(folder(t), Config{Instance: instance, Boot: boot})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // its folder is synced
		start := time.Now()
		var after []time.Duration
		hook(j, func(f *os.File) error {
			after = append(after, time.Since(start))
			return datasync(f)
		})
		add(t, j, 3) // after a pause: at once
		synctest.Wait()
		if want := []time.Duration{0}; !slices.Equal(after, want) {
			t.Errorf("synced after %v, want %v", after, want)
		}
		for range 3 { // and then together
			time.Sleep(syncEvery / 10)
			add(t, j, 3)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{0, syncEvery}; !slices.Equal(after, want) {
			t.Errorf("synced after %v, want %v", after, want)
		}
		j.syncer.mu.Lock()
		running := j.syncer.running
		j.syncer.mu.Unlock()
		if running {
			t.Error("an idle journal keeps a goroutine")
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAFragmentThatCannotBeCutOffIsNotWrittenBehind(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	add(t, j, 3)
	file := j.file
	broken, err := os.Open(lastFile(t, dir)) // neither written nor cut
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Close()
	j.file = broken
	if err := j.Append(false, note(4)); err == nil {
		t.Fatal("a failed write is not told")
	}
	// Meanwhile half a record stands there.
	if _, err := file.WriteString(`{"seq":4,"ti`); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(false, note(4)); err == nil {
		t.Fatal("it was written behind a fragment")
	}
	j.file = file
	add(t, j, 2)
	if seqs, _ := whole(t, dir); !slices.Equal(seqs, counted(1, 5)) {
		t.Errorf("read %v, want 1 to 5", seqs)
	}
}

func TestTheLargestNumberIsNoPosition(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	add(t, j, 1)
	r := NewReader(dir)
	defer r.Close()
	if err := r.SeekAfter(math.MaxUint64); !errors.Is(err, ErrFuture) {
		t.Errorf("SeekAfter: %v, want %v", err, ErrFuture)
	}
	if err := Locate(dir, wire.Pos{Epoch: j.Last().Epoch, Seq: math.MaxUint64}, 1); !errors.Is(err, ErrFuture) {
		t.Errorf("Locate: %v, want %v", err, ErrFuture)
	}
}

func TestAWriteGoesOnWhereTheKernelStopped(t *testing.T) {
	parts := [][]byte{[]byte("abc"), []byte("d"), nil, []byte("efgh")}
	const text = "abcdefgh"
	for n := range len(text) + 1 {
		rest := slices.Concat(advance(parts, n)...)
		if string(rest) != text[n:] {
			t.Errorf("after %d bytes %q is left, want %q", n, rest, text[n:])
		}
	}
	if got := slices.Concat(parts...); string(got) != text {
		t.Errorf("the caller's parts are now %q", got)
	}
}

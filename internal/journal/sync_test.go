package journal

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/castctl/castctl/wire"
)

// disk stands for the disk: it notes how much of each file has reached it.
type disk struct {
	mu   sync.Mutex // guards size
	size map[string]int64
}

func (d *disk) sync(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.size == nil {
		d.size = map[string]int64{}
	}
	d.size[f.Name()] = st.Size()
	return nil
}

// has reports whether the disk has all of a file.
func (d *disk) has(t *testing.T, path string) bool {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.size[path] == st.Size()
}

func TestOldEventsAreRemovedOnlyOnceLaterOnesAreDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where nothing is synced by time alone
		dir := folder(t)
		var d disk
		j, _ := open(t, dir, Config{Segment: 1500, Max: 6000})
		hook(j, d.sync)
		removed := 0
		for range 300 {
			if err := j.AppendRaw(wire.EventOutput, make([]byte, 200)); err != nil {
				t.Fatal(err)
			}
			all := files(t, dir)
			if first, _ := parseName(filepath.Base(all[0])); first == 1 {
				continue
			}
			removed++
			if len(all) > 1 && !d.has(t, all[0]) {
				t.Fatalf("%s is the first kept, and was not synced", filepath.Base(all[0]))
			}
		}
		if removed == 0 {
			t.Error("nothing was removed")
		}
		j.Close()
	})
}

func TestWhatAKilledWriterDidNotSyncIsSyncedBeforeAnythingLaterIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := folder(t)
		j, _ := open(t, dir, Config{Segment: 1000})
		hook(j, func(*os.File) error { return nil })
		add(t, j, 40)
		j.Close()
		found := files(t, dir)

		var d disk
		j, _ = open(t, dir, Config{Segment: 1000})
		hook(j, d.sync)
		if err := j.Append(true, note(41)); err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if !d.has(t, path) {
				t.Errorf("%s was not synced", filepath.Base(path))
			}
		}
		j.Close()
	})
}

func TestASegmentIsInItsFolderForSureBeforeItsEventsAreDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := folder(t)
		var d disk
		j, _ := open(t, dir, Config{Segment: 2000})
		hook(j, d.sync)
		begun := 0
		for range 60 {
			before := len(files(t, dir))
			delete(d.size, dir)
			if err := j.Append(true, note(1)); err != nil {
				t.Fatal(err)
			}
			_, synced := d.size[dir]
			made := len(files(t, dir)) > before || j.Last().Seq == 1
			if synced != made {
				t.Errorf("event %d: the folder was synced: %t, a segment was begun: %t", j.Last().Seq, synced, made)
			}
			if made {
				begun++
			}
		}
		if begun < 3 {
			t.Errorf("%d segments were begun", begun)
		}
		j.Close()
	})
}

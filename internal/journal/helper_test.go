package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"github.com/castctl/castctl/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits before it calls something lost.
const patience = 30 * time.Second

const (
	instance = "inst-1"
	boot     = "boot-1"
)

// folder is where a test's journal is; it is not made yet.
func folder(t testing.TB) string { return filepath.Join(t.TempDir(), "journal") }

// open opens a journal and closes it after the test.
func open(t testing.TB, dir string, cfg Config) (*Journal, Recovery) {
	t.Helper()
	if cfg.Instance == "" {
		cfg.Instance = instance
	}
	if cfg.Boot == "" {
		cfg.Boot = boot
	}
	j, rec, err := Open(dir, cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { j.Close() })
	return j, rec
}

// hook puts another function in the place of the sync to disk.
func hook(j *Journal, sync func(*os.File) error) {
	j.syncer.mu.Lock()
	defer j.syncer.mu.Unlock()
	j.syncer.sync = sync
}

// note is a small event that tells its number.
func note(n int) *wire.Event {
	ev := wire.NewEvent(wire.EventNotice, wire.NoticeData{Kind: wire.NoticeGap, Message: fmt.Sprintf("note %d", n)})
	return &ev
}

// noteText is what a note says.
func noteText(t testing.TB, ev wire.Event) string {
	t.Helper()
	var d wire.NoticeData
	if err := json.Unmarshal(ev.Data, &d); err != nil {
		t.Fatal(err)
	}
	return d.Message
}

// add appends notes, each with the number that it will get.
func add(t testing.TB, j *Journal, n int) {
	t.Helper()
	for range n {
		if err := j.Append(false, note(int(j.Last().Seq)+1)); err != nil {
			t.Fatal(err)
		}
	}
}

// all reads a journal from where the reader stands to its end.
func all(t testing.TB, r *Reader) (seqs []uint64, events []wire.Event) {
	t.Helper()
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return seqs, events
		}
		if err != nil {
			t.Fatalf("Next after %d events: %v", len(seqs), err)
		}
		ev, err := e.Event()
		if err != nil {
			t.Fatalf("event %d: %v", e.Seq, err)
		}
		seqs, events = append(seqs, e.Seq), append(events, ev)
	}
}

// whole reads a whole journal.
func whole(t testing.TB, dir string) ([]uint64, []wire.Event) {
	t.Helper()
	r := NewReader(dir)
	defer r.Close()
	return all(t, r)
}

// counted is first, first+1, … last.
func counted(first, last uint64) []uint64 {
	var out []uint64
	for n := first; n <= last; n++ {
		out = append(out, n)
	}
	return out
}

// files lists the names of the journal's segments.
func files(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// lastFile is the newest segment.
func lastFile(t testing.TB, dir string) string {
	t.Helper()
	all := files(t, dir)
	if len(all) == 0 {
		t.Fatal("there is no segment")
	}
	return all[len(all)-1]
}

func content(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyJournal copies the segments to a folder of its own.
func copyJournal(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "journal")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range files(t, dir) {
		put(t, filepath.Join(to, filepath.Base(path)), content(t, path))
	}
	return to
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/castctl/castctl/wire"
)

// TestJournalsOfAHome (9.5): when all journals together are too long, the
// longest lose their oldest events, of a living instance and of a stopped one;
// a short one keeps everything, and what is left is without gaps.
func TestJournalsOfAHome(t *testing.T) {
	w := newWorld(t)
	const allowed, segment = 4 << 20, 1 << 20
	w.env = append(w.env, fmt.Sprint("CAST_JOURNALS_MAX=", allowed))
	fleet := filepath.Join(w.base, "cast.toml")
	one := `
		[[instance]]
		name = %q
		argv = ["sh", "-c", "head -c %d /dev/zero | tr '\\0' 'x' | fold -w 99; echo done; exec sleep 100000"]
		journal_max = "16MiB"
	`
	writeFile(t, fleet, fmt.Sprintf(one+one+one, "living", 8<<20, "ended", 8<<20, "short", 1000))
	w.must("apply", "-f", fleet)
	for _, name := range []string{"living", "ended", "short"} {
		until(t, name+" has written all", func() bool { return w.journalHolds(name, "done\n") })
	}
	w.must("stop", "ended")
	until(t, "all journals fit", func() bool {
		w.must("sweep")
		return w.journalBytes() <= allowed+2*2*segment // the open segments, and room for the next
	})
	for _, name := range []string{"living", "ended", "short"} {
		evs := w.events(name)
		if whole := evs[0].Seq == 1; whole != (name == "short") {
			t.Errorf("%s begins with event %d", name, evs[0].Seq)
		}
		for i, ev := range evs {
			if ev.Seq != evs[0].Seq+uint64(i) {
				t.Fatalf("%s: event %d follows %d", name, ev.Seq, evs[i-1].Seq)
			}
		}
	}
	if in := w.instance("living"); in.State != wire.Running {
		t.Errorf("living is %s", in.State)
	}
}

func (w *world) journalHolds(name, text string) bool {
	out := w.must("logs", name)
	return len(out) >= len(text) && out[len(out)-len(text):] == text
}

// journalBytes is what all journals of the home take.
func (w *world) journalBytes() (total int64) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.home, "instances", "*", "journal", "*.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			total += st.Size()
		}
	}
	return total
}

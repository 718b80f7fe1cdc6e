package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/castctl/castctl/wire"
)

// TestFiftyFirstCommands (P1, T09): fifty concurrent first commands in a fresh
// home make one supervisor, and all succeed.
func TestFiftyFirstCommands(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if r := w.cast("start", fmt.Sprintf("s%02d", i), "--", "sleep", "100000"); r.code != 0 {
				t.Errorf("start s%02d: exit code %d: %s", i, r.code, r.stderr)
			}
		})
	}
	wg.Wait()
	if n := w.supervisors(); n != 1 {
		t.Errorf("%d supervisors live, want 1", n)
	}
	st := w.status()
	if len(st.Instances) != 50 {
		t.Errorf("%d instances, want 50", len(st.Instances))
	}
	for _, in := range st.Instances {
		if in.State != wire.Running || in.Run != 1 {
			t.Errorf("%s is %s in run %d", in.Name, in.State, in.Run)
		}
	}
}

// TestOneNameTwentyTimes (T09): the same start twenty times at once is one
// instance and twenty successes; another command under that name is a conflict.
func TestOneNameTwentyTimes(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if r := w.cast("start", "same", "--", "sleep", "100000"); r.code != 0 {
				t.Errorf("exit code %d: %s", r.code, r.stderr)
			}
		})
	}
	wg.Wait()
	if in := w.instance("same"); in.State != wire.Running || in.Run != 1 {
		t.Errorf("it is %s in run %d", in.State, in.Run)
	}
	if n := w.count("sleep 100000"); n != 1 {
		t.Errorf("%d agents live, want 1", n)
	}
	if line := w.refused(exitRefused, "start", "same", "--", "sleep", "5"); !strings.Contains(line, "another spec") {
		t.Errorf("the refusal does not say why: %s", line)
	}
}

// count counts the world's processes whose command line begins so.
func (w *world) count(prefix string) int {
	n := 0
	for _, id := range w.processes() {
		if strings.HasPrefix(commandLine(id.PID), prefix) {
			n++
		}
	}
	return n
}

// TestTwoHomes: two homes side by side never touch each other.
func TestTwoHomes(t *testing.T) {
	a, b := newWorld(t), newWorld(t)
	a.must("start", "x", "--", "sleep", "100000")
	b.must("start", "x", "--", "sleep", "100000")
	before := b.instance("x")
	a.must("stop", "x")
	a.must("down", "--all")
	after := b.instance("x")
	if after.State != wire.Running || *after.PID != *before.PID {
		t.Errorf("the other home's instance is %s with pid %v, was %v", after.State, after.PID, before.PID)
	}
}

// TestHomeReplaced: a home that is removed or replaced under a running
// supervisor never ends in two writers.
func TestHomeReplaced(t *testing.T) {
	for _, name := range []string{"removed", "replaced"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must("sweep")
			old, _ := w.supervisor()
			away := w.home + ".away"
			if err := os.Rename(w.home, away); err != nil {
				t.Fatal(err)
			}
			if name == "replaced" {
				w.must("start", "x", "--", "sleep", "100000") // a new home, a new supervisor
				now, ok := w.supervisor()
				if !ok || now.PID == old.PID {
					t.Fatalf("supervisor %d is in charge of the new home, alive: %v", now.PID, ok)
				}
			}
			// The old one finds out at its next look, which a person can hasten: its
			// door is still open under the old path.
			moved := *w
			moved.home = away
			r := moved.castWith("", []string{"CAST_HOME=" + away}, "sweep")
			t.Logf("old door: %d %s", r.code, r.stderr)
			awaitGone(t, old)
			if _, err := os.Lstat(filepath.Join(w.home, "registry.db")); name == "removed" && err == nil {
				t.Error("the old supervisor wrote into the removed home")
			}
			r = moved.castWith("", []string{"CAST_HOME=" + away}, "down", "--all")
			if r.code != 0 {
				t.Errorf("down: %s", r.stderr)
			}
		})
	}
}

// TestBadHome: a home that others could reach is refused with the reason, before
// anything is changed.
func TestBadHome(t *testing.T) {
	for name, tc := range map[string]struct {
		make func(path string) error
		says string
	}{
		"mode":      {func(p string) error { return os.Mkdir(p, 0o755) }, "mode is 0755"},
		"symlink":   {func(p string) error { return os.Symlink(filepath.Dir(p), p) }, "symbolic link"},
		"file":      {func(p string) error { return os.WriteFile(p, nil, 0o600) }, "not a directory"},
		"no parent": {func(p string) error { return os.Mkdir(p+"x", 0o700) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if err := tc.make(w.home); err != nil {
				t.Fatal(err)
			}
			if name == "no parent" {
				w.env = append(w.env, "CAST_HOME="+filepath.Join(w.home, "a", "b"))
				tc.says = "no such file"
			}
			line := w.refused(exitUnable, "start", "x", "--", "true")
			if !strings.Contains(line, tc.says) {
				t.Errorf("it says %q, not %q", line, tc.says)
			}
			os.RemoveAll(w.home)
		})
	}
}

// TestModes (A26): everything in a home is private, whatever the umask.
func TestModes(t *testing.T) {
	w := newWorld(t)
	cmd := w.command("start", "demo")
	cmd.Path = "/bin/sh"
	cmd.Args = []string{"sh", "-c", "umask 000; exec " + filepath.Join(programs, "castctl") + " start demo"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.must("send", "demo", `{"op":"event_create","event_id":"e","question":"?"}`)
	err := filepath.WalkDir(w.home, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		in, err := d.Info()
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if in.Mode().Perm() != want {
			t.Errorf("%s has mode %04o", path, in.Mode().Perm())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestReadersStartNothing (P2): commands that only read, and stop, start no
// supervisor.
func TestReadersStartNothing(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{{"status"}, {"orphans"}, {"orphans", "--all"}, {"version"}, {"stop", "--all"}, {"down", "--all"}, {"events"}} {
		w.must(args...)
	}
	if r := w.cast("doctor"); r.code != exitDone && r.code != exitRefused { // refused: something of this machine
		t.Errorf("doctor: exit code %d: %s", r.code, r.stderr)
	}
	for _, args := range [][]string{{"status", "x"}, {"logs", "x"}, {"get", "x"}, {"events", "x"}, {"stop", "x"}} {
		w.refused(exitRefused, args...)
	}
	if n := w.supervisors(); n != 0 {
		t.Errorf("%d supervisors were started by looking", n)
	}
	if _, err := os.Lstat(w.home); err == nil {
		t.Error("a home was made by looking")
	}
}

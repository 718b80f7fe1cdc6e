package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/castctl/castctl/wire"
)

// fleetOfThree is a running instance, a stopped one and a finished one.
func fleetOfThree(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.must("start", "runs", "--", "sleep", "100000")
	w.must("start", "stopped", "--stop-timeout", "3s", "--", "sleep", "100000")
	w.must("stop", "stopped")
	w.must("start", "finished", "--restart", "never", "--", "true")
	w.waitState("finished", wire.Finished)
	return w
}

// checkThree verifies that nothing of the three is lost, and that the running
// agent never noticed.
func (w *world) checkThree(pid int) {
	w.t.Helper()
	in := w.waitState("runs", wire.Running)
	if *in.PID != pid {
		w.t.Errorf("the running agent is process %d, was %d", *in.PID, pid)
	}
	if in := w.instance("stopped"); in.State != wire.Stopped {
		w.t.Errorf("the stopped one is %s", in.State)
	}
	if in := w.instance("finished"); in.State != wire.Finished {
		w.t.Errorf("the finished one is %s", in.State)
	}
	if out := w.must("get", "stopped"); !strings.Contains(out, `"stop_timeout_ms": 3000`) {
		w.t.Errorf("the stopped one lost its spec: %s", out)
	}
	if n := w.count("sleep 100000"); n != 1 {
		w.t.Errorf("%d agents live, want 1", n)
	}
}

// TestDamagedRegistry (T27, K17): each kind of damage is said in a clear
// sentence, the file is kept aside, nothing is lost, and no agent notices.
func TestDamagedRegistry(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty":     func(p string) error { return os.Truncate(p, 0) },
		"one page":  func(p string) error { return os.Truncate(p, 4096) },
		"truncated": func(p string) error { return os.Truncate(p, 12<<10) },
		"garbage":   func(p string) error { return os.WriteFile(p, randomBytes(64<<10), 0o600) },
		"text":      func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("not a database\n", 1000)), 0o600) },
		"torn pages": func(p string) error {
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt(randomBytes(16<<10), 8<<10)
			return err
		},
		"missing":     os.Remove,
		"all missing": func(p string) error { return firstError(os.Remove(p), os.Remove(p+".id")) },
		"a directory": func(p string) error { return firstError(os.Remove(p), os.Mkdir(p, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fleetOfThree(t)
			pid := *w.instance("runs").PID
			w.killSupervisor() // an unclean end
			if err := damage(filepath.Join(w.home, "registry.db")); err != nil {
				t.Fatal(err)
			}
			w.checkThree(pid) // without a supervisor
			w.must("sweep")
			w.checkThree(pid)
			if !strings.Contains(w.must("events"), "the registry was lost; it was rebuilt with 3 instances") {
				t.Error("the rebuilding is not said aloud")
			}
			aside, _ := filepath.Glob(filepath.Join(w.home, "registry.db.damaged-*"))
			if missing := strings.Contains(name, "missing"); missing != (len(aside) == 0) {
				t.Errorf("kept aside: %v", aside)
			}
			w.must("stop", "runs")
			w.must("start", "runs") // its environment was kept too
			w.must("down")
			w.must("sweep")
			if out := w.must("get", "stopped"); !strings.Contains(out, `"stop_timeout_ms": 3000`) {
				t.Errorf("after another start: %s", out)
			}
		})
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestLockedRegistry: a registry that another process has open is a clear
// refusal in bounded time, agents go on, and afterwards all is well.
func TestLockedRegistry(t *testing.T) {
	w := fleetOfThree(t)
	pid := *w.instance("runs").PID
	w.must("down")
	db, err := bolt.Open(filepath.Join(w.home, "registry.db"), 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	line := w.refused(exitUnable, "sweep")
	if !strings.Contains(line, "open in another process") {
		t.Errorf("it says: %s", line)
	}
	w.checkThree(pid)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	w.must("sweep")
	w.checkThree(pid)
}

// TestNewerRegistry: a registry of a newer version is left exactly as it is.
func TestNewerRegistry(t *testing.T) {
	w := fleetOfThree(t)
	pid := *w.instance("runs").PID
	w.must("down")
	path := filepath.Join(w.home, "registry.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("schema"), []byte{0, 0, 0, 0, 0, 0, 0, 99})
	})
	if err := firstError(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := w.refused(exitUnable, "sweep")
	if !strings.Contains(line, "newer version") || !strings.Contains(line, "99") {
		t.Errorf("it says: %s", line)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed: %v", err)
	}
	w.checkThree(pid)
	db, err = bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("schema"), []byte{0, 0, 0, 0, 0, 0, 0, 1})
	})
	if err := firstError(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	w.must("sweep")
	w.checkThree(pid)
}

// TestUnreadableSpec: an instance folder that cannot be understood hides nobody
// else.
func TestUnreadableSpec(t *testing.T) {
	w := fleetOfThree(t)
	pid := *w.instance("runs").PID
	w.must("down")
	stray := filepath.Join(w.home, "instances", "0123456789abcdef")
	if err := firstError(os.Mkdir(stray, 0o700), os.WriteFile(filepath.Join(stray, "instance.json"), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	w.checkThree(pid)
	w.must("sweep")
	w.checkThree(pid)
}

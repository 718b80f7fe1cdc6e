package lease

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/castctl/castctl/internal/proc"
)

// TestLockOutlivesItsTaker: a child that inherited the lock holds it when its
// parent has given it up.
func TestLockOutlivesItsTaker(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	lock, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	child, err := proc.Start(proc.Command{Path: sleep, Argv: []string{"sleep", "1000"}, Files: []*os.File{nil, nil, nil, lock.File()}})
	if err != nil {
		t.Fatal(err)
	}
	lock.Release()
	if s, err := Probe(path); err != nil || !s.Held {
		t.Errorf("while the child lives: %+v, %v", s, err)
	}
	if _, err := Acquire(path); !errors.Is(err, ErrHeld) {
		t.Errorf("acquire while the child lives: %v", err)
	}
	child.Signal(9)
	if _, err := child.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s, err := Probe(path); err != nil || s.Held {
		t.Errorf("after its death: %+v, %v", s, err)
	}
}

// TestProbersDoNotDisturb: many probers never see each other, and never keep a
// taker from the lock.
func TestProbersDoNotDisturb(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	first, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	first.Release()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if s, err := Probe(path); err != nil || s.Held {
					t.Errorf("a free lock looks held: %+v, %v", s, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for range 8 {
		wg.Go(func() {
			for range 200 {
				Probe(path)
			}
		})
	}
	for range 200 {
		l, err := Acquire(path)
		if err != nil {
			t.Errorf("probers kept a taker away: %v", err)
			break
		}
		l.Release()
	}
	wg.Wait()
}

// TestWaitersTakeTurns: of many that wait, each gets the lock, alone.
func TestWaitersTakeTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	var inside atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			l, err := AcquireWait(context.Background(), path)
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d are inside", n)
			}
			inside.Add(-1)
			l.Release()
		})
	}
	wg.Wait()
}

// TestLockOfAReplacedFile: a lock whose file was replaced excludes nobody any
// more, and its holder can tell.
func TestLockOfAReplacedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	old, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if !old.Current() {
		t.Error("a fresh lock is not current")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if old.Current() {
		t.Error("the lock of a removed file is current")
	}
	now, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if old.Current() || !now.Current() {
		t.Errorf("current: old %v, new %v", old.Current(), now.Current())
	}
}

// TestInherit: only the lock that was really taken is believed.
func TestInherit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.lock")
	lock, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	same, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Inherit(same, path); err != nil {
		t.Errorf("the held file: %v", err)
	}
	other, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Inherit(other, path); err == nil {
		t.Error("another file was taken for the lock")
	}
	lock.Release()
	again, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Inherit(again, path); err == nil {
		t.Error("a free lock was taken for a held one")
	}
}

//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/castctl/castctl/wire"
)

// smallDisk gives a world whose home lies on a file system of that size.
func smallDisk(t *testing.T, size string) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir := shortTempDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Fatal(err)
	}
	// Unmounted after the world has ended: cleanups run last in, first out.
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
			unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	w := newWorld(t)
	w.home = filepath.Join(dir, "home")
	w.env = append(w.env, "CAST_HOME="+w.home)
	return w
}

// fill writes until nothing more fits, and returns how to make room again.
func (w *world) fill() (free func()) {
	w.t.Helper()
	path := filepath.Join(filepath.Dir(w.home), "filler")
	f, err := os.Create(path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size >= 1; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			w.t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestFullDisk (T27, P17): on a full disk a start is refused with a clear
// sentence and changes nothing, agents go on, status tells the truth, and with
// room again everything works without a restart. No event is lost or torn.
func TestFullDisk(t *testing.T) {
	w := smallDisk(t, "6m")
	w.must("start", "writer", "--", "sh", "-c", countForEver)
	w.must("start", "demo")
	writer, demo := w.instance("writer"), w.instance("demo")
	sup, _ := w.supervisor()
	free := w.fill()
	for i := 0; ; i++ {
		r := w.cast("start", "more", "--", "sleep", "100000")
		if r.code != 0 {
			if !strings.Contains(r.stderr, "disk is full") && !strings.Contains(r.stderr, "no space left") {
				t.Errorf("the refusal does not say why: %s", r.stderr)
			}
			break
		}
		if i > 100 {
			t.Fatal("the disk never gets full")
		}
		w.must("rm", "--force", "more")
	}
	for _, before := range []wire.Instance{writer, demo} {
		if in := w.instance(before.Name); in.State != wire.Running || *in.PID != *before.PID {
			t.Errorf("%s is %s with pid %v", in.Name, in.State, in.PID)
		}
	}
	if _, ok := w.status().Supervisor, true; !ok {
		t.Error("status without a supervisor")
	}
	free()
	w.must("start", "after", "--", "sleep", "100000")
	w.must("send", "demo", `{"op":"binary_score","probability":0.5,"outcome":true}`)
	if now, _ := w.supervisor(); now.PID != sup.PID {
		t.Error("the supervisor was restarted")
	}
	w.must("stop", "writer")
	w.checkJournal(t, "writer")
	w.must("stop", "--all")
}

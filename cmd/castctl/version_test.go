package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// TestAnotherVersionAdopts (P10, P11, P12, 4.7): the next supervisor may be of
// another build: it adopts every host, and its own hosts are its own build's.
func TestAnotherVersionAdopts(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.base, "next")
	build := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-ldflags", "-X github.com/castctl/castctl/updater.Version=9.9.9", "-o", dir+"/", "./cmd/castctl")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.must("start", "old", "--", "sleep", "100000")
	before := w.instance("old")
	w.must("down")
	next := func(args ...string) string {
		cmd := w.command(args...)
		cmd.Path = filepath.Join(dir, "castctl")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("castctl %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	next("start", "new", "--", "sleep", "100000")
	after := w.waitState("old", wire.Running)
	if *after.PID != *before.PID || *after.BuildID != *before.BuildID {
		t.Errorf("pid %d build %s, was %d %s", *after.PID, *after.BuildID, *before.PID, *before.BuildID)
	}
	out := w.must("version")
	if !strings.Contains(out, "9.9.9") || !strings.Contains(out, "another than this command's") {
		t.Errorf("version does not tell the difference: %s", out)
	}
	if out := w.cast("doctor"); !strings.Contains(out.stdout, "castctl down") {
		t.Errorf("doctor does not say what to do about it: %s", out.stdout)
	}
	next("stop", "old")
	w.must("stop", "new")
}

// TestRunsItsOwnFile (P18, K4): a program file that was removed under a running
// supervisor does not keep it from starting hosts.
func TestRunsItsOwnFile(t *testing.T) {
	w := newWorld(t)
	moved := filepath.Join(w.base, "castctl")
	b, err := os.ReadFile(filepath.Join(programs, "castctl"))
	if err := firstError(err, os.WriteFile(moved, b, 0o700)); err != nil {
		t.Fatal(err)
	}
	cmd := w.command("start", "a", "--", "sleep", "100000")
	cmd.Path = moved
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Remove(moved); err != nil {
		t.Fatal(err)
	}
	w.must("start", "b", "--", "sleep", "100000")
	kill9(t, identity(t, w.instance("a").HostPID))
	w.waitState("a", wire.Running)
}

// TestMismatch (4.5, K3): a supervisor of another protocol is not touched; the
// one command that fixes it is named, and works.
func TestMismatch(t *testing.T) {
	w := newWorld(t)
	w.must("status")
	h, err := lease.OpenHome(w.home)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := lease.Acquire(h.DaemonLock())
	if err != nil {
		t.Fatal(err)
	}
	// A stranger stands in for the supervisor of another version: it holds the lock.
	child, err := proc.Start(proc.Command{
		Path: "/bin/sleep", Argv: []string{"sleep", "300"}, Env: []string{markName + "=" + w.mark}, Files: []*os.File{nil, nil, nil, lock.File()},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan proc.Exit, 1)
	go func() {
		exit, _ := child.Wait(t.Context())
		ended <- exit
	}()
	id, err := child.Identity()
	if err != nil {
		t.Fatal(err)
	}
	record := lease.Server{
		Mark: lease.Mark{Identity: id, LockInode: lock.Inode()}, InstanceID: "other", Host: "127.0.0.1", Port: 9, Socket: "/nowhere",
		Protocol: lease.Versions{Min: 98, Max: 99}, Version: "42.0", Token: "x",
	}
	lock.Release()
	if err := h.PublishServer(record); err != nil {
		t.Fatal(err)
	}
	line := w.refused(exitUnable, "start", "a", "--", "sleep", "1")
	if !strings.Contains(line, "98 to 99") || !strings.Contains(line, "castctl down") {
		t.Errorf("it says: %s", line)
	}
	if id.Verdict() != proc.Alive {
		t.Error("it was touched")
	}
	w.must("down")
	if exit := <-ended; exit.Signal != syscall.SIGTERM {
		t.Errorf("it %s", exit)
	}
	w.must("start", "a", "--", "sleep", "100000")
}

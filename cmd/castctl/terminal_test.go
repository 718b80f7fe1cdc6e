package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/wire"
)

// TestSupervise: in the foreground it says so, exits 75 beside another, and on a
// signal leaves the agents running.
func TestSupervise(t *testing.T) {
	w := newWorld(t)
	cmd := w.command("supervise")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "it is published", func() bool { _, ok := w.supervisor(); return ok })
	if r := w.cast("supervise"); r.code != exitRunning || !strings.Contains(r.stderr, "runs already") {
		t.Errorf("a second one: exit code %d, %s", r.code, r.stderr)
	}
	w.must("start", "a", "--", "sleep", "100000")
	if sup := w.status().Supervisor; sup == nil || !sup.Foreground || sup.PID != cmd.Process.Pid {
		t.Errorf("status says %+v", sup)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if in := w.instance("a"); in.State != wire.Running {
		t.Errorf("the agent is %s", in.State)
	}
}

// TestForeground (16.1): an instance in this terminal is registered like any
// other, shows its output, and ends with its tree on Ctrl-C.
func TestForeground(t *testing.T) {
	w := newWorld(t)
	cmd := w.command("start", "a", "--foreground", "--", "sh", "-c", "echo hello; setsid sleep 100001 & exec sleep 100000")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := w.waitState("a", wire.Running)
	if *in.HostPID != cmd.Process.Pid {
		t.Errorf("its host is %d, the command is %d", *in.HostPID, cmd.Process.Pid)
	}
	until(t, "the tree has grown", func() bool { return w.count("sleep 10000") == 2 })
	w.killSupervisor()
	w.must("sweep")
	if after := w.waitState("a", wire.Running); *after.PID != *in.PID {
		t.Error("the next supervisor replaced it")
	}
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if n := w.count("sleep 10000"); n != 0 {
		t.Errorf("%d processes live", n)
	}
	if out.String() != "hello\n" {
		t.Errorf("it showed %q", out.String())
	}
}

// TestTerminalCloses (T10, K1, K23): an agent outlives the terminal that started
// it, and stays in reach.
func TestTerminalCloses(t *testing.T) {
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("needs script(1) for a terminal")
	}
	w := newWorld(t)
	cmd := w.command()
	cmd.Path = script
	cmd.Args = []string{"script", "-qec", filepath.Join(programs, "castctl") + " start a -- sleep 100000", "/dev/null"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	in := w.instance("a")
	if in.State != wire.Running || identity(t, in.PID).Verdict() != proc.Alive {
		t.Errorf("it is %s", in.State)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", *in.HostPID))
	if err != nil {
		t.Fatal(err)
	}
	if tty := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[4]; tty != "0" {
		t.Errorf("the host has terminal %s", tty)
	}
}

// TestMemoryHome (2.3): a private home is gone with the command that made it,
// also when that is killed.
func TestMemoryHome(t *testing.T) {
	w := newWorld(t)
	start := request("1", `{"op":"start","name":"a","spec":{"argv":["sleep","100000"],"cwd":"/"},"env":{"PATH":"/bin:/usr/bin","`+markName+`":"`+w.mark+`"}}`)
	r := w.castWith(start, nil, "rpc", "--memory")
	if r.code != 0 {
		t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	w.nothingLeft()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		cmd := w.command("rpc", "--memory")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, start)
		until(t, "the agent runs", func() bool { return w.count("sleep 100000") == 1 })
		cmd.Process.Signal(sig)
		cmd.Wait()
		in.Close()
		until(t, fmt.Sprintf("nothing is left after %v", sig), func() bool { return len(w.processes()) == 0 })
		w.nothingLeft()
	}
	w.refused(exitRefused, "status", "--memory")
}

func (w *world) nothingLeft() {
	w.t.Helper()
	until(w.t, "the private home is removed", func() bool {
		homes, _ := filepath.Glob(filepath.Join(w.base, "cast-*"))
		return len(homes) == 0
	})
}

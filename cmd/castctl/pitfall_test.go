package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/wire"
)

// TestAdoptedExit (P14, P16): an agent that ends while no supervisor lives is
// known with its code and its last words to the next one.
func TestAdoptedExit(t *testing.T) {
	w := newWorld(t)
	flag := filepath.Join(w.base, "flag")
	w.must("start", "a", "--restart", "never", "--", "sh", "-c", "while [ ! -e "+flag+" ]; do sleep 0.01; done; echo last words; echo sorry >&2; exit 7")
	w.killSupervisor()
	write(t, flag)
	w.waitState("a", wire.Finished) // from the folder
	w.must("sweep")
	in := w.instance("a")
	if in.State != wire.Finished || in.Exit == nil || in.Exit.Code == nil || *in.Exit.Code != 7 {
		t.Errorf("it is %s, exit %+v", in.State, in.Exit)
	}
	if out := w.must("logs", "a"); out != "last words\n" {
		t.Errorf("its log is %q", out)
	}
	if out := w.must("logs", "--stderr", "a"); out != "sorry\n" {
		t.Errorf("its standard error is %q", out)
	}
}

// TestNoZombies (P22): what an agent double-forks and what dies is collected.
func TestNoZombies(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--", "sh", "-c", "i=0; while [ $i -lt 50 ]; do ( setsid sh -c 'exit 0' & ) ; i=$((i+1)); done; exec sleep 100000")
	until(t, "the agent has done its forks", func() bool { return w.count("sleep 100000") == 1 })
	host := *w.instance("a").HostPID
	until(t, "nothing dead is left beneath the host", func() bool { return proc.Zombies(host) == 0 })
}

// TestSideBySide (P23): a slow stop of one instance holds up no command to
// another.
func TestSideBySide(t *testing.T) {
	w := newWorld(t)
	w.must("start", "slow", "--stop-timeout", "20s", "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
	w.must("start", "other", "--", "sleep", "100000")
	cmd := w.command("stop", "slow")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.waitState("slow", wire.Stopping)
	for range 5 {
		w.must("restart", "other")
	}
	if in := w.instance("slow"); in.State != wire.Stopping {
		t.Errorf("the slow one is %s already: the test proves nothing", in.State)
	}
	w.must("stop", "slow", "--timeout", "1s")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestStartRightAfterStop (P27): a name can be used again at once.
func TestStartRightAfterStop(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--", "sleep", "100000")
	for i := range 10 {
		w.must("stop", "a")
		w.must("start", "a")
		if in := w.instance("a"); in.State != wire.Running || in.Run != i+2 {
			t.Errorf("it is %s in run %d, want %d", in.State, in.Run, i+2)
		}
	}
	for range 5 {
		w.must("rm", "--force", "a")
		w.must("start", "a", "--", "sleep", "100000")
	}
	if n := w.count("sleep 100000"); n != 1 {
		t.Errorf("%d agents live", n)
	}
}

// TestManyWithFewDescriptors (P32): a hundred instances under a low limit of
// open files.
func TestManyWithFewDescriptors(t *testing.T) {
	w := newWorld(t)
	var fleet strings.Builder
	const n = 100
	for i := range n {
		fmt.Fprintf(&fleet, "[[instance]]\nname = \"m%03d\"\nargv = [\"sleep\", \"100000\"]\n", i)
	}
	file := filepath.Join(w.base, "cast.toml")
	writeFile(t, file, fleet.String())
	cmd := w.command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "ulimit -n 512; exec " + filepath.Join(programs, "castctl") + " apply -f " + file}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, in := range w.status().Instances {
		if in.State != wire.Running {
			t.Errorf("%s is %s: %s", in.Name, in.State, deref(in.Reason))
		}
	}
	w.must("stop", "--all")
	if left := w.count("sleep 100000"); left != 0 {
		t.Errorf("%d agents live", left)
	}
}

// TestHostIsSmall (P15): a host's own memory is a few MiB at most, whatever its
// agent does. What it really is, make bench tells.
func TestHostIsSmall(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--restart", "never", "--", "sh", "-c", "yes | head -c 50000000")
	w.waitState("a", wire.Finished)
	w.must("start", "b", "--", "sleep", "100000")
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", *w.instance("b").HostPID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil || kib > 8<<10 {
				t.Errorf("a host has %d KiB of its own (%v)", kib, err)
			}
		}
	}
}

// TestWedgedHold (T12, 6.1, 6.5): a background command that a finished turn left
// behind is named with its process and its age, and keeps the instance.
func TestWedgedHold(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--dialect", "ndjson", "--", filepath.Join(programs, "fakeagent"))
	var answer struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(w.must("send", "a", `{"op":"spawn_bg","setsid":true,"double_fork":true}`)), &answer); err != nil {
		t.Fatal(err)
	}
	in := w.instance("a")
	if len(in.Holds) != 1 || in.Holds[0].Kind != "task" || in.Holds[0].PID == nil || *in.Holds[0].PID != answer.PID {
		t.Fatalf("held by %+v, the command is process %d", in.Holds, answer.PID)
	}
	if out := w.must("status", "a"); !strings.Contains(out, "held by task since") || !strings.Contains(out, strconv.Itoa(answer.PID)) {
		t.Errorf("status does not name it: %s", out)
	}
	// A later turn that starts nothing adds nothing.
	w.must("send", "a", `{"op":"echo"}`)
	if in := w.instance("a"); len(in.Holds) != 1 {
		t.Errorf("held by %+v", in.Holds)
	}
	id, err := proc.Of(answer.PID)
	if err != nil {
		t.Fatal(err)
	}
	kill9(t, id)
	until(t, "nothing holds it any more", func() bool { return len(w.instance("a").Holds) == 0 })
	w.must("set", "a", "children=ignore")
	w.must("send", "a", `{"op":"spawn_bg"}`)
	if in := w.instance("a"); len(in.Holds) != 0 {
		t.Errorf("children are ignored, but it is held by %+v", in.Holds)
	}
	w.must("stop", "a")
}

// TestSlowReader (T24, K14): what castctl prints is whole, however slowly it is
// read.
func TestSlowReader(t *testing.T) {
	w := newWorld(t)
	const lines = 100_000
	w.must("start", "a", "--restart", "never", "--", "sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done", lines))
	w.waitState("a", wire.Finished)
	cmd := w.command("logs", "a")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	small := make([]byte, 512)
	for i := 0; ; i++ {
		n, err := out.Read(small)
		got.Write(small[:n])
		if err == io.EOF {
			break
		}
		if i%200 == 0 {
			pause(1e6)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	checkLines(t, got.String())
	if n := strings.Count(got.String(), "\n"); n != lines {
		t.Errorf("%d of %d lines", n, lines)
	}
	if out := w.must("logs", "a", "-n", "3"); out != fmt.Sprintf("line %d\nline %d\nline %d\n", lines-3, lines-2, lines-1) {
		t.Errorf("the last three lines are %q", out)
	}
}

// TestExitCodes (T24): wait, stop and down --all say by their code whether what
// was wanted is so.
func TestExitCodes(t *testing.T) {
	w := newWorld(t)
	w.must("start", "demo")
	w.must("start", "crashes", "--restart", "never", "--", "sh", "-c", "exit 3")
	w.must("wait", "demo", "--for", "ready")
	w.must("wait", "demo", "--for", "idle")
	w.must("wait", "crashes", "--for", "stopped")
	for _, args := range [][]string{
		{"wait", "crashes", "--for", "ready"},
		{"wait", "nobody"},
		{"wait", "demo", "--for", "stopped", "--timeout", "50ms"},
		{"stop", "nobody"},
		{"wait", "demo", "--for", "never"},
		{"wait"},
	} {
		w.refused(exitRefused, args...)
	}
	var stopping sync.WaitGroup
	stopping.Go(func() { w.must("wait", "demo", "--for", "stopped") })
	w.must("stop", "demo")
	stopping.Wait()
	w.must("stop", "demo") // again is no error
	w.must("down", "--all")
	w.must("down", "--all")
	if n := len(w.processes()); n != 0 {
		t.Errorf("%d processes live", n)
	}
}

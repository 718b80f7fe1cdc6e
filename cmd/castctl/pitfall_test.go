package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// bystander is a process that has nothing to do with Cast and must never be
// touched.
func bystander(t *testing.T) proc.Identity {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	id, err := proc.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// forge changes the host record of a stopped instance, as a crash, a reused
// number or a moved home would leave it.
func (w *world) forge(name string, change func(*lease.Host)) {
	w.t.Helper()
	in := w.instance(name)
	folder := lease.Folder(filepath.Join(w.home, "instances", in.ID))
	lock, err := lease.Acquire(folder.AliveLock())
	if err != nil {
		w.t.Fatal(err)
	}
	defer lock.Release()
	mark, err := lock.Mark()
	if err != nil {
		w.t.Fatal(err)
	}
	r := lease.Host{Mark: mark, ID: in.ID, Name: name, Incarnation: *in.Incarnation, Socket: filepath.Join(w.home, "run", "x.sock")}
	change(&r)
	if _, err := folder.PublishHost(r); err != nil {
		w.t.Fatal(err)
	}
}

// TestForgedRecord (T07, P5, P6): a record with the number of a living stranger
// is stale: it is removed, and the stranger lives on whatever is asked for.
func TestForgedRecord(t *testing.T) {
	for name, forge := range map[string]func(r *lease.Host, stranger proc.Identity){
		"another start time": func(r *lease.Host, s proc.Identity) { r.Identity = s; r.StartTicks++; r.PidfdInode = 0 },
		"another pidfd":      func(r *lease.Host, s proc.Identity) { r.Identity = s; r.PidfdInode++ },
		"the agent too": func(r *lease.Host, s proc.Identity) {
			r.Identity = s
			r.StartTicks++
			r.PidfdInode++
			r.Agent = &r.Identity
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			stranger := bystander(t)
			w.must("start", "a", "--", "sleep", "100000")
			w.must("stop", "a")
			w.must("down")
			w.forge("a", func(r *lease.Host) { forge(r, stranger) })
			if in := w.instance("a"); in.State != wire.Stopped {
				t.Errorf("it is %s", in.State)
			}
			w.must("sweep")
			w.must("stop", "a")
			w.must("start", "a")
			w.must("stop", "a")
			w.must("down", "--all")
			if v := stranger.Verdict(); v != proc.Alive {
				t.Errorf("the stranger is %s", v)
			}
			if _, err := os.Lstat(filepath.Join(w.home, "instances", w.instance("a").ID, "host.json")); err == nil {
				t.Error("the stale record is left")
			}
		})
	}
}

// TestForeignHost (T08, P7): a host of another machine or PID namespace is
// reported with the reason, and nothing of it is signalled, removed or reused.
func TestForeignHost(t *testing.T) {
	for name, change := range map[string]func(*lease.Host){
		"another namespace": func(r *lease.Host) { r.PIDNamespace++; r.LockInode = 1 },
		"another machine":   func(r *lease.Host) { r.BootID, r.MachineID = "other", "other" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			stranger := bystander(t)
			w.must("start", "a", "--", "sleep", "100000")
			w.must("stop", "a")
			w.must("down")
			w.forge("a", func(r *lease.Host) {
				r.PID, r.StartTicks, r.PidfdInode = stranger.PID, stranger.StartTicks, stranger.PidfdInode
				change(r)
			})
			for range 2 { // without a supervisor, and with one
				in := w.instance("a")
				if in.State != wire.Foreign || in.Reason == nil || !strings.Contains(*in.Reason, "another machine or PID namespace") {
					t.Errorf("it is %s: %v", in.State, deref(in.Reason))
				}
				w.must("sweep")
			}
			for _, args := range [][]string{{"start", "a"}, {"stop", "a"}, {"restart", "a"}, {"rm", "a"}, {"rm", "--force", "a"}} {
				w.refused(exitUnable, args...)
			}
			if v := stranger.Verdict(); v != proc.Alive {
				t.Errorf("the stranger is %s", v)
			}
			id := w.instance("a").ID
			if _, err := os.Lstat(filepath.Join(w.home, "instances", id, "host.json")); err != nil {
				t.Error("a foreign record was removed")
			}
			if err := os.RemoveAll(filepath.Join(w.home, "instances", id)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestStaleLeavings (P3): what a dead supervisor left, or somebody put there,
// blocks no start: a record, a socket, a file or a listener at the socket's path.
func TestStaleLeavings(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, home string){
		"a record of a reused number": func(t *testing.T, home string) {
			h, err := lease.FindHome(home)
			if err != nil {
				t.Fatal(err)
			}
			r := lease.Server{InstanceID: "dead", Mark: lease.Mark{Identity: bystander(t)}, Host: "127.0.0.1", Port: 1}
			r.StartTicks++
			r.PidfdInode++
			if err := h.PublishServer(r); err != nil {
				t.Fatal(err)
			}
		},
		"a dead socket": func(t *testing.T, home string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(home, "run", "supervisor.sock"), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		},
		"a file":       func(t *testing.T, home string) { write(t, filepath.Join(home, "run", "supervisor.sock")) },
		"old pid file": func(t *testing.T, home string) { writeFile(t, filepath.Join(home, "daemon.lock"), "1\n") },
		"a half record": func(t *testing.T, home string) {
			writeFile(t, filepath.Join(home, "server.json"), `{"pid":`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must("start", "a", "--", "sleep", "100000")
			w.killSupervisor()
			os.Remove(filepath.Join(w.home, "run", "supervisor.sock"))
			os.Remove(filepath.Join(w.home, "server.json"))
			leave(t, w.home)
			w.must("sweep")
			if in := w.waitState("a", wire.Running); in.Run != 1 || w.supervisors() != 1 {
				t.Errorf("run %d, %d supervisors", in.Run, w.supervisors())
			}
		})
	}
}

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

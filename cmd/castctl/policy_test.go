package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/castctl/castctl/wire"
)

// TestRestartPolicies (T09, K21, P24, P25): each policy does what it says; what
// has finished is never resurrected.
func TestRestartPolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		policy, script string
		want           wire.State
		starts         int // at least
	}{
		"never, success":      {"never", "exit 0", wire.Finished, 1},
		"never, failure":      {"never", "exit 1", wire.Finished, 1},
		"on-failure, success": {"on-failure", "exit 0", wire.Finished, 1},
		"on-failure, failure": {"on-failure", "exit 1", wire.Failed, 6},
		"on-failure, signal":  {"on-failure", "kill -9 $$", wire.Failed, 6},
		"always, success":     {"always", "exit 0", wire.Failed, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.diary("a")
			w.cast(append([]string{"start", "a", "--restart", tc.policy}, d.script("sleep 0.01; "+tc.script)...)...)
			if tc.want == wire.Failed {
				w.must("set", "a", "restart.backoff=0s")
			}
			in := w.waitState("a", tc.want)
			if n := len(d.starts()); n != tc.starts {
				t.Errorf("%d starts, want %d", n, tc.starts)
			}
			if tc.want == wire.Failed && (in.Reason == nil || !strings.Contains(*in.Reason, "restarted 5 times")) {
				t.Errorf("it failed without a reason: %v", deref(in.Reason))
			}
			w.killSupervisor()
			w.must("sweep")
			w.must("down")
			w.must("sweep")
			if in := w.instance("a"); in.State != tc.want || len(d.starts()) != tc.starts {
				t.Errorf("after two supervisors it is %s with %d starts", in.State, len(d.starts()))
			}
		})
	}
}

// TestHandStartClears (P26): a start by hand clears the limit.
func TestHandStartClears(t *testing.T) {
	w := newWorld(t)
	flag := filepath.Join(w.base, "good")
	w.cast("start", "a", "--", "sh", "-c", "sleep 0.01; [ -e "+flag+" ] || exit 4; exec sleep 100000")
	w.must("set", "a", "restart.backoff=0s")
	in := w.waitState("a", wire.Failed)
	if in.Exit == nil || *in.Exit.Code != 4 {
		t.Errorf("exit %+v", in.Exit)
	}
	write(t, flag)
	w.must("start", "a")
	w.waitState("a", wire.Running)
}

// TestBadCommand: a program that is not there is refused before anything has
// changed; one that vanishes later makes the instance fail with the reason.
func TestBadCommand(t *testing.T) {
	w := newWorld(t)
	script := filepath.Join(w.base, "tool")
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"start", "a", "--", "no-such-program"}, "not found in PATH"},
		{[]string{"start", "a", "--", "/no/such/program"}, "no such program"},
		{[]string{"start", "a", "--", w.base}, "is a directory"},
		{[]string{"start", "a", "--", script}, "not executable"},
		{[]string{"start", "a", "--cwd", "/no/such/dir", "--", "true"}, "does not exist"},
		{[]string{"start", "a", "--env-file", "/no/such/file", "--", "true"}, "no such file"},
		{[]string{"start", "a", "--restart", "sometimes", "--", "true"}, "must be one of"},
		{[]string{"start", "A", "--", "true"}, "must begin with"},
		{[]string{"start", "../x", "--", "true"}, "must begin with"},
		{[]string{"start", strings.Repeat("a", 64), "--", "true"}, "must begin with"},
		{[]string{"start", "a", "--env", "X", "--", "true"}, "NAME=VALUE"},
		{[]string{"start"}, "needs a name"},
		{[]string{"start", "a", "b", "--", "true"}, "one instance"},
		{[]string{"start", "nobody"}, "no instance"},
		{[]string{"frobnicate"}, "no command"},
		{[]string{"stop", "a", "--frob"}, "frob"},
	} {
		writeFile(t, script, "#!/bin/sh\n")
		if line := w.refused(exitRefused, tc.args...); !strings.Contains(line, tc.says) {
			t.Errorf("castctl %v says %q, not %q", tc.args, line, tc.says)
		}
	}
	if st := w.status(); len(st.Instances) != 0 {
		t.Errorf("%d instances were made", len(st.Instances))
	}
	if folders, _ := os.ReadDir(filepath.Join(w.home, "instances")); len(folders) > 0 {
		t.Errorf("%d folders were left", len(folders))
	}
	if err := firstError(os.Chmod(script, 0o700), os.WriteFile(script, []byte("#!/bin/sh\nexec sleep 100000\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	w.must("start", "a", "--", script)
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	kill9(t, identity(t, w.instance("a").PID))
	if in := w.waitState("a", wire.Failed); !strings.Contains(deref(in.Reason), "no such program") {
		t.Errorf("it failed with %q", deref(in.Reason))
	}
}

// TestHangUpAndStop (T10, T26, K23): a hang-up and a broken pipe do nothing to
// the supervisor and the hosts; a host that was stopped for a while, as in a
// sleep, goes on where it was.
func TestHangUpAndStop(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--", "sh", "-c", countForEver)
	in := w.instance("a")
	host := identity(t, in.HostPID)
	sup, _ := w.supervisor()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGSTOP} {
		if err := firstError(host.Signal(sig), sup.Signal(sig)); err != nil {
			t.Fatal(err)
		}
	}
	if err := firstError(host.Signal(syscall.SIGCONT), sup.Signal(syscall.SIGCONT)); err != nil {
		t.Fatal(err)
	}
	w.must("sweep")
	if after := w.instance("a"); after.State != wire.Running || *after.PID != *in.PID || *after.HostPID != *in.HostPID {
		t.Errorf("it is %s", after.State)
	}
	before := w.instance("a").LastSeq
	until(t, "the journal grows", func() bool { return w.instance("a").LastSeq > before })
	w.checkJournal(t, "a")
}

// TestHostToldToEnd: a host that gets SIGTERM ends its tree in order; nobody
// wanted that, so the instance runs again.
func TestHostToldToEnd(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--", "sleep", "100000")
	in := w.instance("a")
	host, agent := identity(t, in.HostPID), identity(t, in.PID)
	if err := host.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, agent)
	awaitGone(t, host)
	after := w.waitState("a", wire.Running)
	if *after.HostPID == *in.HostPID || w.count("sleep 100000") != 1 {
		t.Errorf("host %d, %d agents", *after.HostPID, w.count("sleep 100000"))
	}
}

// TestWedgedHost (T12, P38): a host that does not answer any more is still
// stopped, in bounded time, with its tree.
func TestWedgedHost(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--", "sh", "-c", "setsid sleep 100001 & exec sleep 100000")
	until(t, "the tree has grown", func() bool { return w.count("sleep 10000") == 2 })
	in := w.instance("a")
	host := identity(t, in.HostPID)
	w.must("down") // the next supervisor meets a host that says nothing
	if err := host.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r := w.stopResult("a")
	if r.Rung == nil || *r.Rung != wire.RungKill {
		t.Errorf("rung %v", deref(r.Rung))
	}
	awaitGone(t, host)
	if n := w.count("sleep 10000"); n != 0 {
		t.Errorf("%d processes of its tree live", n)
	}
}

// TestStopWhenIdle (16.5, 6.5): a stop that waits for idleness waits for the
// turn's background command, names it, and then stops.
func TestStopWhenIdle(t *testing.T) {
	w := newWorld(t)
	w.must("start", "demo")
	w.must("start", "plain", "--", "sleep", "100000")
	if out := w.must("status", "plain"); !strings.Contains(out, "held by task") {
		t.Errorf("status does not name what holds: %s", out)
	}
	w.must("stop", "demo", "--when-idle")
	cmd := w.command("stop", "plain", "--when-idle")
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "it is wanted stopped", func() bool { return w.instance("plain").Wanted == wire.WantStopped })
	if in := w.instance("plain"); in.State != wire.Running {
		t.Errorf("a busy instance is %s", in.State)
	}
	w.must("stop", "plain") // now, not when idle
	if err := cmd.Wait(); err != nil {
		t.Errorf("the waiting stop: %v %s", err, said.String())
	}
	if !strings.Contains(said.String(), "held by a task") {
		t.Errorf("it does not say what it waits for: %s", said.String())
	}
}

// TestUnlinkedUnderfoot (T32, P4, K23): a record, a socket that a cleaner removes
// while everything runs is there again, and nothing is cut off.
func TestUnlinkedUnderfoot(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--", "sleep", "100000")
	in := w.instance("a")
	server := filepath.Join(w.home, "server.json")
	remove := func(path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		until(t, path+" is there again", func() bool {
			if !strings.HasSuffix(path, "server.json") {
				w.cast("sweep")
			}
			_, err := os.Lstat(path)
			return err == nil
		})
	}
	remove(server)
	writeFile(t, server, `{"pid":1,"instance_id":"somebody"}`)
	until(t, "the overwritten record is ours again", func() bool { _, ok := w.supervisor(); return ok })
	remove(filepath.Join(w.home, "instances", in.ID, "host.json"))
	remove(filepath.Join(w.home, "run", in.ID+".sock"))
	if err := os.Remove(filepath.Join(w.home, "run", "supervisor.sock")); err != nil {
		t.Fatal(err)
	}
	w.must("sweep") // over TCP
	w.killSupervisor()
	w.must("sweep")
	if after := w.waitState("a", wire.Running); *after.PID != *in.PID || w.supervisors() != 1 {
		t.Errorf("pid %d, was %d; %d supervisors", *after.PID, *in.PID, w.supervisors())
	}
}

// TestLongHome (T32): a home whose path is too long for sockets works.
func TestLongHome(t *testing.T) {
	w := newWorld(t)
	w.home = filepath.Join(w.base, strings.Repeat("x", 120))
	w.env = append(w.env, "CAST_HOME="+w.home)
	w.must("start", "demo")
	w.must("send", "demo", `{"op":"binary_score","probability":0.5,"outcome":true}`)
	w.killSupervisor()
	w.must("sweep")
	w.waitState("demo", wire.Running)
}

// TestStderrFlood (T30, K20, P30): an agent that floods its standard error is
// capped on disk, and told in few lines.
func TestStderrFlood(t *testing.T) {
	w := newWorld(t)
	const lines = 300_000
	w.must("start", "a", "--restart", "never", "--", "sh", "-c", fmt.Sprintf("yes 'this is a line of standard error, and there are far too many of them here' | head -n %d >&2", lines))
	in := w.waitState("a", wire.Finished)
	folder := filepath.Join(w.home, "instances", in.ID)
	var size int64
	files, _ := filepath.Glob(filepath.Join(folder, "stderr.log*"))
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += st.Size()
	}
	if size > 17<<20 {
		t.Errorf("%d bytes of standard error are kept", size)
	}
	notices, suppressed, told := 0, int64(0), 0
	for _, ev := range w.events("a", wire.EventNotice) {
		d := decode[wire.NoticeData](t, string(ev.Data))
		if d.Kind == wire.NoticeSuppressed {
			notices++
			suppressed += *d.Count
		}
	}
	for _, ev := range w.events("a", wire.EventStderr) {
		d := decode[wire.StderrData](t, string(ev.Data))
		told += strings.Count(*d.Text, "\n")
	}
	if notices == 0 || notices > 20 {
		t.Errorf("%d notices of suppression", notices)
	}
	if total := suppressed + int64(told); total != lines {
		t.Errorf("%d lines told and %d suppressed are not %d", told, suppressed, lines)
	}
}

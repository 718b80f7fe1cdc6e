package main

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// TestSameIDAtOnce (10.3): the same request sent by many at the same moment is
// carried out once, and all get the one receipt, byte for byte.
func TestSameIDAtOnce(t *testing.T) {
	w := newWorld(t)
	d := w.diary("a")
	w.must(append([]string{"start", "a"}, d.script("exec sleep 100000")...)...)
	until(t, "the agent runs", func() bool { return len(d.starts()) == 1 })
	line := request("once", `{"op":"restart","instance":"a"}`)
	answers := make([]string, 20)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = w.castWith(line, nil, "rpc").stdout })
	}
	all.Wait()
	first := receiptOf(t, decode[answer](t, answers[0]))
	for _, a := range answers {
		if r := decode[answer](t, a); r.Error != nil || receiptOf(t, r) != first {
			t.Errorf("the receipt is not %s:\n%s", first, a)
		}
	}
	if n := len(d.starts()); n != 2 {
		t.Errorf("the agent was started %d times", n)
	}
}

// TestWedgedWhileConnected (5.2): a host that stops answering while it is
// connected can be stopped all the same, with its whole tree.
func TestWedgedWhileConnected(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--", "sleep", "100000")
	host := identity(t, w.instance("a").HostPID)
	if err := host.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if out := w.must("stop", "a"); !strings.Contains(out, "a stopped (kill") {
		t.Errorf("it says %q", out)
	}
	awaitGone(t, host)
	if n := w.count("sleep 100000"); n != 0 {
		t.Errorf("%d of its processes live", n)
	}
	if in := w.instance("a"); in.State != wire.Stopped {
		t.Errorf("it is %s", in.State)
	}
	w.must("rm", "a")
}

// TestStartWhileStopping (4.8): a start by hand outweighs a stop that is still
// under way, and counts as no failure.
func TestStartWhileStopping(t *testing.T) {
	w := newWorld(t)
	d := w.diary("a")
	w.must(append([]string{"start", "a", "--restart", "never", "--stop-timeout", "4s"}, d.script("trap '' TERM; echo deaf; while :; do sleep 100000 & wait; done")...)...)
	until(t, "the agent is deaf", func() bool { return strings.Contains(w.must("logs", "a"), "deaf") })
	before := *w.instance("a").PID
	stopped := make(chan result)
	go func() { stopped <- w.cast("stop", "a") }()
	w.waitState("a", wire.Stopping)
	w.must("start", "a")
	<-stopped
	in := w.waitState("a", wire.Running)
	if *in.PID == before || in.Wanted != wire.WantRunning {
		t.Errorf("process %d runs (%d before), wanted %s", *in.PID, before, in.Wanted)
	}
	if out := w.must("stop", "a"); !strings.Contains(out, "a stopped") {
		t.Errorf("the next stop says %q", out)
	}
}

// TestStopAllRemembers (16.1): nothing lives, but the next supervisor would start
// what was running: stop --all says that it is not to, as stop NAME does.
func TestStopAllRemembers(t *testing.T) {
	for _, args := range [][]string{{"stop", "--all"}, {"down", "--all"}} {
		w := newWorld(t)
		w.must("start", "a", "--", "sleep", "100000")
		in := w.instance("a")
		host, agent := identity(t, in.HostPID), identity(t, in.PID)
		w.must("down")
		for _, id := range []proc.Identity{host, agent} {
			if err := id.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		w.must(args...)
		w.must("sweep")
		if in := w.instance("a"); in.Wanted != wire.WantStopped || w.count("sleep 100000") != 0 {
			t.Errorf("after %v it is %s, wanted %s", args, in.State, in.Wanted)
		}
	}
}

// TestResumeAfterBoot (4.9): what ran before a boot runs again, except what is
// not to be resumed: that stays so whoever supervises, until it is started.
func TestResumeAfterBoot(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"yes", "no"} {
		w.must("start", name, "--", "sleep", "100000")
	}
	w.must("set", "no", "resume=false")
	running := map[string]wire.Instance{"yes": w.instance("yes"), "no": w.instance("no")}
	w.must("down")
	for name, in := range running {
		for _, pid := range []*int{in.HostPID, in.PID} {
			id := identity(t, pid)
			if err := id.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		w.forge(name, func(r *lease.Host) { r.BootID = "00000000-0000-0000-0000-000000000000" })
	}
	w.must("sweep")
	w.waitState("yes", wire.Running)
	for range 2 {
		w.must("sweep")
		if in := w.instance("no"); in.PID != nil || in.HostPID != nil || in.Wanted != wire.WantRunning {
			t.Errorf("it is %s, wanted %s, host %d", in.State, in.Wanted, deref(in.HostPID))
		}
		w.must("down") // the next supervisor knows it too
	}
	w.must("start", "no")
	w.waitState("no", wire.Running)
}

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// diary is what an agent itself writes down about its starts, outside of Cast.
type diary string

func (w *world) diary(name string) diary {
	return diary(filepath.Join(w.base, name+".diary"))
}

// starts lists the PIDs of the agent's starts.
func (d diary) starts() []string {
	b, _ := os.ReadFile(string(d))
	return strings.Fields(string(b))
}

// script is a shell agent that notes its start in its diary first.
func (d diary) script(body string) []string {
	return []string{"--", "sh", "-c", "echo $$ >>" + string(d) + "; " + body}
}

const (
	countForEver  = "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.02; done"
	countAndEnd   = "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done"
	countAndCrash = "i=0; while [ $i -lt 20 ]; do echo line $i; i=$((i+1)); done; exit 3"
	sitStill      = "exec sleep 100000"
)

// TestMurderSupervisorFiftyTimes kills the supervisor 50 times while 20
// instances start, write and exit.
func TestMurderSupervisorFiftyTimes(t *testing.T) {
	w := newWorld(t)
	bodies := []string{countForEver, countAndEnd, countAndCrash, sitStill}
	var starting sync.WaitGroup
	for k := range 50 {
		if k < 20 {
			name := fmt.Sprintf("i%02d", k)
			args := append([]string{"start", name}, w.diary(name).script(bodies[k%len(bodies)])...)
			starting.Go(func() { w.startStubbornly(args) })
		} else {
			w.cast("sweep")
		}
		// At any moment of what the supervisor is doing.
		until(t, "a supervisor lives", func() bool { _, ok := w.supervisor(); return ok })
		pause(time.Duration(rand.IntN(15)) * time.Millisecond)
		if id, ok := w.supervisor(); ok {
			id.Kill()
		}
	}
	starting.Wait()
	w.must("sweep")
	for k := range 20 {
		name := fmt.Sprintf("i%02d", k)
		t.Run(name, func(t *testing.T) { w.checkLife(t, name, bodies[k%len(bodies)]) })
	}
	if n := w.supervisors(); n != 1 {
		t.Errorf("%d supervisors live, want 1", n)
	}
}

// pause lets a random moment pass, so that the knife falls anywhere. Nothing is
// asserted of it.
func pause(d time.Duration) { <-time.After(d) }

// startStubbornly gives a start again until a supervisor lives long enough to
// answer it, as a person would.
func (w *world) startStubbornly(args []string) {
	for range 200 {
		r := w.cast(args...)
		if r.code == 0 || strings.Contains(r.stderr, "restarted 5 times") || strings.Contains(r.stderr, ": backoff: ") {
			return
		}
	}
	w.t.Errorf("castctl %v never succeeds", args)
}

func (w *world) supervisors() int {
	n := 0
	for _, id := range w.processes() {
		if strings.Contains(commandLine(id.PID), " supervise") {
			n++
		}
	}
	return n
}

// checkLife compares what an agent noted of itself with what Cast says of it.
func (w *world) checkLife(t *testing.T, name, body string) {
	starts := w.diary(name).starts()
	var in wire.Instance
	switch body {
	case countForEver, sitStill:
		in = w.waitState(name, wire.Running)
		if len(starts) != 1 || fmt.Sprint(*in.PID) != starts[0] {
			t.Errorf("the agent was started as %v, status says %d", starts, *in.PID)
		}
	case countAndEnd:
		in = w.waitState(name, wire.Finished)
	case countAndCrash:
		in = w.waitState(name, wire.Failed)
		starts = w.diary(name).starts()
	}
	w.checkJournal(t, name)
	w.checkExits(t, in, len(starts))
}

// checkJournal verifies that the numbers have no gap and no double, and that
// each run's output is whole.
func (w *world) checkJournal(t *testing.T, name string) {
	var seq uint64
	var output strings.Builder
	for _, ev := range w.events(name) {
		if seq++; ev.Seq != seq {
			t.Fatalf("event %d stands where %d belongs", ev.Seq, seq)
		}
		switch ev.Type {
		case wire.EventOutput:
			d := decode[wire.OutputData](t, string(ev.Data))
			output.WriteString(*d.Text)
		case wire.EventExit:
			checkLines(t, output.String())
			output.Reset()
		}
	}
	checkLines(t, output.String())
}

func checkLines(t *testing.T, output string) {
	n := 0
	for line := range strings.Lines(output) {
		if want := fmt.Sprintf("line %d\n", n); line != want && strings.HasSuffix(line, "\n") {
			t.Fatalf("line %q stands where %q belongs", line, want)
		}
		n++
	}
}

// checkExits verifies that every run that ended has exactly one status, in the
// journal and, the last one, in the file.
func (w *world) checkExits(t *testing.T, in wire.Instance, starts int) {
	seen := map[int]int{}
	last := 0
	for _, ev := range w.events(in.Name, wire.EventExit) {
		d := decode[wire.ExitData](t, string(ev.Data))
		seen[d.Run]++
		last = d.Run
	}
	ended := starts
	if in.State == wire.Running {
		ended--
	}
	for run := 1; run <= ended; run++ {
		if seen[run] != 1 {
			t.Errorf("run %d of %d has %d exit events", run, ended, seen[run])
		}
	}
	if len(seen) != ended {
		t.Errorf("%d runs ended, %d exits are told", ended, len(seen))
	}
	if ended == 0 {
		return
	}
	file, ok := host.ReadExit(lease.Folder(filepath.Join(w.home, "instances", in.ID)))
	if !ok || file.Run != last {
		t.Errorf("exit.json is of run %d, the last exit event of %d", file.Run, last)
	}
}

// TestMurderHost kills a host: its tree is gone, the instance runs again by its
// policy, and never two agents live where one belongs.
func TestMurderHost(t *testing.T) {
	w := newWorld(t)
	d := w.diary("a")
	w.must(append([]string{"start", "a", "--restart", "always"}, d.script("sh -c 'exec sleep 100001' & setsid sh -c 'exec sleep 100002' & "+sitStill)...)...)
	before := w.instance("a")
	tree := w.processes()
	host := identity(t, before.HostPID)
	kill9(t, host)
	for _, id := range tree {
		if id.PID != host.PID && !strings.Contains(commandLine(id.PID), "supervise") {
			awaitGone(t, id)
		}
	}
	after := w.waitState("a", wire.Running)
	until(t, "the agent was started again", func() bool { return len(d.starts()) == 2 })
	if *after.HostPID == *before.HostPID || after.Run != before.Run+1 {
		t.Errorf("run %d in host %d follows run %d in host %d", after.Run, *after.HostPID, before.Run, *before.HostPID)
	}
	if after.Restarts != 1 {
		t.Errorf("%d restarts are counted, want 1", after.Restarts)
	}
	w.checkExits(t, after, 2)
}

// TestMurderHostAndSupervisor kills both at once: the next supervisor clears up
// before it starts anything.
func TestMurderHostAndSupervisor(t *testing.T) {
	w := newWorld(t)
	d := w.diary("a")
	w.must(append([]string{"start", "a"}, d.script("setsid sh -c 'exec sleep 100002' & "+sitStill)...)...)
	before := w.instance("a")
	agent := identity(t, before.PID)
	sup, _ := w.supervisor()
	host := identity(t, before.HostPID)
	sup.Kill()
	host.Kill()
	if agent.Verdict() != "alive" {
		t.Fatal("the agent should outlive both for now")
	}
	w.must("sweep")
	awaitGone(t, agent)
	after := w.waitState("a", wire.Running)
	until(t, "two starts", func() bool { return len(d.starts()) == 2 })
	// A shell that is just forking its child shows its own command line twice; an
	// agent too many stays.
	until(t, "one agent", func() bool { return w.agents("a") == 1 })
	w.checkExits(t, after, 2)
}

// agents counts the living shells whose diary is the instance's.
func (w *world) agents(name string) int {
	n := 0
	for _, id := range w.processes() {
		if strings.Contains(commandLine(id.PID), "sleep 100000") {
			n++
		}
	}
	return n
}

// TestMurderHostTellsTheRealStatus has an agent end by itself while its host is
// dead: the supervisor is the subreaper and learns how.
func TestMurderHostTellsTheRealStatus(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--restart", "never", "--", "sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.01; done")
	in := w.instance("a")
	kill9(t, identity(t, in.HostPID))
	after := w.waitState("a", wire.Failed)
	if after.Exit == nil || after.Exit.Signal == nil || *after.Exit.Signal != 9 {
		b, _ := json.Marshal(after.Exit)
		t.Errorf("the supervisor ended the agent by signal 9, its exit says %s", b)
	}
}

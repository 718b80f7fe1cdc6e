package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// forget deletes an instance from the registry behind everybody's back, while no
// supervisor lives.
func (w *world) forget(name string) (id string) {
	w.t.Helper()
	w.must("down")
	db, err := registry.Open(filepath.Join(w.home, "registry.db"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *registry.Tx) error {
		all, err := tx.Instances()
		if err != nil {
			return err
		}
		for _, in := range all {
			if in.Name == name {
				id = in.ID
				return tx.DeleteInstance(in.ID, in.Incarnation)
			}
		}
		return fmt.Errorf("there is no %s", name)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// orphaned makes orphans of a busy agent and an idle one, with a short grace.
func orphaned(t *testing.T, grace string) (w *world, busy, idle string) {
	t.Helper()
	w = newWorld(t)
	w.env = append(w.env, "CAST_ORPHAN_GRACE="+grace)
	w.must("start", "busy", "--", "sleep", "100000")
	w.must("start", "demo")
	return w, w.forget("busy"), w.forget("demo")
}

// waitOrphans waits until status shows that many.
func (w *world) waitOrphans(n int) []wire.Orphan {
	w.t.Helper()
	var list []wire.Orphan
	until(w.t, fmt.Sprintf("%d orphans are shown", n), func() bool {
		list = w.status().Orphans
		return len(list) == n
	})
	return list
}

// TestOrphanIsVisible: a host that the registry does not name is listed, serves,
// and is neither adopted nor ended by a sweep.
func TestOrphanIsVisible(t *testing.T) {
	w, busy, idle := orphaned(t, "1h")
	w.must("sweep")
	list := w.waitOrphans(2)
	for _, o := range list {
		if o.ID != busy && o.ID != idle {
			t.Errorf("orphan %s is neither %s nor %s", o.ID, busy, idle)
		}
		if o.PID == nil {
			t.Errorf("orphan %s has no agent", o.Name)
		}
	}
	w.must("sweep")
	if got := w.waitOrphans(2); *got[0].PID != *list[0].PID {
		t.Error("a sweep replaced an orphan's agent")
	}
	out := w.must("orphans")
	if !strings.Contains(out, busy) || !strings.Contains(out, "held by task") {
		t.Errorf("orphans does not show what holds the busy one: %s", out)
	}
	w.must("reap", "--yes", "--even-if-busy", busy, idle)
	w.waitOrphans(0)
}

// TestOrphanLeavesWhenIdle (T11): past its grace the idle one is gone, the busy
// one stays.
func TestOrphanLeavesWhenIdle(t *testing.T) {
	w, busy, _ := orphaned(t, "400ms")
	w.must("sweep")
	list := w.waitOrphans(1)
	if list[0].ID != busy {
		t.Errorf("the busy one left, and %s stayed", list[0].Name)
	}
	if n := w.count(filepath.Join(programs, "supercast-agent")); n != 0 {
		t.Errorf("%d agents of the idle one live", n)
	}
	line := w.refused(exitRefused, "reap", "--yes", busy)
	if !strings.Contains(line, "busy") {
		t.Errorf("reap of a busy orphan: %s", line)
	}
	w.must("reap", "--yes", "--even-if-busy", busy)
	w.waitOrphans(0)
}

// TestOrphanStaysWithoutAnswer: a registry that does not answer is not one that
// says no. Without a supervisor nobody leaves.
func TestOrphanStaysWithoutAnswer(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "CAST_ORPHAN_GRACE=100ms")
	w.must("start", "demo")
	before := w.instance("demo")
	w.must("down")
	// Far more than the grace, in the host's own time: it asks twenty times.
	host := identity(t, before.HostPID)
	pause(20 * 50 * 1e6)
	if v := host.Verdict(); v != lease.Alive {
		t.Fatalf("the host is %s", v)
	}
	w.must("sweep")
	if after := w.waitState("demo", wire.Running); *after.PID != *before.PID {
		t.Error("the agent was replaced")
	}
}

// TestOrphanIsAdopted: adopt gives the lease back; the agent never notices.
func TestOrphanIsAdopted(t *testing.T) {
	w, busy, idle := orphaned(t, "1h")
	w.must("sweep")
	list := w.waitOrphans(2)
	pids := map[string]int{list[0].ID: *list[0].PID, list[1].ID: *list[1].PID}
	w.must("adopt", busy)
	w.must("start", "demo") // the name is free, so somebody takes it
	line := w.refused(exitRefused, "adopt", idle)
	if !strings.Contains(line, "--name") {
		t.Errorf("a taken name is refused without a way out: %s", line)
	}
	w.must("adopt", idle, "--name", "demo2")
	for name, id := range map[string]string{"busy": busy, "demo2": idle} {
		in := w.waitState(name, wire.Running)
		if in.ID != id || *in.PID != pids[id] {
			t.Errorf("%s is %s with pid %d, was %d", name, in.ID, *in.PID, pids[id])
		}
	}
	w.waitOrphans(0)
	w.must("send", "demo2", `{"op":"binary_score","probability":0.5,"outcome":true}`)
	w.killSupervisor()
	w.must("sweep")
	w.waitState("demo2", wire.Running)
	w.waitOrphans(0)
}

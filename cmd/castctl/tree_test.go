package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/castctl/castctl/wire"
)

// stopResult stops an instance and returns how.
func (w *world) stopResult(name string, args ...string) wire.StopResult {
	w.t.Helper()
	return decode[wire.StopResult](w.t, w.must(append([]string{"stop", name, "--json"}, args...)...))
}

// TestStopEndsTheWholeTree (T06, P19, P21, P38): whatever an agent's tree does to
// escape, after stop nothing of it lives, and the rung is told.
func TestStopEndsTheWholeTree(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		count  int // sleeping processes before the stop
		rung   wire.Rung
		ended  int // at least
	}{
		"one process":             {"exec sleep 100000", 1, wire.RungTerm, 1},
		"a child in its group":    {"sleep 100001 & exec sleep 100000", 2, "", 1},
		"a child in a session":    {"setsid sleep 100001 & exec sleep 100000", 2, "", 2},
		"double fork and setsid":  {"( setsid sleep 100001 & ) ; exec sleep 100000", 2, "", 2},
		"a shim that ignores":     {"trap '' TERM; sleep 100001 & sleep 100000; wait", 2, wire.RungKill, 1},
		"all of it ignores":       {"trap '' TERM; ( setsid sh -c 'trap \"\" TERM; exec sleep 100001' & ) ; sleep 100002 & exec sleep 100000", 3, wire.RungKill, 2},
		"holds the output open":   {"( setsid sleep 100001 & ) ; ( sleep 100002 & ) ; exec sleep 100000", 3, "", 2},
		"a family of generations": {"sh -c 'sh -c \"setsid sleep 100001 & sleep 100002 & wait\" & sleep 100003 & wait' & exec sleep 100000", 4, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.must("start", "a", "--stop-timeout", "2s", "--", "sh", "-c", tc.script)
			until(t, "the tree has grown", func() bool { return w.count("sleep 10000") == tc.count })
			tree := w.processes()
			r := w.stopResult("a")
			// What can be ended by SIGTERM may need more on a busy machine.
			if r.Rung == nil || tc.rung != "" && *r.Rung != tc.rung {
				t.Errorf("rung %v, want %s", deref(r.Rung), tc.rung)
			}
			if r.Ended < tc.ended || len(r.Escaped) > 0 {
				t.Errorf("ended %d of at least %d, escaped %v", r.Ended, tc.ended, r.Escaped)
			}
			for _, id := range tree {
				if line := commandLine(id.PID); !strings.Contains(line, "supervise") && id.Verdict() != "gone" {
					t.Errorf("%d lives: %s", id.PID, line)
				}
			}
			if in := w.instance("a"); in.State != wire.Stopped || in.HostPID != nil {
				t.Errorf("it is %s", in.State)
			}
		})
	}
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// TestAgentDiesBeforeItsOutput (T05, K12): the exit is told at once although a
// grandchild holds the output open, and the grandchild is ended before the next
// run starts.
func TestAgentDiesBeforeItsOutput(t *testing.T) {
	w := newWorld(t)
	d := w.diary("a")
	w.must(append([]string{"start", "a"}, d.script(`if [ $(wc -l <`+string(d)+`) = 1 ]; then ( setsid sleep 100001 & ) ; sleep 100002 & exit 5; fi; exec sleep 100000`)...)...)
	until(t, "a second start", func() bool { return len(d.starts()) == 2 })
	w.waitState("a", wire.Running)
	if n := w.count("sleep 100001") + w.count("sleep 100002"); n != 0 {
		t.Errorf("%d processes of the first run live beside the second", n)
	}
	exits := w.events("a", wire.EventExit)
	if len(exits) != 1 {
		t.Fatalf("%d exits are told", len(exits))
	}
	if d := decode[wire.ExitData](t, string(exits[0].Data)); d.Code == nil || *d.Code != 5 {
		t.Errorf("exit %+v", d)
	}
}

// TestInsideAnAgent (A27): castctl from inside an agent reaches its manager, and
// stopping that agent touches neither the supervisor nor what was started from
// there.
func TestInsideAnAgent(t *testing.T) {
	w := newWorld(t)
	castctl := filepath.Join(programs, "castctl")
	out := filepath.Join(w.base, "out")
	w.must("start", "outer", "--", "sh", "-c", castctl+" start inner -- sleep 100001 >"+out+" 2>&1; "+castctl+" status --json >>"+out+" 2>&1; exec sleep 100000")
	inner := w.waitState("inner", wire.Running)
	until(t, "the agent has looked", func() bool { return w.count("sleep 100000") == 1 })
	sup, _ := w.supervisor()
	w.must("stop", "outer")
	after := w.instance("inner")
	if after.State != wire.Running || *after.PID != *inner.PID {
		t.Errorf("inner is %s with pid %v", after.State, after.PID)
	}
	if now, ok := w.supervisor(); !ok || now.PID != sup.PID {
		t.Error("the supervisor was touched")
	}
	if b, _ := os.ReadFile(out); !strings.Contains(string(b), w.home) {
		t.Errorf("castctl inside did not reach its own manager: %s", b)
	}
}

// TestInsideStartsNoSupervisor: inside an instance no command starts this home's
// supervisor; it says so. A supervisor of another home is the agent's own
// affair, and ends with it.
func TestInsideStartsNoSupervisor(t *testing.T) {
	w := newWorld(t)
	castctl := filepath.Join(programs, "castctl")
	base := w.base
	script := `while [ ! -e go ]; do sleep 0.01; done
` + castctl + ` sweep >sweep 2>&1; echo $? >>sweep
` + castctl + ` supervise >supervise 2>&1; echo $? >>supervise
` + castctl + ` status >status 2>&1; echo $? >>status
` + castctl + ` --home ` + base + `/other start x -- sleep 100001 >elsewhere 2>&1; echo $? >>elsewhere
echo >done; exec sleep 100000`
	w.must("start", "outer", "--cwd", base, "--", "sh", "-c", script)
	w.must("down")
	write(t, filepath.Join(base, "go"))
	until(t, "the agent is done", func() bool { _, err := os.Lstat(filepath.Join(base, "done")); return err == nil })
	for name, want := range map[string]string{"sweep": "from inside one of its own instances", "supervise": "from inside one of its own instances", "status": "outer", "elsewhere": "x runs"} {
		b, _ := os.ReadFile(filepath.Join(base, name))
		if !strings.Contains(string(b), want) {
			t.Errorf("%s inside: %s", name, b)
		}
	}
	if n := w.supervisors(); n != 1 { // the other home's
		t.Errorf("%d supervisors live", n)
	}
	w.must("stop", "outer")
	if n := w.count("sleep 10000"); n != 0 {
		t.Errorf("%d agents are left of what the agent started under another home", n)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestStopItself: an agent that stops its own instance is stopped.
func TestStopItself(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--", "sh", "-c", "sleep 0.1; "+filepath.Join(programs, "castctl")+" stop a; exec sleep 100000")
	w.waitState("a", wire.Stopped)
	if n := w.count("sleep 100000"); n != 0 {
		t.Errorf("%d agents live", n)
	}
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/wire"
)

// crashPoints lists the named crash points of the source, so that a new one is
// never left out.
func crashPoints(t *testing.T) []string {
	t.Helper()
	at := regexp.MustCompile(`crashpoint\.At\("([a-z.]+)"\)`)
	var out []string
	for _, dir := range []string{"lease", "registry", "supervisor", "internal"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, m := range at.FindAllStringSubmatch(string(b), -1) {
				out = append(out, m[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestCrashAtEveryPoint kills, at each named point of start, stop, sweep, record
// writing and registry commit, the process that arrives there, and goes on as a
// person would: the same request again, with the same id.
func TestCrashAtEveryPoint(t *testing.T) {
	points := crashPoints(t)
	if len(points) < 20 {
		t.Fatalf("only %d crash points found: %v", len(points), points)
	}
	for _, point := range points {
		passages := 3
		if strings.HasPrefix(point, "file.") || point == "journal.append" {
			passages = 8 // every file passes there
		}
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= passages; n++ {
				if reached := crashLife(t, point, n); !reached && n == 1 {
					t.Errorf("nothing in the life of an instance passes %s", point)
				} else if !reached {
					break
				}
			}
		})
	}
}

// crashLife lives the whole life of two instances, with one murder in it. It
// reports whether the point was reached.
func crashLife(t *testing.T, point string, n int) (reached bool) {
	w := newWorld(t)
	once := filepath.Join(w.base, "once")
	w.env = append(w.env, fmt.Sprintf("CAST_CRASHPOINT=%s@%d", point, n), "CAST_CRASHPOINT_ONCE="+once)
	life := &life{world: w, receipts: map[string]string{}}
	life.run(t)
	_, err := os.Lstat(once)
	if t.Failed() {
		t.Logf("the murder was at %s, passage %d, reached: %v", point, n, err == nil)
	}
	return err == nil
}

// life is one scenario. Every request is repeated until it succeeds, and the
// receipt must be the same each time.
type life struct {
	*world
	receipts map[string]string
}

func (l *life) run(t *testing.T) {
	d := l.diary("a")
	argv, _ := json.Marshal(append([]string{}, d.script(sitStill)[1:]...))
	base := l.base
	env, _ := json.Marshal(map[string]string{"PATH": os.Getenv("PATH"), markName: l.mark})
	l.insist(t, "start-a", fmt.Sprintf(`{"op":"start","name":"a","spec":{"argv":%s,"cwd":%q,"restart":{"policy":"always","limit":50,"backoff_ms":0}},"env":%s}`, argv, base, env))
	l.insist(t, "start-n", fmt.Sprintf(`{"op":"start","name":"n","spec":{"argv":[%q,"--memory"],"cwd":%q,"dialect":"ndjson"},"env":%s}`,
		filepath.Join(programs, "supercast-agent"), base, env))
	l.waitState("a", wire.Running)
	l.waitState("n", wire.Running)
	l.one(t)
	l.insist(t, "submit-n", `{"op":"submit","instance":"n","command":{"op":"binary_score","probability":0.5,"outcome":true}}`)

	// The agent dies, then its host.
	before := l.instance("a").Run
	l.strike("a", func(in wire.Instance) *int { return in.PID })
	l.waitRun("a", before+1)
	before = l.instance("a").Run
	l.strike("a", func(in wire.Instance) *int { return in.HostPID })
	l.cast("sweep") // the knife may fall here
	l.waitRun("a", before+1)
	l.one(t)

	l.cast("down")
	l.insist(t, "sweep", `{"op":"sweep"}`)
	l.insist(t, "stop-a", `{"op":"stop","instance":"a"}`)
	l.insist(t, "stop-n", `{"op":"stop","instance":"n"}`)
	l.waitState("a", wire.Stopped)
	if left := l.agentsLeft(); left != 0 {
		t.Errorf("%d agents live after the stop", left)
	}
	l.checkJournal(t, "a")
	l.checkExits(t, l.instance("a"), l.instance("a").Run)
	for id := range l.receipts {
		l.again(t, id)
	}
	l.insist(t, "remove-a", `{"op":"remove","instance":"a"}`)
	until(t, "the folder of a removed instance is gone", func() bool {
		specs, _ := filepath.Glob(filepath.Join(l.home, "instances", "*", "instance.json"))
		return len(specs) == 1
	})
}

// insist sends a request until it succeeds.
func (l *life) insist(t *testing.T, id, command string) {
	t.Helper()
	line := fmt.Sprintf(`{"version":1,"id":%q,"command":%s}`, id, command) + "\n"
	var last string
	for range 30 {
		r := l.castWith(line, nil, "rpc")
		last = r.stdout + r.stderr
		if r.code == 0 {
			l.keep(t, id, line, r.stdout)
			return
		}
		if id == "submit-n" && strings.Contains(r.stdout, `"delivery":"unknown"`) && strings.Contains(r.stdout, "may have acted") {
			return // the one honest answer when the host died on it
		}
	}
	t.Fatalf("%s never succeeds: %s", id, last)
}

// keep remembers the receipt and compares it with an earlier one.
func (l *life) keep(t *testing.T, id, line, response string) {
	t.Helper()
	r := decode[struct {
		Result struct {
			Receipt jsontext.Value `json:"receipt"`
		} `json:"result"`
	}](t, response)
	receipt := string(r.Result.Receipt)
	if old, had := l.receipts[line]; had && old != receipt {
		t.Errorf("%s: the receipt was %s and is %s", id, old, receipt)
	}
	l.receipts[line] = receipt
}

// again repeats a request that succeeded.
func (l *life) again(t *testing.T, line string) {
	t.Helper()
	if strings.Contains(line, `"op":"start"`) {
		return // it would only wait for its goal again
	}
	r := l.castWith(line, nil, "rpc")
	if r.code != 0 {
		t.Errorf("%s again: %s%s", line, r.stdout, r.stderr)
		return
	}
	l.keep(t, line, line, r.stdout)
}

// one verifies that exactly one agent of each instance lives.
func (l *life) one(t *testing.T) {
	t.Helper()
	until(t, "one agent of each instance lives", func() bool { return l.agentsLeft() == 2 })
}

// agentsLeft counts the living agents: shells that became sleep, and the ledger.
func (l *life) agentsLeft() int {
	n := 0
	for _, id := range l.processes() {
		line := commandLine(id.PID)
		if strings.HasPrefix(line, "sleep 100000") || strings.Contains(line, "supercast-agent --memory") {
			n++
		}
	}
	return n
}

// strike kills a process of an instance, if it was not struck already.
func (l *life) strike(name string, which func(wire.Instance) *int) {
	in := l.instance(name)
	pid := which(in)
	if pid == nil {
		return
	}
	if id, err := proc.Of(*pid); err == nil && id.Signal(syscall.SIGKILL) == nil {
		awaitGone(l.t, id)
	}
}

// waitRun waits until the instance's agent runs for at least the n-th time.
func (l *life) waitRun(name string, n int) {
	l.t.Helper()
	until(l.t, fmt.Sprintf("run %d of %s", n, name), func() bool {
		in := l.instance(name)
		if in.State == wire.Lost || in.State == wire.Unknown {
			l.cast("sweep") // no supervisor lives
		}
		return in.State == wire.Running && in.Run >= n
	})
}

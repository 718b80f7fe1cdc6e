package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// programs is the folder with the real programs, built once for all tests of
// this package: castctl with its crash points, the demo agent, the fake agent.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "castctl-test-")
	if err == nil {
		err = buildPrograms(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		programs = dir
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// readSources reads what the programs are built from, so that go test knows that
// the result depends on it: what only a built program runs is not in the test
// itself, and a cached success would hide its failures. What TestMain reads does
// not count.
var readSources = sync.OnceValue(func() error {
	return filepath.WalkDir(filepath.Join("..", ".."), func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bench" || d.Name() == "bin" || d.Name() == ".git"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go" || d.Name() == "go.mod":
			_, err = os.ReadFile(path)
		}
		return err
	})
})

func buildPrograms(dir string) error {
	flags := []string{"build", "-tags", "crashpoints,urfave_cli_no_docs", "-o", dir + "/"}
	if os.Getenv("CAST_TEST_RACE") != "" { // slower by much, so not by default
		flags = append(flags, "-race")
	}
	cmd := exec.Command("go", append(flags, "./cmd/castctl", "./cmd/supercast-agent", "./testdata/agents/fakeagent")...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the programs cannot be built: %w\n%s", err, out)
	}
	return nil
}

// world is one home with everything that lives in it. Its processes carry a
// mark in their environment or the home in their command line, by which the test
// finds them; nothing of it may be left at the end.
type world struct {
	t    *testing.T
	base string // folder of the home and of what the test puts beside it
	home string
	mark string
	env  []string
	user *syscall.Credential // who the commands are; nil is the tests' own user
}

const markName = "CASTTEST_WORLD"

// newWorld makes an empty world and checks at the end that nothing is left of it.
func newWorld(t *testing.T) *world {
	t.Helper()
	if err := readSources(); err != nil {
		t.Fatal(err)
	}
	base := shortTempDir(t)
	w := &world{t: t, base: base, home: filepath.Join(base, "home"), mark: wire.NewID()}
	w.env = []string{
		"PATH=" + programs + ":" + os.Getenv("PATH"), "HOME=" + base, "TMPDIR=" + base, "CAST_HOME=" + w.home,
		markName + "=" + w.mark, "GORACE=halt_on_error=0 log_path=" + filepath.Join(base, "race"),
	}
	t.Cleanup(w.end)
	return w
}

// shortTempDir is a temporary folder whose path leaves room for sockets.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cast")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// end stops everything, and fails the test if anything had to be helped or a
// data race was seen in one of the programs.
func (w *world) end() {
	r := w.cast("down", "--all")
	if r.code != 0 {
		w.t.Errorf("down --all: exit code %d: %s", r.code, r.stderr)
	}
	for _, id := range w.processes() {
		w.t.Errorf("process %d is left: %s", id.PID, commandLine(id.PID))
		id.Kill()
	}
	races, _ := filepath.Glob(filepath.Join(w.base, "race.*"))
	for _, path := range races {
		b, _ := os.ReadFile(path)
		w.t.Errorf("a data race in a program:\n%s", b)
	}
	if w.t.Failed() {
		w.explain()
	}
}

// explain shows what the programs logged.
func (w *world) explain() {
	logs, _ := filepath.Glob(filepath.Join(w.home, "log", "*.log"))
	hosts, _ := filepath.Glob(filepath.Join(w.home, "instances", "*", "host.log"))
	for _, path := range append(logs, hosts...) {
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			w.t.Logf("%s:\n%s", path, b[max(0, len(b)-8<<10):])
		}
	}
}

// processes lists what lives of the world.
func (w *world) processes() []proc.Identity {
	pids, err := proc.PIDs()
	if err != nil {
		w.t.Fatal(err)
	}
	var out []proc.Identity
	for _, pid := range pids {
		if pid == os.Getpid() || !proc.Marked(pid, markName, w.mark) && !strings.Contains(commandLine(pid), w.home) && !strings.Contains(commandLine(pid), w.base+"/") {
			continue
		}
		if id, err := proc.Of(pid); err == nil {
			out = append(out, id)
		}
	}
	return out
}

func commandLine(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(bytes.ReplaceAll(bytes.TrimRight(b, "\x00"), []byte{0}, []byte{' '}))
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(programs, "castctl"), args...)
	cmd.Env = w.env
	cmd.Dir = w.base
	if w.user != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: w.user}
	}
	return cmd
}

// cast runs castctl to its end.
func (w *world) cast(args ...string) result { return w.castWith("", nil, args...) }

func (w *world) castWith(stdin string, env []string, args ...string) result {
	var out, errs bytes.Buffer
	cmd := w.command(args...)
	cmd.Env = append(append([]string{}, w.env...), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	r := result{stdout: out.String(), stderr: errs.String()}
	var ee *exec.ExitError
	switch {
	case err == nil:
	case asExit(err, &ee):
		r.code = ee.ExitCode()
	default:
		w.t.Fatalf("castctl %s: %v", strings.Join(args, " "), err)
	}
	return r
}

func asExit(err error, to **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError)
	*to = e
	return ok
}

// must runs castctl and fails the test if it does not succeed.
func (w *world) must(args ...string) string {
	w.t.Helper()
	r := w.cast(args...)
	if r.code != 0 {
		w.t.Fatalf("castctl %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// refused runs castctl, wants that exit code, and returns the one line that says
// why.
func (w *world) refused(code int, args ...string) string {
	w.t.Helper()
	r := w.cast(args...)
	if r.code != code {
		w.t.Fatalf("castctl %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.code, code, r.stdout, r.stderr)
	}
	if !strings.HasPrefix(r.stderr, "castctl: ") {
		w.t.Errorf("castctl %s does not say why: %q", strings.Join(args, " "), r.stderr)
	}
	return r.stderr
}

func decode[T any](t *testing.T, s string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("%v in %q", err, s)
	}
	return v
}

func (w *world) status() wire.Status {
	w.t.Helper()
	return decode[wire.Status](w.t, w.must("status", "--json"))
}

func (w *world) instance(name string) wire.Instance {
	w.t.Helper()
	return decode[wire.Instance](w.t, w.must("status", name, "--json"))
}

// events reads an instance's journal.
func (w *world) events(name string, types ...wire.EventType) []wire.Event {
	w.t.Helper()
	args := []string{"events", name}
	for _, t := range types {
		args = append(args, "--type", string(t))
	}
	var out []wire.Event
	for line := range strings.Lines(w.must(args...)) {
		out = append(out, decode[wire.Event](w.t, line))
	}
	return out
}

// supervisor is the identity of the living supervisor.
func (w *world) supervisor() (proc.Identity, bool) {
	home, err := lease.FindHome(w.home)
	if err != nil {
		return proc.Identity{}, false
	}
	s, err := home.Living()
	return s.Identity, err == nil
}

// killSupervisor ends the living supervisor as an impatient person would.
func (w *world) killSupervisor() {
	w.t.Helper()
	id, ok := w.supervisor()
	if !ok {
		w.t.Fatal("no supervisor lives")
	}
	kill9(w.t, id)
}

// identity captures the process behind a PID of a status.
func identity(t *testing.T, pid *int) proc.Identity {
	t.Helper()
	if pid == nil {
		t.Fatal("there is no process")
	}
	id, err := proc.Of(*pid)
	if err != nil {
		t.Fatalf("process %d: %v", *pid, err)
	}
	return id
}

// kill9 sends SIGKILL to a verified process and waits until it is dead.
func kill9(t *testing.T, id proc.Identity) {
	t.Helper()
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatalf("kill -9 %d: %v", id.PID, err)
	}
	awaitGone(t, id)
}

// bound is how long anything in these tests may take before it counts as
// hanging. Nothing is measured by it.
const bound = 60 * time.Second

// awaitGone waits until a process is dead.
func awaitGone(t *testing.T, id proc.Identity) {
	t.Helper()
	p, v := id.Open()
	if v == proc.Gone {
		return
	}
	if p == nil {
		t.Fatalf("process %d is %s", id.PID, v)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		t.Fatalf("process %d (%s) does not end: %v", id.PID, commandLine(id.PID), err)
	}
}

// until waits for something that no event tells.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	over := time.After(bound)
	for !holds() {
		select {
		case <-look.C:
		case <-over:
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// waitState waits until an instance is in one of the states.
func (w *world) waitState(name string, states ...wire.State) wire.Instance {
	w.t.Helper()
	var in wire.Instance
	until(w.t, fmt.Sprintf("%s is %v", name, states), func() bool {
		r := w.cast("status", name, "--json")
		if r.code != 0 {
			return false // not there yet
		}
		in = decode[wire.Instance](w.t, r.stdout)
		for _, s := range states {
			if in.State == s {
				return true
			}
		}
		return false
	})
	return in
}

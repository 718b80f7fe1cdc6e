package transport_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/transport"
)

// patience is how long a test waits before it calls something lost.
const patience = 30 * time.Second

// buildFake builds the scripted agent once for all tests.
var buildFake = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fakeagent")
	if err != nil {
		return "", err
	}
	// Read, so that go test knows that the result depends on them.
	sources, err := filepath.Glob("../testdata/agents/fakeagent/*.go")
	for _, source := range sources {
		if err == nil {
			_, err = os.ReadFile(source)
		}
	}
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "fakeagent")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/agents/fakeagent")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// removeFake is for TestMain, after all tests.
func removeFake() {
	if path, err := buildFake(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
}

// fake is a scripted agent under a transport, with what was told so far.
type fake struct {
	*transport.Subprocess
	t    testing.TB
	mark string // its tree's environment has it, and no other's

	mu   sync.Mutex // guards the fields below
	told []string   // "kind text", in order
	more chan struct{}
}

// setup changes a fake agent's configuration before it is started.
type setup func(*transport.Config, *transport.Handlers)

// startFake starts the scripted agent with flags. Nothing of its tree is left
// after the test.
func startFake(t testing.TB, change setup, flags ...string) *fake {
	t.Helper()
	path, err := buildFake()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, change, append([]string{path}, flags...)...)
}

func startProgram(t testing.TB, change setup, argv ...string) *fake {
	t.Helper()
	f := &fake{t: t, mark: rand.Text(), more: make(chan struct{})}
	cfg := transport.Config{
		Path: argv[0], Argv: argv, Env: append(os.Environ(), markEnv+"="+f.mark),
		Exited: func(e proc.Exit) { f.tell("exited", e.String()) },
	}
	on := transport.Handlers{
		Message: func(b []byte) { f.tell("message", string(b)) },
		Stderr:  func(b []byte) { f.tell("stderr", string(b)) },
		Closed:  func(reason string) { f.tell("closed", reason) },
		Notice:  func(n transport.Notice) { f.tell("notice", fmt.Sprintf("%s %d", n.Kind, n.Bytes)) },
	}
	if change != nil {
		change(&cfg, &on)
	}
	f.Subprocess = transport.NewSubprocess(cfg, on)
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.end)
	return f
}

const markEnv = "TRANSPORT_TEST_MARK"

// tree lists the living processes of the agent's tree, wherever they hang.
func (f *fake) tree() []int {
	pids, err := proc.PIDs()
	if err != nil {
		f.t.Fatal(err)
	}
	return proc.Living(slices.DeleteFunc(pids, func(pid int) bool { return !proc.Marked(pid, markEnv, f.mark) }))
}

// end kills whatever is left of the tree.
func (f *fake) end() {
	f.kill()
	for _, pid := range f.tree() {
		id, err := proc.Of(pid)
		if err == nil {
			err = id.Kill()
		}
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			f.t.Errorf("process %d is left: %v", pid, err)
		}
	}
}

func (f *fake) kill() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Close(ctx); err != nil {
		f.t.Errorf("Close: %v", err)
	}
}

func (f *fake) tell(kind, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, kind+" "+text)
	close(f.more)
	f.more = make(chan struct{})
}

// all returns what was told of some kinds, in order.
func (f *fake) all(kinds ...string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, s := range f.told {
		if kind, _, _ := strings.Cut(s, " "); slices.Contains(kinds, kind) {
			out = append(out, s)
		}
	}
	return out
}

// await waits until n of a kind were told.
func (f *fake) await(kind string, n int) {
	f.t.Helper()
	lost := time.After(patience)
	for {
		f.mu.Lock()
		more := f.more
		f.mu.Unlock()
		if len(f.all(kind)) >= n {
			return
		}
		select {
		case <-more:
		case <-lost:
			f.t.Fatalf("only %d of %d came: %s", len(f.all(kind)), n, kind)
		}
	}
}

// ask sends a request and returns its answer, the next message.
func (f *fake) ask(command string) string {
	f.t.Helper()
	n := len(f.all("message"))
	if err := f.Write(fmt.Appendf(nil, `{"version":1,"id":"r%d","command":%s}`, n, command)); err != nil {
		f.t.Fatal(err)
	}
	f.await("message", n+1)
	return f.all("message")[n]
}

// wait waits for something that must happen.
func wait(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: does not come", what)
	}
}

// eventually looks until something is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	lost := time.After(patience)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !so() {
		select {
		case <-look.C:
		case <-lost:
			t.Fatalf("%s: does not become so", what)
		}
	}
}

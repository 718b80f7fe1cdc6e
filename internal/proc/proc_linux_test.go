//go:build linux

package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func identityOf(t *testing.T, pid int) Identity {
	t.Helper()
	id, err := Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestZombieIsGone: a process that died and was not collected is gone, has no
// identity, and takes no signal.
func TestZombieIsGone(t *testing.T) {
	cmd := sleeper(t)
	id := identityOf(t, cmd.Process.Pid)
	p, v := id.Open()
	if v != Alive {
		t.Fatal(v)
	}
	defer p.Close()
	cmd.Process.Kill()
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := readStat(id.PID); err != nil || !st.dead() {
		t.Fatalf("it is no zombie: %+v, %v", st, err)
	}
	if v := id.Verdict(); v != Gone {
		t.Errorf("verdict %s", v)
	}
	if _, err := Of(id.PID); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("identity: %v", err)
	}
	if err := id.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("signal: %v", err)
	}
}

// TestThreadIsNobody: a thread's number is no process, though kill would reach
// its process.
func TestThreadIsNobody(t *testing.T) {
	tid := make(chan int)
	quit := make(chan struct{})
	defer close(quit)
	for range 2 { // one of them may get the main thread
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tid <- unix.Gettid()
			<-quit
		}()
	}
	n, other := <-tid, <-tid
	if n == os.Getpid() {
		n = other
	}
	id := identityOf(t, os.Getpid())
	id.PID = n
	for _, inode := range []uint64{id.PidfdInode, 0} {
		id.PidfdInode = inode
		if v := id.Verdict(); v != Gone {
			t.Errorf("with pidfd inode %d: %s", inode, v)
		}
		if err := id.Signal(0); err == nil {
			t.Error("a thread was signalled")
		}
	}
	if _, err := Of(n); err == nil {
		t.Error("a thread has an identity")
	}
}

// TestWaitEnds: a wait ends with the process, or with its context, and can be
// begun again.
func TestWaitEnds(t *testing.T) {
	cmd := sleeper(t)
	p, v := identityOf(t, cmd.Process.Pid).Open()
	if v != Alive {
		t.Fatal(v)
	}
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Wait(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled meanwhile: %v", err)
	}
	go func() { done <- p.Wait(t.Context()) }()
	cmd.Process.Kill()
	if err := <-done; err != nil {
		t.Errorf("the process ended: %v", err)
	}
}

// TestChildTellsHowItEnded: code and signal arrive as they were, once, and the
// group cannot be signalled after that.
func TestChildTellsHowItEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   Exit
		says   string
	}{
		"code":   {"exit 3", Exit{Code: 3}, "exited with code 3"},
		"zero":   {"exit 0", Exit{}, "exited with code 0"},
		"signal": {"kill -9 $$", Exit{Signal: 9}, "terminated by signal 9"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Start(Command{Path: "/bin/sh", Argv: []string{"sh", "-c", tc.script}, Files: []*os.File{nil, nil, nil}, NewSession: true})
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Wait(t.Context())
			if err != nil || got != tc.want || got.String() != tc.says {
				t.Errorf("%+v (%s), %v", got, got, err)
			}
			if err := c.SignalGroup(syscall.SIGKILL); !errors.Is(err, ErrGone) {
				t.Errorf("signal to the group of a reaped child: %v", err)
			}
		})
	}
}

// TestStartLeaksNothing: a child gets the descriptors that it was given and no
// others.
func TestStartLeaksNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, err := Start(Command{Path: "/bin/sh", Argv: []string{"sh", "-c", "ls -l /proc/self/fd"}, Env: []string{"PATH=/bin:/usr/bin"}, Files: []*os.File{nil, w, nil}})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 64<<10)
	n := 0
	for {
		m, err := r.Read(out[n:])
		n += m
		if err != nil {
			break
		}
	}
	c.Wait(t.Context())
	lines := strings.Count(string(out[:n]), "->")
	if lines != 4 { // 0, 1, 2, and the folder that ls reads
		t.Errorf("the child sees:\n%s", out[:n])
	}
}

// TestChildrensPipesBlock: a child that writes more than a pipe holds waits, and
// gets no error.
func TestChildrensPipesBlock(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, err := Start(Command{Path: "/bin/sh", Argv: []string{"sh", "-c", "yes | head -c 1000000"}, Env: []string{"PATH=/bin:/usr/bin"}, Files: []*os.File{nil, w, nil}})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, r); err != nil || n != 1_000_000 {
		t.Errorf("%d bytes came through: %v", n, err)
	}
	if exit, err := c.Wait(t.Context()); err != nil || !exit.Success() {
		t.Errorf("the child %v, %v", exit, err)
	}
}

// TestBusyProgram (P40): a program that is still open for writing is started as
// soon as it is not.
func TestBusyProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool")
	b, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(path).Run(); !errors.Is(err, syscall.ETXTBSY) {
		t.Skipf("this system runs a program that is open for writing: %v", err)
	}
	started := make(chan error)
	go func() {
		c, err := Start(Command{Path: path, Argv: []string{"tool"}, Files: []*os.File{nil, nil, nil}})
		if err == nil {
			_, err = c.Wait(context.Background())
		}
		started <- err
	}()
	f.Close()
	if err := <-started; err != nil {
		t.Error(err)
	}
}

// TestTreeCatchesTheDoubleFork: a subreaper ends every descendant, also those
// that left the group and the session, and one that ignores SIGTERM.
func TestTreeCatchesTheDoubleFork(t *testing.T) {
	if os.Getenv("CAST_TREE") == "" {
		// In a process of its own: being a subreaper is for life.
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestTreeCatchesTheDoubleFork$", "-test.v")
		cmd.Env = append(os.Environ(), "CAST_TREE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := BecomeSubreaper(); err != nil {
		t.Fatal(err)
	}
	script := `trap "" TERM
sleep 1001 &
setsid sh -c 'sleep 1002 & exec sleep 1003' &
( ( setsid sleep 1004 & ) & )
exec sleep 1000`
	c, err := Start(Command{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/bin:/usr/bin"}, Files: []*os.File{nil, nil, nil}, NewSession: true})
	if err != nil {
		t.Fatal(err)
	}
	sleeps := func() (out []string) {
		for _, pid := range Tree(os.Getpid(), nil) {
			if in, err := Describe(pid); err == nil && len(in.Args) == 2 && in.Args[0] == "sleep" {
				out = append(out, in.Args[1])
			}
		}
		slices.Sort(out)
		return out
	}
	for want := fmt.Sprint([]string{"1000", "1001", "1002", "1003", "1004"}); fmt.Sprint(sleeps()) != want; {
		runtime.Gosched()
	}
	owned := func(pid int) bool { return pid == c.PID() }
	if left := EndTree(t.Context(), nil, owned); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if exit, err := c.Wait(t.Context()); err != nil || exit.Signal != syscall.SIGKILL {
		t.Errorf("the child: %v, %v", exit, err)
	}
	ReapAdopted(nil)
	if HasChildren() {
		t.Errorf("children are left: %v", Children(os.Getpid()))
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (a b) S 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22"))
	f.Add([]byte("1 (evil ) R 1) Z 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22"))
	f.Add([]byte("1 () S"))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := parseStat(b)
		if err == nil && st.state == 0 {
			t.Errorf("%q has no state", b)
		}
	})
}

func BenchmarkVerdict(b *testing.B) {
	id, err := Self()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		id.Verdict()
	}
}

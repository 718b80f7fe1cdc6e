//go:build linux

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/shirou/gopsutil/v3/process"
	"golang.org/x/sys/unix"
)

// Some tests need a PID namespace of their own: the test binary runs itself
// again as its process 1, with this variable saying what to do there.
const insideVariable = "CAST_PROC_TEST_INSIDE"

var insides = map[string]func() error{
	"reuse":   reuseInside,
	"hidepid": hidepidInside,
}

func TestMain(m *testing.M) {
	if what, ok := insides[os.Getenv(insideVariable)]; ok {
		if err := what(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	Isolate()
	os.Exit(m.Run())
}

// inNamespace runs one of the insides in a PID and mount namespace of its own.
func inNamespace(t *testing.T, what string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a PID namespace")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), insideVariable+"="+what)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func mountProc(options string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, options); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// TestForcedReuse (T07, P5, P6): when another process has the number, the verdict
// is gone, and the impostor gets no signal.
func TestForcedReuse(t *testing.T) {
	out := inNamespace(t, "reuse")
	t.Log(out)
}

const reuses = 200

// reuseInside forces the kernel to give a dead process's number to the next.
func reuseInside() error {
	if err := mountProc(""); err != nil {
		return err
	}
	sameSecond := 0
	for range reuses {
		dead, created, err := bornAndDied()
		if err != nil {
			return err
		}
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(dead.PID-1)), 0); err != nil {
			return err
		}
		impostor := exec.Command("sleep", "1000")
		if err := impostor.Start(); err != nil {
			return err
		}
		if impostor.Process.Pid != dead.PID {
			return fmt.Errorf("the number %d was not reused but %d", dead.PID, impostor.Process.Pid)
		}
		if now, err := (&process.Process{Pid: int32(dead.PID)}).CreateTime(); err == nil && now/1000 == created/1000 {
			sameSecond++
		}
		if err := judgeImpostor(dead, impostor); err != nil {
			return err
		}
		impostor.Process.Kill()
		impostor.Wait()
	}
	fmt.Printf("%d numbers reused; a start time in seconds could not tell %d of them apart\n", reuses, sameSecond)
	if sameSecond < reuses/2 {
		return fmt.Errorf("the reuse was not fast enough to prove anything")
	}
	return nil
}

func bornAndDied() (Identity, int64, error) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		return Identity{}, 0, err
	}
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		return id, 0, err
	}
	created, err := (&process.Process{Pid: int32(id.PID)}).CreateTime()
	cmd.Process.Kill()
	cmd.Wait()
	return id, created, err
}

func judgeImpostor(dead Identity, impostor *exec.Cmd) error {
	if dead.PidfdInode == 0 {
		return fmt.Errorf("this kernel's pidfds have no inode: start ticks alone cannot tell every reuse")
	}
	if v := dead.Verdict(); v != Gone {
		return fmt.Errorf("the dead process %d is %s", dead.PID, v)
	}
	if err := dead.Signal(syscall.SIGKILL); err == nil {
		return fmt.Errorf("a signal was sent")
	}
	if err := dead.Kill(); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	id, err := Of(impostor.Process.Pid)
	if err != nil {
		return fmt.Errorf("the impostor was hit: %w", err)
	}
	if id.Same(dead) {
		return fmt.Errorf("the two are taken for the same")
	}
	return nil
}

// TestHidepid: a process that /proc hides is unknown, never gone, and is not
// signalled.
func TestHidepid(t *testing.T) { inNamespace(t, "hidepid") }

func hidepidInside() error {
	if err := mountProc("hidepid=invisible"); err != nil {
		return err
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		return err
	}
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		return err
	}
	// Group 0 may see all, so it goes too.
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
		return err
	}
	if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id.PID)); err == nil {
		return fmt.Errorf("/proc hides nothing")
	}
	whole := id
	id.PidfdInode = 0 // as recorded by an older kernel
	for _, judged := range []Identity{id, whole} {
		if v := judged.Verdict(); v == Gone {
			return fmt.Errorf("a hidden process is gone: %+v", judged)
		}
	}
	if v := id.Verdict(); v != Unknown {
		return fmt.Errorf("a hidden process is %s, want unknown", v)
	}
	if err := whole.Signal(syscall.SIGKILL); err == nil {
		return fmt.Errorf("another user's process was signalled")
	}
	if b, err := bornAndDiedAs(whole); err != nil {
		return fmt.Errorf("%s: %w", b, err)
	}
	return nil
}

// bornAndDiedAs checks that the process which was not to be signalled lives on.
func bornAndDiedAs(id Identity) (string, error) {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return "the process", err
	}
	defer unix.Close(fd)
	if exited(fd) {
		return "the process", os.ErrProcessDone
	}
	return "", nil
}

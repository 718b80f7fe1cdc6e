package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/castctl/castctl/wire"
)

// untouchable is the name under which this test program, as a setuid program,
// becomes what its starter may not signal.
const untouchable = "untouchable"

// init takes root's identity altogether, and waits.
func init() {
	if filepath.Base(os.Args[0]) != untouchable {
		return
	}
	if err := syscall.Setresuid(0, 0, 0); err != nil {
		panic(err)
	}
	for {
		syscall.Pause()
	}
}

// asNobody makes all further commands of a world those of a user without
// privileges.
func (w *world) asNobody() {
	w.t.Helper()
	if os.Getuid() != 0 {
		w.t.Skip("it needs root: a setuid program, and another user to run it")
	}
	w.user = &syscall.Credential{Uid: 65534, Gid: 65534}
	for path, mode := range map[string]os.FileMode{programs: 0o755, w.base: 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.Chown(w.base, 65534, 65534); err != nil {
		w.t.Fatal(err)
	}
}

// setuidCopy is this test program under another name, owned by root and setuid.
func setuidCopy(t *testing.T, path string) {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
}

// TestEscaped (5.2, P19): what may not be signalled is named, the command exits
// 1, and everything else of the tree is gone. The stop is over for all that.
func TestEscaped(t *testing.T) {
	w := newWorld(t)
	w.asNobody()
	program := filepath.Join(w.base, untouchable)
	setuidCopy(t, program)
	w.must("start", "a", "--stop-timeout", "2s", "--", "sh", "-c", program+" & sleep 100001 & wait")
	var pid int
	until(t, "the program has become root", func() bool {
		for _, id := range w.processes() {
			if commandLine(id.PID) == program {
				st, err := os.Stat("/proc/" + strconv.Itoa(id.PID))
				pid = id.PID
				return err == nil && st.Sys().(*syscall.Stat_t).Uid == 0 && realUID(id.PID) == "0"
			}
		}
		return false
	})
	defer func() {
		for _, id := range w.processes() {
			if id.PID == pid {
				id.Kill()
			}
		}
	}()

	r := w.cast("stop", "a")
	if r.code != exitRefused || !strings.Contains(r.stderr, "could not be ended, the first is "+strconv.Itoa(pid)) {
		t.Errorf("stop: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if in := w.instance("a"); in.State != wire.Stopped || in.HostPID != nil {
		t.Errorf("it is %s", in.State)
	}
	if n := w.count("sleep 100001"); n != 0 {
		t.Errorf("%d other processes live", n)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
		t.Errorf("the program is gone: %v", err)
	}
}

// realUID is the user whose signals a process takes, besides root's.
func realUID(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 3 && f[0] == "Uid:" && f[1] == f[3] {
			return f[1]
		}
	}
	return ""
}

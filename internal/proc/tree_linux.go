//go:build linux

package proc

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Children lists the direct children of a process, zombies included, from the
// kernel's own lists. A process that cannot be read has none.
func Children(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	tasks, err := names(dir)
	if err != nil {
		return nil
	}
	var out []int
	for _, t := range tasks {
		for _, f := range bytes.Fields(readAll(dir + "/" + t + "/children")) {
			if n, err := strconv.Atoi(string(f)); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// names lists a directory.
func names(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// readAll reads a file of /proc with three system calls, where [os.ReadFile]
// needs eleven. It returns nil if the file cannot be read.
func readAll(path string) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 1024)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if n <= 0 || err != nil {
			return b
		}
		b = b[:len(b)+n]
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// parentOf returns the parent, and whether the process is already dead.
func parentOf(pid int) (ppid int, dead bool, err error) {
	st, err := readStat(pid)
	if err != nil {
		return 0, false, err
	}
	return st.ppid, st.dead(), nil
}

// HasChildren reports whether the calling process has any child at all, dead
// or alive. Unlike a list read from /proc, the answer is exact.
func HasChildren() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return !errors.Is(err, unix.ECHILD)
}

// PIDs lists every process of this PID namespace that /proc shows.
func PIDs() ([]int, error) {
	all, err := names("/proc")
	if err != nil {
		return nil, err
	}
	out := make([]int, 0, len(all))
	for _, n := range all {
		if pid, err := strconv.Atoi(n); err == nil {
			out = append(out, pid)
		}
	}
	return out, nil
}

// environ returns a process's initial environment, NUL-separated.
func environ(pid int) ([]byte, error) {
	return os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
}

// Holders lists the processes that hold a descriptor on the given file. Only
// the caller's own user's processes can be seen.
func Holders(path string) []int {
	var want unix.Stat_t
	if unix.Stat(path, &want) != nil {
		return nil
	}
	pids, err := PIDs()
	if err != nil {
		return nil
	}
	var out []int
	for _, pid := range pids {
		if holds(pid, &want) {
			out = append(out, pid)
		}
	}
	return out
}

func holds(pid int, want *unix.Stat_t) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	all, _ := names(dir)
	for _, n := range all {
		var st unix.Stat_t
		if unix.Stat(dir+"/"+n, &st) == nil && st.Dev == want.Dev && st.Ino == want.Ino {
			return true
		}
	}
	return false
}

// Reap collects a dead child that was not started through [Start]: one that
// fell to the caller as a subreaper. ok is false if it still lives or is no
// child of the caller.
func Reap(pid int) (e Exit, ok bool) {
	var ws syscall.WaitStatus
	got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
	if err != nil || got != pid {
		return Exit{}, false
	}
	return ExitOf(ws), true
}

// SameProgram reports whether a process may run the program that the caller
// does: the same file, or one of the same name, as after an update.
func SameProgram(pid int) bool {
	theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil {
		return false
	}
	ours, err := os.Readlink("/proc/self/exe")
	return err == nil && programName(theirs) == programName(ours)
}

func programName(path string) string {
	return strings.TrimSuffix(filepath.Base(path), " (deleted)")
}

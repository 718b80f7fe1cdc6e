//go:build darwin

package proc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Children lists the direct children of a process, zombies included.
func Children(pid int) []int {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	var out []int
	for i := range all {
		if int(all[i].Eproc.Ppid) == pid {
			out = append(out, int(all[i].Proc.P_pid))
		}
	}
	return out
}

// parentOf returns the parent, and whether the process is already dead.
func parentOf(pid int) (ppid int, dead bool, err error) {
	k, err := kinfo(pid)
	if err != nil {
		return 0, false, err
	}
	return int(k.Eproc.Ppid), k.Proc.P_stat == zombie, nil
}

// HasChildren reports whether the calling process has any child at all.
func HasChildren() bool { return len(Children(syscall.Getpid())) > 0 }

// PIDs lists every process.
func PIDs() ([]int, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	out := make([]int, 0, len(all))
	for i := range all {
		out = append(out, int(all[i].Proc.P_pid))
	}
	return out, nil
}

// environ returns a process's initial environment, NUL-separated, out of
// KERN_PROCARGS2: argc, the executable's path, NULs, argv, environment.
func environ(pid int) ([]byte, error) {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return nil, err
	}
	if len(b) < 4 {
		return nil, errors.New("short process arguments")
	}
	argc := int(binary.NativeEndian.Uint32(b))
	_, rest, ok := bytes.Cut(b[4:], []byte{0})
	if !ok {
		return nil, errors.New("process arguments without a path")
	}
	rest = bytes.TrimLeft(rest, "\x00")
	for range argc {
		if _, rest, ok = bytes.Cut(rest, []byte{0}); !ok {
			return nil, nil
		}
	}
	return rest, nil
}

// Holders finds nobody: macOS shows no other process's descriptors here.
func Holders(string) []int { return nil }

// Reap collects a dead child that was not started through [Start].
func Reap(pid int) (e Exit, ok bool) {
	var ws syscall.WaitStatus
	got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
	if err != nil || got != pid {
		return Exit{}, false
	}
	return ExitOf(ws), true
}

// SameProgram reports whether a process may run the program that the caller
// does, by its short name.
func SameProgram(pid int) bool {
	theirs, err := kinfo(pid)
	if err != nil {
		return false
	}
	ours, err := kinfo(syscall.Getpid())
	return err == nil && theirs.Proc.P_comm == ours.Proc.P_comm
}

//go:build linux

package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

var machineIDFiles = []string{"/etc/machine-id", "/var/lib/dbus/machine-id"}

func hardwareID() string { return "" }

var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

var pidNamespace = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
})

// Of captures the identity of a running process. It returns
// [os.ErrProcessDone] if the process ended meanwhile.
func Of(pid int) (Identity, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return ofWithoutPidfd(pid)
	}
	if err != nil {
		return Identity{}, notFound(err)
	}
	defer unix.Close(fd)
	// The handle first, then /proc, then the handle again: what was read
	// between two proofs of life belongs to that process.
	id, err := ofWithoutPidfd(pid)
	if err != nil {
		return Identity{}, err
	}
	if exited(fd) {
		return Identity{}, os.ErrProcessDone
	}
	id.PidfdInode = pidfdInode(fd)
	return id, nil
}

func ofWithoutPidfd(pid int) (Identity, error) {
	st, err := readStat(pid)
	if err != nil {
		return Identity{}, notFound(err)
	}
	if st.dead() {
		return Identity{}, os.ErrProcessDone
	}
	return Identity{
		PID: pid, StartTicks: st.start, BootID: bootID(), MachineID: MachineID(), PIDNamespace: pidNamespace(),
	}, nil
}

func notFound(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
		return os.ErrProcessDone
	}
	return err
}

// open is Open for a process of this boot, machine and namespace.
func (id Identity) open() (*Process, Verdict) {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	switch {
	case err == nil:
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return nil, Gone // EINVAL and ENOENT: the number is a thread's now
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return id.openWithoutPidfd() // old kernel, seccomp
	default:
		return nil, Unknown // EMFILE, ENFILE, ENOMEM
	}
	if v := id.confirm(fd); v != Alive {
		unix.Close(fd)
		return nil, v
	}
	return newProcess(id, fd), Alive
}

// confirm proves that an open pidfd is the identity's, and alive.
func (id Identity) confirm(fd int) Verdict {
	if inode := pidfdInode(fd); inode != 0 && id.PidfdInode != 0 {
		if inode != id.PidfdInode {
			return Gone
		}
	} else {
		st, err := readStat(id.PID)
		switch {
		case err != nil && exited(fd):
			return Gone
		case err != nil:
			return Unknown // hidepid, /proc not mounted
		case st.start != id.StartTicks:
			return Gone
		}
	}
	if exited(fd) { // a zombie's pidfd is readable
		return Gone
	}
	return Alive
}

func (id Identity) openWithoutPidfd() (*Process, Verdict) {
	st, err := readStat(id.PID)
	switch {
	case err != nil && errors.Is(syscall.Kill(id.PID, 0), syscall.ESRCH):
		return nil, Gone
	case err != nil:
		return nil, Unknown
	case st.start != id.StartTicks || st.dead():
		return nil, Gone
	}
	return newProcess(id, -1), Alive
}

// pidfdInode is the inode of a pidfd on pidfs; 0 on kernels where all pidfds
// share one anonymous inode.
func pidfdInode(fd int) uint64 {
	var sfs unix.Statfs_t
	if unix.Fstatfs(fd, &sfs) != nil || sfs.Type != unix.PID_FS_MAGIC {
		return 0
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Ino
}

// exited reports whether the process of a pidfd has ended (a zombie has).
func exited(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(p, 0)
	return n > 0
}

// stat is what Cast reads of /proc/PID/stat.
type stat struct {
	state         byte
	ppid, session int
	pgrp          int
	tty           int
	start         uint64
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat reads the fields after the command name, which stands in
// parentheses and may itself hold spaces and parentheses (proc_pid_stat(5)).
func parseStat(b []byte) (stat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, fmt.Errorf("stat without a command name: %q", b)
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("short stat: %q", b)
	}
	s := stat{state: f[0][0]}
	for _, n := range []struct {
		to    *int
		field int
	}{{&s.ppid, 1}, {&s.pgrp, 2}, {&s.session, 3}, {&s.tty, 4}} {
		v, err := strconv.Atoi(string(f[n.field]))
		if err != nil {
			return stat{}, fmt.Errorf("stat field %d: %w", n.field+3, err)
		}
		*n.to = v
	}
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("stat start time: %w", err)
	}
	s.start = start
	return s, nil
}

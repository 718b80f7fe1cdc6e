//go:build linux

package proc

import (
	"context"
	"math"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// handle is the child's pidfd; nil on kernels without.
type handle struct{ pidfd *os.File }

func (h handle) close() {
	if h.pidfd != nil {
		h.pidfd.Close()
	}
}

func (c *Child) start(path string, argv []string, attr *syscall.ProcAttr) error {
	fd := -1
	attr.Sys.PidFD = &fd
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return err
	}
	c.pid = pid
	if fd >= 0 {
		syscall.SetNonblock(fd, true)
		c.handle.pidfd = os.NewFile(uintptr(fd), "pidfd")
	}
	return nil
}

// ended waits for the child's end without reaping it.
func (c *Child) ended(ctx context.Context) error {
	if c.handle.pidfd != nil {
		return waitReadable(ctx, c.handle.pidfd)
	}
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, c.pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("waitid", err)
		}
		if info.Signo != 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond): // kernels before 5.3 only
		}
	}
}

// Isolate keeps every descriptor that the process inherited, besides the
// standard three, from being handed on. Without it a daemon that a script starts
// would hold that script's own locks and pipes for ever.
func Isolate() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	fds, err := os.ReadDir("/proc/self/fd") // kernels before 5.11
	if err != nil {
		return
	}
	for _, f := range fds {
		if n, err := strconv.Atoi(f.Name()); err == nil && n > 2 {
			syscall.CloseOnExec(n)
		}
	}
}

// BecomeSubreaper makes the calling process the parent of every descendant
// whose own parent dies (prctl PR_SET_CHILD_SUBREAPER).
func BecomeSubreaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

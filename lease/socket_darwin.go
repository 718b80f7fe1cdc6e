//go:build darwin

package lease

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func unixSocket() (int, error) {
	syscall.ForkLock.RLock() // no flag closes it in a child that is forked meanwhile
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	return fd, err
}

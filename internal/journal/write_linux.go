//go:build linux

package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync makes a file's content durable.
func datasync(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return os.ErrClosed
	}
	var inner error
	if err := raw.Control(func(fd uintptr) {
		for {
			if inner = unix.Fdatasync(int(fd)); inner != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return os.ErrClosed
	}
	return inner
}

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

// reserve makes sure that size bytes at offset can be written. Readers see
// nothing of it. A file system without reservations promises nothing.
func reserve(f *os.File, offset int64, size int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) {
		for {
			if inner = unix.Fallocate(int(fd), unix.FALLOC_FL_KEEP_SIZE, offset, int64(size)); inner != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return err
	}
	if inner == unix.EOPNOTSUPP || inner == unix.ENOSYS {
		return nil
	}
	return inner
}

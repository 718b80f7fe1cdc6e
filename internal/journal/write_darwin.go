//go:build darwin

package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync makes a file's content durable (F_FULLFSYNC, by the os package).
func datasync(f *os.File) error { return f.Sync() }

// reserve makes sure that size bytes at the end of the file can be written.
// Readers see nothing of it. A file system without reservations promises
// nothing.
func reserve(f *os.File, _ int64, size int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	store := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: int64(size)}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = unix.FcntlFstore(fd, unix.F_PREALLOCATE, &store) }); err != nil {
		return err
	}
	if inner == unix.ENOSPC || inner == unix.EDQUOT {
		return inner
	}
	return nil
}

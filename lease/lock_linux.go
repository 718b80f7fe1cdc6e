//go:build linux

package lease

import (
	"io"

	"golang.org/x/sys/unix"
)

// Open file description locks: they belong to the descriptor, not to the
// process, so they are inherited by a child and survive exec (fcntl(2)).

func whole(kind int16) *unix.Flock_t { return &unix.Flock_t{Type: kind, Whence: io.SeekStart} }

func tryLock(fd int) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, whole(unix.F_WRLCK))
}

func waitLock(fd int) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLKW, whole(unix.F_WRLCK))
}

func probeLock(fd int) (held bool, err error) {
	l := whole(unix.F_WRLCK)
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, l); err != nil {
		return false, err
	}
	return l.Type != unix.F_UNLCK, nil
}

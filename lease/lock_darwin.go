//go:build darwin

package lease

import (
	"errors"

	"golang.org/x/sys/unix"
)

func tryLock(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }

func waitLock(fd int) error { return unix.Flock(fd, unix.LOCK_EX) }

// probeLock takes a shared lock for an instant: macOS cannot ask, and two
// probers must not see each other.
func probeLock(fd int) (held bool, err error) {
	err = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, unix.Flock(fd, unix.LOCK_UN)
}

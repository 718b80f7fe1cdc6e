//go:build linux

package forecast

import (
	"os"

	"golang.org/x/sys/unix"
)

// anonymous makes a file that has no name and never had one.
func anonymous() (*os.File, error) {
	fd, err := unix.MemfdCreate("supercast-ledger", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "memory"), nil
}

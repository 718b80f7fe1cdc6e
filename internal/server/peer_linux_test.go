//go:build linux

package server_test

import "syscall"

// becomeThread changes the effective user of the calling thread alone.
func becomeThread(uid int) error {
	keep := ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		return errno
	}
	return nil
}

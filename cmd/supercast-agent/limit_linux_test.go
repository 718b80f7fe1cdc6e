//go:build linux

package main

import "golang.org/x/sys/unix"

// prlimitFileSize limits how large files a process can write.
func prlimitFileSize(pid int, most uint64) error {
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: unix.RLIM_INFINITY}, nil)
}

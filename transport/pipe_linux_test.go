package transport

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func pipeSize(t testing.TB, f *os.File) int {
	return ask(t, f, func(fd uintptr) (int, error) { return unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) })
}

func pipeHolds(t testing.TB, f *os.File) int {
	return ask(t, f, func(fd uintptr) (int, error) { return unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
}

func ask(t testing.TB, f *os.File, what func(fd uintptr) (int, error)) int {
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	raw.Control(func(fd uintptr) { n, err = what(fd) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

package transport_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// pending is how many bytes wait in the pipe that is a process's descriptor.
func pending(t *testing.T, pid, fd int) int {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

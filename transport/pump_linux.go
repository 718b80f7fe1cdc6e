//go:build linux

package transport

import (
	"os"

	"golang.org/x/sys/unix"
)

const defaultPipe = 64 << 10

// resizePipe asks for another pipe size. The kernel may refuse (a user's pipes
// are limited together, pipe(7)); the stream is then only slower.
func resizePipe(f *os.File, size int) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size) })
	}
}

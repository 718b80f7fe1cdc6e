package journal

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// writeAll appends all parts, in one system call if the kernel takes them all:
// an agent's output is not copied behind its line first.
func writeAll(f *os.File, parts [][]byte) error {
	if len(parts) == 1 {
		_, err := f.Write(parts[0])
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = writev(int(fd), parts) }); err != nil {
		return err
	}
	return inner
}

func writev(fd int, parts [][]byte) error {
	for len(parts) > 0 {
		n, err := unix.Writev(fd, parts)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		parts = advance(parts, n)
	}
	return nil
}

// advance leaves out the first n bytes.
func advance(parts [][]byte, n int) [][]byte {
	for len(parts) > 0 && n >= len(parts[0]) {
		n -= len(parts[0])
		parts = parts[1:]
	}
	if n > 0 {
		parts = append([][]byte{parts[0][n:]}, parts[1:]...)
	}
	return parts
}

package transport

import "golang.org/x/sys/unix"

// mapBuffer returns memory that unmapBuffer gives back to the system at once,
// which the Go heap would do minutes later.
func mapBuffer(size int) []byte {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, size)
	}
	return b
}

// unmapBuffer gives it back. A buffer that came from the Go heap instead is
// refused by Munmap and left to the collector.
func unmapBuffer(b []byte) { _ = unix.Munmap(b) }

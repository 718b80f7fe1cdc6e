//go:build darwin

package proc

import (
	"context"
	"os"
	"strconv"
	"syscall"
)

// handle is nothing on macOS: an unreaped child's PID is handle enough.
type handle struct{}

func (handle) close() {}

func (c *Child) start(path string, argv []string, attr *syscall.ProcAttr) error {
	pid, err := syscall.ForkExec(path, argv, attr)
	c.pid = pid
	return err
}

// ended waits for the child's end without reaping it.
func (c *Child) ended(ctx context.Context) error {
	id, err := Of(c.pid)
	if err != nil {
		return nil // a zombie: it has ended
	}
	return (&Process{id: id}).Wait(ctx)
}

// Isolate keeps every descriptor that the process inherited, besides the
// standard three, from being handed on.
func Isolate() {
	fds, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, f := range fds {
		if n, err := strconv.Atoi(f.Name()); err == nil && n > 2 {
			syscall.CloseOnExec(n)
		}
	}
}

// BecomeSubreaper does nothing: macOS has no subreapers, so a double-forked
// descendant is found by its mark only.
func BecomeSubreaper() error { return nil }

package proc

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// Command says how to start a child process. Nothing of the caller's leaks
// into it but what stands here.
type Command struct {
	Path string   // the program's file, already looked up
	Argv []string // with the program's name as first element
	Env  []string // the whole environment
	Dir  string
	// Files become descriptors 0, 1, 2, 3 and so on of the child; nil stands
	// for /dev/null.
	Files []*os.File
	// NewSession puts the child into a session and a process group of its own.
	NewSession bool
}

// Child is a process that the caller started. It must be waited for, once.
type Child struct {
	pid int

	mu     sync.Mutex // guards reaped; held over every use of the PID as a number
	reaped bool

	handle handle
}

// Start starts a child.
func Start(c Command) (*Child, error) {
	files := make([]uintptr, len(c.Files))
	var null *os.File
	for i, f := range c.Files {
		if f == nil {
			if null == nil {
				var err error
				if null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
					return nil, err
				}
				defer null.Close()
			}
			f = null
		}
		// Fd makes the file blocking: the flag is shared with the child, and few
		// programs expect EAGAIN from their standard output.
		files[i] = f.Fd()
	}
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: c.NewSession}}
	ch := new(Child)
	err := ch.start(c.Path, c.Argv, attr)
	for pause := time.Millisecond; errors.Is(err, syscall.ETXTBSY) && pause < busyBound; pause *= 2 {
		time.Sleep(pause)
		err = ch.start(c.Path, c.Argv, attr)
	}
	if err != nil {
		return nil, &os.PathError{Op: "exec", Path: c.Path, Err: err}
	}
	return ch, nil
}

// busyBound is the last pause before a program that is still being written is
// given up. A fresh program's writer may have passed its descriptor to a child
// that is about to exec, and nobody can wait for that (golang/go#22315).
const busyBound = 500 * time.Millisecond

// PID returns the child's process number. It stays the child's until Wait has
// returned.
func (c *Child) PID() int { return c.pid }

// Identity captures the child's identity. It fails with [os.ErrProcessDone]
// once the child has ended.
func (c *Child) Identity() (Identity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return Identity{}, os.ErrProcessDone
	}
	return Of(c.pid)
}

// Signal sends sig to the child alone.
func (c *Child) Signal(sig syscall.Signal) error { return c.kill(c.pid, sig) }

// SignalGroup sends sig to the process group that the child leads. The number
// is the group's only while the child is not reaped, so afterwards nothing is
// sent and [ErrGone] returned.
func (c *Child) SignalGroup(sig syscall.Signal) error { return c.kill(-c.pid, sig) }

func (c *Child) kill(pid int, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return ErrGone
	}
	err := syscall.Kill(pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return ErrGone
	}
	return err
}

// Wait waits for the child's own end, whoever still holds its output, reaps it
// and returns how it ended.
func (c *Child) Wait(ctx context.Context) (Exit, error) {
	if err := c.ended(ctx); err != nil {
		return Exit{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.handle.close()
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(c.pid, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return Exit{}, os.NewSyscallError("wait4", err)
		}
		c.reaped = true
		return ExitOf(ws), nil
	}
}

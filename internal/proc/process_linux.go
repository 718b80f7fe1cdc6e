//go:build linux

package proc

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a handle on one verified process. It is a pidfd where the kernel
// has them; elsewhere it re-checks the identity before every signal.
type Process struct {
	id   Identity
	file *os.File // the pidfd, in the runtime's poller; nil without pidfds
}

// newProcess takes ownership of a non-blocking pidfd, or of none (-1).
func newProcess(id Identity, fd int) *Process {
	if fd < 0 {
		return &Process{id: id}
	}
	return &Process{id: id, file: os.NewFile(uintptr(fd), "pidfd")}
}

// Identity returns the identity on which the handle was opened.
func (p *Process) Identity() Identity { return p.id }

// Close releases the handle.
func (p *Process) Close() error {
	if p.file == nil {
		return nil
	}
	return p.file.Close()
}

// Signal sends sig. It returns [ErrGone] if the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if p.file == nil {
		h, v := p.id.openWithoutPidfd()
		if h == nil {
			return &NotSignalled{PID: p.id.PID, Verdict: v}
		}
		return gone(syscall.Kill(p.id.PID, sig))
	}
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return err
	}
	return gone(sent)
}

func gone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return err
}

// Wait returns nil when the process has ended, or the context's error. The
// process need not be a child; it is not reaped. One Wait at a time.
func (p *Process) Wait(ctx context.Context) error {
	if p.file == nil {
		return p.poll(ctx)
	}
	return waitReadable(ctx, p.file)
}

// waitReadable parks the goroutine, not a thread, until a pidfd is readable:
// a host keeps as few threads as it can.
func waitReadable(ctx context.Context, pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		pidfd.SetReadDeadline(time.Unix(0, 1))
		close(cancelled)
	})
	err = raw.Read(func(fd uintptr) bool { return exited(int(fd)) })
	if stop() {
		return err
	}
	<-cancelled
	pidfd.SetReadDeadline(time.Time{})
	if err != nil {
		return ctx.Err()
	}
	return nil
}

// poll watches a process without a pidfd. Such kernels are older than 5.3.
func (p *Process) poll(ctx context.Context) error {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		if h, v := p.id.openWithoutPidfd(); h == nil && v == Gone {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// SelfExe is the path by which the caller starts its own program again: the
// very file that it runs, whatever stands at the old path by now.
func SelfExe() string { return "/proc/self/exe" }

// NameSelf sets the name that process listings show: one that was started
// through [SelfExe] would be called exe.
func NameSelf(name string) { os.WriteFile("/proc/self/comm", []byte(name), 0) }

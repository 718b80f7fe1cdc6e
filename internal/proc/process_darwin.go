//go:build darwin

package proc

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a handle on one verified process. macOS has no handle that pins
// a process, so every signal re-checks the identity first.
type Process struct{ id Identity }

// Identity returns the identity on which the handle was opened.
func (p *Process) Identity() Identity { return p.id }

// Close releases the handle.
func (p *Process) Close() error { return nil }

// Signal sends sig. It returns [ErrGone] if the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if h, v := p.id.open(); h == nil {
		return &NotSignalled{PID: p.id.PID, Verdict: v}
	}
	err := unix.Kill(p.id.PID, sig)
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return err
}

// Wait returns nil when the process has ended, or the context's error. The
// process need not be a child; it is not reaped.
func (p *Process) Wait(ctx context.Context) error {
	kq, err := unix.Kqueue()
	if err != nil {
		return err
	}
	defer unix.Close(kq)
	unix.CloseOnExec(kq)
	watch := []unix.Kevent_t{{Ident: uint64(p.id.PID), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT}}
	if _, err := unix.Kevent(kq, watch, nil, nil); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	events := make([]unix.Kevent_t, 1)
	slice := unix.NsecToTimespec(int64(200 * time.Millisecond)) // how long a cancelled wait may linger
	for {
		// Registered first, judged after: a death in between is not missed.
		if h, v := p.id.open(); h == nil && v == Gone {
			return nil
		}
		if _, err := unix.Kevent(kq, nil, events, &slice); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// SelfExe is the path by which the caller starts its own program again.
func SelfExe() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// NameSelf does nothing: listings show the program's own name here.
func NameSelf(string) {}

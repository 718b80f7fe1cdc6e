package proc

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrGone says that the process which a signal or a wait was meant for has
// ended.
var ErrGone = errors.New("process is gone")

// NotSignalled is why a signal was not sent: the identity's verdict was not
// [Alive].
type NotSignalled struct {
	PID     int
	Verdict Verdict
}

func (e *NotSignalled) Error() string {
	return fmt.Sprintf("process %d was not signalled: its verdict is %s", e.PID, e.Verdict)
}

// Is makes a NotSignalled for a dead process match [ErrGone].
func (e *NotSignalled) Is(target error) bool { return target == ErrGone && e.Verdict == Gone }

// Signal sends sig to the process that the identity names, or to nobody.
func (id Identity) Signal(sig syscall.Signal) error {
	p, v := id.Open()
	if p == nil {
		return &NotSignalled{PID: id.PID, Verdict: v}
	}
	defer p.Close()
	return p.Signal(sig)
}

// Exit is how a process ended.
type Exit struct {
	Code   int            // exit code; meaningful when Signal is 0
	Signal syscall.Signal // the signal that ended it, or 0
}

// ExitOf reads the status that wait4 returned.
func ExitOf(ws syscall.WaitStatus) Exit {
	if ws.Signaled() {
		return Exit{Signal: ws.Signal()}
	}
	return Exit{Code: ws.ExitStatus()}
}

// Success reports whether the process exited with code 0.
func (e Exit) Success() bool { return e.Code == 0 && e.Signal == 0 }

// String says it as a person would: "exited with code 3", "terminated by
// signal 9".
func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("terminated by signal %d", int(e.Signal))
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

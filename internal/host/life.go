package host

import (
	"time"

	"github.com/castctl/castctl/internal/dialect"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/transport"
	"github.com/castctl/castctl/wire"
)

// life is where the agent stands: the facts from which the state follows, and
// the runs that are not settled yet.
type life struct {
	current  *run // the agent that lives; nil when none does
	ending   []*run
	clearing bool // an old tree is being ended before the next start
	timer    *time.Timer

	run      int // of the last start
	restarts Restarts
	exit     *wire.Exit
	untold   []ExitFile // exits that do not stand in the journal yet, in order
	reason   string
	quitting string // why the host leaves although nobody stopped the instance
	over     wire.State
	stopping *stop
	stopped  *wire.StopDone
	again    bool          // a restart by hand follows the stop
	recorded chan struct{} // closed when every exit so far is in the journal
}

// run is one life of the agent.
type run struct {
	n       int
	sub     *transport.Subprocess
	dialect dialect.Dialect
	id      *proc.Identity
	started time.Time
	// gate holds the run's output back until the exit of the run before is in
	// the journal, so that events stand in their order. The agent runs already.
	gate <-chan struct{}
	dead chan struct{} // closed when the process has ended and was reaped
	hold *lease.Hold   // of a process that is never idle; nil for others
	// patience is how often its output is still tried on a full disk, once it is
	// dead. It belongs to whoever reads the output.
	patience int
}

func (r *run) isDead() bool {
	select {
	case <-r.dead:
		return true
	default:
		return false
	}
}

func (l *life) facts() facts {
	return facts{
		over:     l.over,
		stopping: l.stopping != nil && !l.again,
		agent:    l.current != nil,
		clearing: l.clearing,
		backoff:  l.timer != nil,
	}
}

func (l *life) state() wire.State { return next(l.facts()) }

// settled reports whether nothing of any run is left to be told.
func (l *life) settled() bool {
	return l.current == nil && len(l.ending) == 0 && !l.clearing && l.stopping == nil
}

// pid is the agent's process, if one lives.
func (l *life) pid() *int {
	if l.current == nil {
		return nil
	}
	pid := l.current.sub.Child().PID()
	return &pid
}

func (l *life) since() *time.Time {
	if l.current == nil {
		return nil
	}
	t := l.current.started.UTC().Truncate(time.Microsecond)
	return &t
}

func (l *life) stderrTail() []string {
	if l.current == nil {
		return nil
	}
	return l.current.sub.StderrTail(tailLines)
}

// tailLines is how many lines of standard error go with an exit.
const tailLines = 20

func (l *life) dialectName(s wire.Spec) wire.Dialect { return dialect.Recognise(s.Dialect, s.Argv) }

// owns reports whether a child's status is collected elsewhere.
func (l *life) owns(pid int) bool { return l.current != nil && l.current.sub.Child().PID() == pid }

// stopTimer cancels a pending start.
func (l *life) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

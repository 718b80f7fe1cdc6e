package host

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// Config is what a host is started with.
type Config struct {
	Home        lease.Home
	ID          string
	Incarnation string // chosen by the supervisor and committed before the spawn
	// Alive is the instance's alive lock if the spawner took it already: then
	// there is no moment at which a host is on its way and nobody can see it.
	Alive      *os.File
	Version    string
	BuildID    func() string // computed only when somebody asks
	Foreground bool          // in a person's terminal: never leaves by itself
	Echo       io.Writer     // where a foreground host shows its agent's output; may be nil
	// OrphanGrace is how long an unnamed host stays; 0 is the usual time.
	OrphanGrace time.Duration
	// Ask asks the registry whether it names this host.
	Ask func(ctx context.Context, id, incarnation, registry string) lease.Answer
	// Published is called once the host can be reached, with its record as a line
	// of JSON.
	Published func(record []byte)
	Log       *slog.Logger
}

// Host is one running host. All fields belong to the goroutine of loop, except
// where a type guards itself.
type Host struct {
	cfg     Config
	folder  lease.Folder
	locked  locked
	file    SpecFile
	journal *journal.Journal
	memory  *memory
	backlog backlog
	holds   *lease.Holds
	door    *door
	life    life
	turns   turns
	leasing leasing
	errors  *errorLog

	steps steps
	told  told
}

// steps is how the loop is given work, and told to end.
type steps struct {
	inbox chan func()
	done  chan struct{} // closed when loop has returned
	dirty atomic.Bool   // the state may have changed
	leave bool          // loop ends after this step
	// reaping is true while a collecting of adopted processes is due.
	reaping bool
}

// told is what others know of the state.
type told struct {
	state wire.StateData // of the last state event
	// statuses counts those given out, so that who gets two can tell the newer.
	statuses uint64
}

// Run is the whole life of a host: it returns when the instance is over or the
// host had to leave. The caller's process must do nothing else.
func Run(ctx context.Context, cfg Config) error {
	h := &Host{
		cfg: cfg, folder: cfg.Home.Instance(cfg.ID), memory: newMemory(), holds: new(lease.Holds),
		steps: steps{inbox: make(chan func(), 16), done: make(chan struct{})},
	}
	h.holds.OnChange(h.change)
	if err := proc.BecomeSubreaper(); err != nil {
		return err
	}
	if err := h.open(ctx); err != nil {
		return err
	}
	defer h.close()
	h.begin()
	h.loop(ctx)
	return nil
}

// post hands a step to the owner. It gives up when the owner has ended.
func (h *Host) post(step func()) {
	select {
	case h.steps.inbox <- step:
	case <-h.steps.done:
	}
}

// change notes that the state may have changed. The next step of the loop looks.
func (h *Host) change() {
	if h.steps.dirty.CompareAndSwap(false, true) {
		select {
		case h.steps.inbox <- func() {}:
		default: // the loop has steps to do and will look after them
		}
	}
}

// loop owns the host until it leaves.
func (h *Host) loop(ctx context.Context) {
	defer close(h.steps.done)
	signals := make(chan os.Signal, 8)
	// HUP and PIPE are caught so that they do no harm, and not ignored: an
	// ignored signal would be inherited by the agent.
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	deaths := make(chan os.Signal, 1) // of its own: many of these must not crowd out those
	signal.Notify(deaths, syscall.SIGCHLD)
	defer signal.Stop(deaths)
	ended := ctx.Done()
	for !h.steps.leave {
		select {
		case step := <-h.steps.inbox:
			step()
		case s := <-signals:
			h.signalled(s)
		case <-deaths:
			h.reapSoon()
		case <-ended:
			ended = nil
			h.quit("told to end")
		}
		h.settle()
	}
}

func (h *Host) signalled(s os.Signal) {
	if s == syscall.SIGTERM || s == syscall.SIGINT {
		h.quit("the host was told to end by " + s.String())
	}
}

// reapDelay keeps the collecting of the adopted dead, which reads the list of
// all children, off the path on which the agent's own end is handled.
const reapDelay = 20 * time.Millisecond

func (h *Host) reapSoon() {
	if h.steps.reaping {
		return
	}
	h.steps.reaping = true
	time.AfterFunc(reapDelay, func() {
		h.post(func() {
			h.steps.reaping = false
			proc.ReapAdopted(h.life.owns)
		})
	})
}

// settle looks at the state after a step: it starts what can start now, and
// tells what changed.
func (h *Host) settle() {
	for h.steps.dirty.Swap(false) {
		h.dispatch()
		h.whenIdle()
		now := h.stateData()
		if !sameState(h.told.state, now) {
			h.told.state = now
			h.emit(wire.NewEvent(wire.EventState, now))
		}
		h.door.publish(h.status)
		if h.life.over != "" && h.life.settled() {
			h.refuseQueue()
			h.steps.leave = true
		}
	}
}

// stateData is what a state event tells.
func (h *Host) stateData() wire.StateData {
	return wire.StateData{
		State:    h.life.state(),
		Activity: h.activity(),
		Reason:   textOrNil(h.life.reason),
		Run:      h.life.run,
		PID:      h.life.pid(),
		Holds:    h.holdList(),
	}
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func sameState(a, b wire.StateData) bool {
	if a.State != b.State || a.Run != b.Run || !equal(a.Activity, b.Activity) || !equal(a.Reason, b.Reason) ||
		!equal(a.PID, b.PID) || len(a.Holds) != len(b.Holds) {
		return false
	}
	for i := range a.Holds {
		x, y := a.Holds[i], b.Holds[i]
		if x.Kind != y.Kind || x.Label != y.Label || !x.Since.Equal(y.Since) || !equal(x.PID, y.PID) {
			return false
		}
	}
	return true
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// status is everything that the host knows, for a watcher.
func (h *Host) status() *wire.HostStatus {
	h.told.statuses++
	return &wire.HostStatus{
		N:         h.told.statuses,
		State:     h.life.state(),
		Activity:  h.activity(),
		Reason:    textOrNil(h.life.reason),
		Run:       h.life.run,
		PID:       h.life.pid(),
		Since:     h.life.since(),
		Restarts:  h.memory.Restarts(),
		Exit:      h.life.exit,
		Holds:     h.holdList(),
		Sessions:  h.sessions(),
		At:        h.journal.Last().String(),
		Dialect:   h.life.dialectName(h.file.Spec),
		Stop:      h.life.stopped,
		Lease:     string(h.leasing.state),
		Revision:  h.file.Revision,
		EnvNames:  h.file.EnvNames,
		StderrEnd: h.life.stderrTail(),
	}
}

func (h *Host) holdList() []wire.Hold {
	reasons := h.holds.List()
	out := make([]wire.Hold, len(reasons))
	for i, r := range reasons {
		out[i] = wire.Hold{Kind: string(r.Kind), Label: r.Label, Since: r.Since.UTC().Truncate(time.Microsecond)}
		if r.PID != 0 {
			out[i].PID = &r.PID
		}
	}
	return out
}

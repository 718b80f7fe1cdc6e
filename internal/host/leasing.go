package host

import (
	"context"
	"sync"
	"time"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// leasing is where the host stands with the registry. A supervisor that is
// connected and named the host is the lease; without one the host asks.
type leasing struct {
	guard   *lease.Guard
	epoch   time.Time // monotonic zero of the guard's ticks
	started time.Time
	state   lease.State
	held    int // connections that named the host
	timer   *time.Timer
	asking  bool
	inode   uint64 // of the instance's folder
	waiting waiting

	mu    sync.Mutex // guards the fields below, which connections read
	reg   string     // uuid of the registry that named the host
	alias string     // the instance's name as last heard
}

func (l *leasing) registry() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reg
}

func (l *leasing) name() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alias
}

func (l *leasing) rename(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alias = name
}

func (l *leasing) tick() lease.Tick {
	return lease.Tick{Mono: time.Since(l.epoch), Wall: time.Now()}
}

// leased notes that a supervisor named the host. It says so again at each
// sweep, and the host takes that as the moment to look after its own record and
// socket: an idle host needs no timer for it.
func (h *Host) leased(v *visitor, c wire.HostLease) {
	if !v.leasing {
		v.leasing = true
		h.leasing.held++
	}
	h.leasing.mu.Lock()
	changed := h.leasing.reg != c.Registry || h.leasing.alias != c.Name
	h.leasing.reg, h.leasing.alias = c.Registry, c.Name
	h.leasing.mu.Unlock()
	h.file.Registry, h.file.Name = c.Registry, c.Name
	h.check(lease.Held)
	if h.leasing.timer != nil {
		h.leasing.timer.Stop()
		h.leasing.timer = nil
	}
	h.mend(changed)
}

// leaseLost begins to ask when the last naming connection is gone.
func (h *Host) leaseLost() {
	h.leasing.held--
	if h.leasing.held == 0 && h.leasing.timer == nil {
		h.askLater(0)
	}
}

// askLater asks the registry after a pause, then every interval, as long as no
// supervisor holds the lease.
func (h *Host) askLater(d time.Duration) {
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		h.post(func() {
			if h.leasing.timer == t && h.leasing.held == 0 {
				h.ask()
			}
		})
	})
	h.leasing.timer = t
}

// askBound is how long the registry may take to answer.
const askBound = 5 * time.Second

func (h *Host) ask() {
	if h.leasing.asking || h.cfg.Ask == nil {
		return
	}
	h.leasing.asking = true
	registry := h.leasing.registry()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), askBound)
		defer cancel()
		a := h.cfg.Ask(ctx, h.cfg.ID, h.cfg.Incarnation, registry)
		h.post(func() {
			h.leasing.asking = false
			if h.leasing.held > 0 {
				return
			}
			h.mend(false)
			if h.check(a) == lease.LeaseDraining {
				h.quit("the registry does not name this host any more, and nothing needs it")
				return
			}
			h.askLater(h.leasing.guard.Interval)
		})
	}()
}

// check takes an answer to the guard.
func (h *Host) check(a lease.Answer) lease.State {
	before := h.leasing.state
	h.leasing.state = h.leasing.guard.Check(h.leasing.tick(), a, h.folderStands())
	if h.leasing.state != before {
		h.steps.dirty.Store(true)
	}
	return h.leasing.state
}

// quit ends the host although nobody stopped the instance: a person told the
// process to end, or it is an orphan that nobody needs. The instance stays
// wanted as it was.
func (h *Host) quit(why string) {
	h.cfg.Log.Info("leaving", "why", why, "was", idleReason(h.holds.List()))
	h.life.quitting = why
	h.stopAgent(0, false, func(wire.StopDone) {})
}

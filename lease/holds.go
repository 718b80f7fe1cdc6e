package lease

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// Kind says why a hold keeps a process alive.
type Kind string

const (
	Turn       Kind = "turn"       // one prompt and all it causes
	Listener   Kind = "listener"   // a connected client
	Task       Kind = "task"       // a background command, a file being written
	Actor      Kind = "actor"      // a subagent, queued or running
	Permission Kind = "permission" // an unanswered request
	Update     Kind = "update"
)

// ErrLeaving refuses a hold: the process has decided to leave.
var ErrLeaving = errors.New("the process is leaving and takes no new work")

// Reason describes one hold to a person.
type Reason struct {
	Kind  Kind
	Label string
	Since time.Time
	PID   int // of the process that the hold is about; 0 if none
}

// Holds is the set of reasons why a process may not end now. The zero value is
// ready; the process counts as idle from the first use on.
type Holds struct {
	mu      sync.Mutex // guards the fields below
	open    []*Hold
	idle    time.Time // since when nothing is open; zero until first use
	leaving bool
	changed func()
	clock   func() time.Time // nil is time.Now
}

// Hold is one reason to stay. Release gives it up.
type Hold struct {
	set    *Holds
	reason Reason
}

// OnChange has fn called after every change of the set, outside its lock.
func (h *Holds) OnChange(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = fn
}

// Take opens a hold, or refuses with [ErrLeaving].
func (h *Holds) Take(kind Kind, label string, pid int) (*Hold, error) {
	h.mu.Lock()
	if h.leaving {
		h.mu.Unlock()
		return nil, ErrLeaving
	}
	hold := &Hold{set: h, reason: Reason{Kind: kind, Label: label, Since: h.now(), PID: pid}}
	h.open = append(h.open, hold)
	changed := h.changed
	h.mu.Unlock()
	if changed != nil {
		changed()
	}
	return hold, nil
}

// Release gives the hold up. Releasing twice, or a nil hold, does nothing.
func (d *Hold) Release() {
	if d == nil {
		return
	}
	h := d.set
	h.mu.Lock()
	i := slices.Index(h.open, d)
	if i < 0 {
		h.mu.Unlock()
		return
	}
	h.open = slices.Delete(h.open, i, i+1)
	if len(h.open) == 0 {
		h.idle = h.now()
	}
	changed := h.changed
	h.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// List returns the open holds, oldest first.
func (h *Holds) List() []Reason {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Reason, len(h.open))
	for i, d := range h.open {
		out[i] = d.reason
	}
	return out
}

// Idle reports whether nothing holds the process, and for how long.
func (h *Holds) Idle() (bool, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.idleFor()
}

func (h *Holds) idleFor() (bool, time.Duration) {
	if len(h.open) > 0 {
		return false, 0
	}
	if h.idle.IsZero() {
		h.idle = h.now()
	}
	return true, h.now().Sub(h.idle)
}

func (h *Holds) now() time.Time {
	if h.clock != nil {
		return h.clock()
	}
	return time.Now()
}

// Leave decides to leave if the process has been fully idle for at least the
// given time, and refuses all new work from then on. The decision and the
// refusal are one critical section: no work can slip between.
func (h *Holds) Leave(idleFor time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if idle, d := h.idleFor(); !idle || d < idleFor {
		return false
	}
	h.leaving = true
	return true
}

// Close refuses all new work from now on, whatever is still open: the process
// was told to stop.
func (h *Holds) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = true
}

package supervisor

import (
	"os"
	"sync"
	"time"

	"github.com/castctl/castctl/internal/proc"
)

// reaper collects the dead that fall to the supervisor as a subreaper: agents
// of dead hosts and what they left. Their real status is known here and nowhere
// else.
type reaper struct {
	mu    sync.Mutex // guards the fields below, and held over every fork
	owned map[int]bool
	dead  map[int]proc.Exit // the last few, by PID
	order []int
	due   bool // a collecting is on its way; the owner's
}

// collectDelay lets the dead gather: a stopped fleet is hundreds of them, and
// reading the list of all children is dear.
const collectDelay = 20 * time.Millisecond

// collectSoon collects the dead in a moment.
func (s *Supervisor) collectSoon() {
	if s.reaper.due {
		return
	}
	s.reaper.due = true
	s.later(collectDelay, func() {
		s.reaper.due = false
		s.reaper.collect()
	})
}

const keptDead = 256

// start starts a child whose status the caller collects himself.
func (r *reaper) start(c proc.Command) (*proc.Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	child, err := proc.Start(c)
	if err != nil {
		return nil, err
	}
	if r.owned == nil {
		r.owned = map[int]bool{}
	}
	r.owned[child.PID()] = true
	return child, nil
}

// release forgets a child that was waited for.
func (r *reaper) release(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owned, pid)
}

// collect reaps what died and is not owned.
func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pid := range proc.Children(os.Getpid()) {
		if r.owned[pid] {
			continue
		}
		exit, ok := proc.Reap(pid)
		if !ok {
			continue
		}
		if r.dead == nil {
			r.dead = map[int]proc.Exit{}
		}
		r.dead[pid] = exit
		r.order = append(r.order, pid)
		if len(r.order) > keptDead {
			delete(r.dead, r.order[0])
			r.order = r.order[1:]
		}
	}
}

// exitOf returns how a process ended that fell to the supervisor.
func (r *reaper) exitOf(pid int) (proc.Exit, bool) {
	r.collect()
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.dead[pid]
	return e, ok
}

package lease

import "time"

// Answer is what a process learns of its own registration.
type Answer string

const (
	Held       Answer = "held"       // a supervisor is connected: that is the lease
	Registered Answer = "registered" // the registry names this very incarnation
	Absent     Answer = "absent"     // the registry answered and does not know the id
	Superseded Answer = "superseded" // the registry names another incarnation
	Unasked    Answer = "unknown"    // no answer, or another registry's: changes nothing
)

// Tick is one moment on both clocks. Durations are taken from Mono only; the
// difference between the two shows a sleep of the machine.
type Tick struct {
	Mono time.Duration // monotonic, from any fixed point
	Wall time.Time
}

// Guard ends a process that nobody needs: one that the registry has not named
// for long enough and that does nothing. The zero value never ends anything;
// [NewGuard] gives the usual times.
type Guard struct {
	StartGrace  time.Duration // no end before this age
	OrphanGrace time.Duration // unnamed, and idle, for at least this long
	Interval    time.Duration // between two checks; a much longer gap restarts the count
	FolderGrace time.Duration // the folder missing for at least this long counts as absent
	Foreground  bool          // a process that a person watches never ends by itself
	Holds       *Holds

	started time.Duration
	last    Tick
	unnamed count
	noHome  count
}

// count is how often, and since when, something was seen without a break.
type count struct {
	n     int
	since time.Duration
}

func (c *count) see(seen bool, now time.Duration) {
	if !seen {
		*c = count{}
		return
	}
	if c.n == 0 {
		c.since = now
	}
	c.n++
}

// over reports whether it was seen at least twice over at least d.
func (c count) over(d, now time.Duration) bool { return c.n >= 2 && now-c.since >= d }

// NewGuard returns a guard with the usual times, its start-up grace beginning
// at now.
func NewGuard(holds *Holds, now Tick) *Guard {
	holds.Idle() // idleness counts from here on
	return &Guard{
		StartGrace:  2 * time.Minute,
		OrphanGrace: 60 * time.Second,
		Interval:    30 * time.Second,
		FolderGrace: 10 * time.Minute,
		Holds:       holds,
		started:     now.Mono,
		last:        now,
	}
}

// State is where a lease stands.
type State string

const (
	LeaseHeld     State = "held"
	LeaseMissing  State = "missing"  // unnamed, but not for long enough
	LeaseLost     State = "lost"     // unnamed for long enough; stays because of a hold or a grace
	LeaseDraining State = "draining" // decided: takes no new work and leaves
)

// Check takes one answer and decides. When it returns [LeaseDraining] the
// process must leave: its holds refuse new work already. folder tells whether
// the process's own folder still stands.
func (g *Guard) Check(now Tick, a Answer, folder bool) State {
	if g.gap(now) {
		// The machine slept or the process was stopped: what was seen before
		// says nothing about now.
		g.unnamed, g.noHome = count{}, count{}
	}
	g.last = now
	g.noHome.see(!folder, now.Mono)
	if a != Unasked {
		g.unnamed.see(a == Absent || a == Superseded, now.Mono)
	}
	lost := g.unnamed.over(g.OrphanGrace, now.Mono) || g.noHome.over(g.FolderGrace, now.Mono)
	switch {
	case !lost && g.unnamed.n == 0:
		return LeaseHeld
	case !lost:
		return LeaseMissing
	case g.Foreground, now.Mono-g.started < g.StartGrace, g.Holds == nil || !g.Holds.Leave(g.OrphanGrace):
		return LeaseLost
	default:
		return LeaseDraining
	}
}

// gap reports whether much more time has passed since the last check than lies
// between two checks, on either clock.
func (g *Guard) gap(now Tick) bool {
	if g.Interval <= 0 {
		return false
	}
	mono := now.Mono - g.last.Mono
	wall := now.Wall.Round(0).Sub(g.last.Wall.Round(0))
	return mono > 3*g.Interval || wall-mono > g.Interval
}

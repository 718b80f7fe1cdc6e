package host

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/wire"
)

const (
	maxBackoff = 60 * time.Second
	healthy    = 10 * time.Second // a run this long forgives the failures before
)

// Restarts decides what follows the end of a run. Both the host, for its
// agent, and the supervisor, for its hosts, keep one for each instance.
type Restarts struct {
	starts   []time.Time // automatic ones, in the window
	failures int         // in a row
	jitter   func() float64
}

// Decision is what follows the end of a run: another start after a pause, or
// nothing, because the instance is over.
type Decision struct {
	After  time.Duration
	Over   wire.State // finished or failed; empty for a restart
	Reason string
}

// Next decides after a run that began at started and ended at now.
func (r *Restarts) Next(spec wire.Spec, exit proc.Exit, started, now time.Time) Decision {
	policy := spec.RestartPolicy()
	if policy == wire.Never || policy == wire.OnFailure && exit.Success() {
		return Decision{Over: wire.Finished, Reason: exit.String()}
	}
	return r.Again(spec, exit.String(), started, now)
}

// Again decides as Next does when the policy asks for another run in any case.
func (r *Restarts) Again(spec wire.Spec, what string, started, now time.Time) Decision {
	if now.Sub(started) >= healthy {
		r.failures = 0
	}
	limit, window := spec.StartLimit()
	r.forget(now.Add(-window))
	if limit > 0 && len(r.starts) >= limit {
		return Decision{Over: wire.Failed, Reason: fmt.Sprintf("%s; restarted %d times in %v", what, limit, window)}
	}
	r.failures++
	r.starts = append(r.starts, now)
	return Decision{After: r.pause(spec.Backoff())}
}

// pause is 0 for the first failure, then doubles from the base up to a minute,
// with up to half of it random, so that many instances do not restart as one.
func (r *Restarts) pause(base time.Duration) time.Duration {
	if r.failures <= 1 || base <= 0 {
		return 0
	}
	d := maxBackoff
	if shift := r.failures - 2; shift < 16 {
		d = min(base<<shift, maxBackoff)
	}
	jitter := r.jitter
	if jitter == nil {
		jitter = rand.Float64
	}
	return d/2 + time.Duration(jitter()*float64(d/2))
}

func (r *Restarts) forget(before time.Time) {
	i := 0
	for i < len(r.starts) && !r.starts[i].After(before) {
		i++
	}
	r.starts = r.starts[i:]
}

// Clear forgets everything: a person started the instance.
func (r *Restarts) Clear() { r.starts, r.failures = nil, 0 }

package supervisor

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/wire"
)

// looker measures the fleet in the background while somebody looks at it. No
// request ever waits for a measurement.
type looker struct {
	until   atomic.Int64 // somebody looks until then, in nanoseconds after startedAt
	running atomic.Bool
}

// startedAt is the zero of the looker's clock.
var startedAt = time.Now()

const (
	lookFor      = 5 * time.Second // after the last look
	measureEvery = 2 * time.Second
	measureDelay = 300 * time.Millisecond // after a change, for the process to unfold
)

// usage is the last measurement of one tree.
type usage struct {
	proc.Usage
	at time.Time
}

func (u usage) fill(in *wire.Instance) {
	if u.at.IsZero() || in.PID == nil {
		return
	}
	in.RSSBytes, in.CPUSeconds = &u.RSS, wire.Ptr(u.CPU.Seconds())
	in.Processes, in.MeasuredAt = &u.Processes, &u.at
}

func (u usage) rss() *int64 {
	if u.at.IsZero() {
		return nil
	}
	return &u.RSS
}

// noticed keeps the measurements fresh for a while.
func (l *looker) noticed(s *Supervisor) {
	l.until.Store(int64(time.Since(startedAt) + lookFor))
	if l.running.CompareAndSwap(false, true) {
		go s.measureWhileLooked()
	}
}

// measureSoon measures once, a moment after something has changed.
func (s *Supervisor) measureSoon() {
	if s.look.running.CompareAndSwap(false, true) {
		go func() {
			time.Sleep(measureDelay)
			s.measureWhileLooked()
		}()
	}
}

func (s *Supervisor) measureWhileLooked() {
	defer s.look.running.Store(false)
	for {
		began := time.Now()
		if !s.measure() {
			return
		}
		if time.Since(startedAt) > time.Duration(s.look.until.Load()) {
			return
		}
		// A large fleet takes longer to measure; it must not become a load.
		pause := max(measureEvery, 50*time.Since(began))
		select {
		case <-s.done:
			return
		case <-time.After(pause):
		}
	}
}

// target is one tree to measure.
type target struct {
	in   *instance
	or   *orphan
	root int
	link *link
}

// measure asks the owner what lives, measures it, and hands the result back. It
// reports false when the owner has ended.
func (s *Supervisor) measure() bool {
	got := make(chan []target, 1)
	if !s.post(func() { got <- s.targets() }) {
		return false
	}
	var list []target
	select {
	case list = <-got:
	case <-s.done:
		return false
	}
	s.refresh(list)
	spared := host.CastProcesses(s.cfg.Home)
	at := wire.Now()
	found := make([]usage, len(list))
	for i, t := range list {
		found[i] = usage{Usage: proc.Measure(proc.Tree(t.root, spared)), at: at}
	}
	return s.post(func() {
		for i, t := range list {
			if t.in != nil {
				t.in.usage = found[i]
				s.views.touch(t.in)
			} else {
				t.or.usage = found[i]
				s.views.touchOrphans()
			}
		}
	})
}

// refresh asks each host how it is: an agent that only writes changes no state,
// so nobody is told how far its journal has grown.
func (s *Supervisor) refresh(list []target) {
	slots := make(chan struct{}, 16)
	for _, t := range list {
		if t.in == nil || t.link == nil {
			continue
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(context.Background(), offlineBound)
			defer cancel()
			b, err := t.link.call(ctx, wire.HostGetStatus{})
			st := new(wire.HostStatus)
			if err == nil && unmarshal(b, st) == nil {
				s.post(func() { s.told(t.in, t.link, st) })
			}
		}()
	}
}

func (s *Supervisor) targets() []target {
	var out []target
	for _, in := range s.fleet.byID {
		if in.host == hostAlive && in.record != nil {
			out = append(out, target{in: in, root: in.record.PID, link: in.link})
		}
	}
	for _, o := range s.fleet.orphans {
		out = append(out, target{or: o, root: o.record.PID, link: o.link})
	}
	return out
}

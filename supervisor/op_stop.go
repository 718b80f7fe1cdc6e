package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// stopOp ends an instance's whole tree and keeps it stopped.
type stopOp struct{ cmd wire.Stop }

func (*stopOp) prepare(context.Context, *Supervisor) *wire.Error { return nil }
func (*stopOp) discard(*Supervisor)                              {}

func (o *stopOp) plan(s *Supervisor, c *call) (change, *wire.Error) {
	in, err := s.need(o.cmd.Instance)
	if err != nil {
		return change{}, err
	}
	c.receipt.Instance = in.ref()
	if in.host == hostForeign {
		return change{}, wire.Errorf(wire.Unavailable, "instance %s: %s", in.rec.Name, in.why)
	}
	rec := in.rec
	rec.Wanted, rec.WhenIdle, rec.Parked = wire.WantStopped, o.cmd.WhenIdle, false
	return change{
		keys: keysOf(in),
		write: func(tx *registry.Tx) error {
			if err := tx.AppendFact(fact(in, wire.Stopped, "stopped by hand")); err != nil {
				return err
			}
			return tx.PutInstance(rec)
		},
		apply: func() { s.stop(in, rec, o.cmd.TimeoutMS) },
	}, nil
}

// stop applies a committed stop.
func (s *Supervisor) stop(in *instance, rec registry.Instance, timeoutMS int64) {
	// One that waits for idleness, or was told before it was started again, may
	// be told once more; a host takes all as one.
	if !rec.WhenIdle {
		in.asked.stop = false
	}
	in.rec, in.follow = rec, false
	in.stopIn = time.Duration(timeoutMS) * time.Millisecond
	in.stopTimer()
	s.saveSpec(in)
	s.reconcile(in)
}

func (o *stopOp) answer(s *Supervisor, c *call) {
	in := s.fleet.byID[c.receipt.Instance.ID]
	if in == nil {
		c.fail(wire.Errorf(wire.NotFound, "instance %s was removed meanwhile", c.receipt.Instance.Name))
		return
	}
	s.waitFor(in, o.cmd.WaitMS, func(in *instance) bool { return in.host == noHost || in.rec.Wanted != wire.WantStopped }, func(in *instance) {
		r := wire.StopResult{Receipt: c.receipt, Instance: s.describe(in), Escaped: []wire.Escaped{}}
		switch d := in.stopDone; {
		case d != nil:
			r.Rung, r.Ended = &d.Rung, d.Ended
			r.Escaped = append(r.Escaped, d.Escaped...)
		case in.host == noHost:
			r.Rung = wire.Ptr(wire.RungNone)
		}
		c.succeed(r)
	})
}

// askStop tells a host to end its tree and leave.
func (s *Supervisor) askStop(in *instance) {
	l, idle, timeout := in.link, in.rec.WhenIdle, in.stopIn
	in.stopIn = 0
	go func() {
		answered := make(chan struct{})
		go l.wake(answered)
		b, err := l.call(context.Background(), wire.HostStop{WhenIdle: idle, TimeoutMS: timeout.Milliseconds()})
		close(answered)
		var done wire.StopDone
		if err == nil {
			err = unmarshal(b, &done)
		}
		s.post(func() {
			switch {
			case err == nil:
				in.stopDone = &done
			case in.link == l:
				s.cfg.Log.Error("an instance could not be stopped", "instance", in.rec.Name, "err", err.Message)
				in.asked.stop = false
			}
		})
	}()
}

// wake makes sure that a host which was told something lives, until it has
// answered. One that does not even say how it is loses its connection, and is
// judged anew.
func (l *link) wake(answered <-chan struct{}) {
	look := time.NewTicker(wedgedBound)
	defer look.Stop()
	for {
		select {
		case <-answered:
			return
		case <-look.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), wedgedBound)
		_, err := l.call(ctx, wire.HostGetStatus{})
		cancel()
		if err != nil {
			l.close()
			return
		}
	}
}

// wedgedBound is how long a host that does not answer is given before it is
// ended itself.
const wedgedBound = 2 * time.Second

// stopWedged stops an instance whose host lives but cannot be reached: after a
// last try the host is ended by its verified identity, and its tree after it.
// A stop always succeeds, and says what it needed.
func (s *Supervisor) stopWedged(in *instance) {
	record := *in.record
	lock := s.cfg.Home.Instance(in.rec.ID).AliveLock()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), wedgedBound)
		defer cancel()
		l, err := s.dial(ctx, record)
		if err != nil {
			err = killWedged(record, lock)
		}
		s.post(func() { s.wedgedDone(in, record, l, err) })
	}()
}

// killWedged ends a host that does not answer. The lock proves that the recorded
// process is a host; its identity proves that the signal reaches that process.
func killWedged(record lease.Host, lock string) error {
	p, v := record.Find(lock)
	if p == nil {
		return fmt.Errorf("it is %s", v)
	}
	p.Close()
	return record.Kill()
}

func (s *Supervisor) wedgedDone(in *instance, record lease.Host, l *link, err error) {
	switch {
	case in.record == nil || in.record.Incarnation != record.Incarnation || in.link != nil:
		if l != nil {
			l.close()
		}
	case l != nil:
		s.connected(in, l) // it answers after all, and is told
	case err != nil:
		s.cfg.Log.Error("a wedged host cannot be ended", "instance", in.rec.Name, "err", err)
		s.later(wedgedBound, func() {
			in.asked.stop = false
			s.reconcile(in)
		})
	default:
		in.stopDone = &wire.StopDone{Rung: wire.RungKill, Ended: 1, Escaped: []wire.Escaped{}}
		s.lost(in, "it did not answer and was ended")
	}
}

// removeOp forgets an instance.
type removeOp struct{ cmd wire.Remove }

func (*removeOp) prepare(context.Context, *Supervisor) *wire.Error { return nil }
func (*removeOp) discard(*Supervisor)                              {}

func (o *removeOp) plan(s *Supervisor, c *call) (change, *wire.Error) {
	in, err := s.need(o.cmd.Instance)
	if err != nil {
		return change{}, err
	}
	c.receipt.Instance = in.ref()
	switch {
	case in.host == hostForeign, in.host == hostUnknown && in.record == nil:
		return change{}, wire.Errorf(wire.Unavailable, "instance %s: %s", in.rec.Name, in.why)
	case in.living() && !o.cmd.Force, in.timer != nil && !o.cmd.Force:
		return change{}, wire.Errorf(wire.InvalidState, "instance %s is %s: stop it first, or remove it with force", in.rec.Name, in.state())
	}
	rec := in.rec
	rec.Wanted, rec.WhenIdle, rec.Removing = wire.WantStopped, false, true
	return change{
		keys:  keysOf(in),
		write: func(tx *registry.Tx) error { return tx.PutInstance(rec) },
		apply: func() { s.stop(in, rec, 0) },
	}, nil
}

func (o *removeOp) answer(s *Supervisor, c *call) {
	in := s.fleet.byID[c.receipt.Instance.ID]
	if in == nil {
		c.succeed(wire.RemoveResult{Receipt: c.receipt})
		return
	}
	s.waitFor(in, o.cmd.WaitMS, func(in *instance) bool { return s.fleet.byID[in.rec.ID] != in }, func(in *instance) {
		if s.fleet.byID[in.rec.ID] == in {
			c.fail(wire.Unknownf(wire.Unavailable, "instance %s is still being stopped; it will be removed after that", in.rec.Name))
			return
		}
		c.succeed(wire.RemoveResult{Receipt: c.receipt})
	})
}

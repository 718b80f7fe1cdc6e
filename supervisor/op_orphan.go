package supervisor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// sweepOp judges every instance now.
type sweepOp struct{}

func (*sweepOp) prepare(context.Context, *Supervisor) *wire.Error { return nil }
func (*sweepOp) discard(*Supervisor)                              {}
func (*sweepOp) plan(*Supervisor, *call) (change, *wire.Error)    { return change{}, nil }

func (*sweepOp) answer(s *Supervisor, c *call) {
	s.sweep(func(n wire.SweepCounts) {
		c.succeed(wire.SweepResult{Receipt: c.receipt, SweepCounts: n})
	})
}

// adoptOp gives an orphan its lease back: by a person's act only.
type adoptOp struct {
	cmd  wire.Adopt
	file host.SpecFile
	err  error
}

func (o *adoptOp) prepare(_ context.Context, s *Supervisor) *wire.Error {
	o.file, o.err = host.ReadSpec(s.cfg.Home.Instance(o.cmd.ID))
	return nil
}

func (*adoptOp) discard(*Supervisor) {}

func (o *adoptOp) plan(s *Supervisor, c *call) (change, *wire.Error) {
	if in := s.fleet.byID[o.cmd.ID]; in != nil && (in.host == hostSpawning || in.host == hostUnknown || in.link != nil) {
		// A host in the foreground has come up and says so; or it is ours already.
		c.receipt.Instance = in.ref()
		return change{apply: func() { s.meet(in) }}, nil
	}
	o2 := s.orphanByRef(o.cmd.ID)
	if o2 == nil {
		return change{}, wire.Errorf(wire.NotFound, "there is no orphan %q", o.cmd.ID).At("/command/id")
	}
	rec, err := o.record(s, o2)
	if err != nil {
		return change{}, err
	}
	in := s.fleet.byID[rec.ID]
	if in == nil {
		in = &instance{rec: rec}
	}
	c.receipt.Instance = &wire.Ref{ID: rec.ID, Name: rec.Name}
	return change{
		keys: []string{"id " + rec.ID, "name " + rec.Name},
		write: func(tx *registry.Tx) error {
			if err := tx.AppendFact(fact(in, wire.Running, "adopted by hand")); err != nil {
				return err
			}
			return tx.PutInstance(rec)
		},
		apply: func() { s.adoptOrphan(in, rec, o2) },
	}, nil
}

// record makes the registry's record of an orphan that is to be adopted.
func (o *adoptOp) record(s *Supervisor, orphan *orphan) (registry.Instance, *wire.Error) {
	none := registry.Instance{}
	if o.err != nil {
		return none, wire.Errorf(wire.InvalidState, "the orphan's spec cannot be read: %v", o.err)
	}
	name := o.cmd.Name
	if name == "" {
		name = o.file.Name
	}
	if id, taken := s.fleet.byName[name]; taken && id != orphan.record.ID {
		return none, wire.Errorf(wire.Conflict, "the name %s belongs to another instance: give one with --name", name).At("/command/name").HeldBy(id)
	}
	if in := s.fleet.byID[orphan.record.ID]; in != nil {
		if in.living() {
			return none, wire.Errorf(wire.Conflict, "instance %s has another host that lives", in.rec.Name).HeldBy(in.rec.Incarnation)
		}
		rec := in.rec
		rec.Incarnation, rec.Wanted, rec.Over, rec.Reason = orphan.record.Incarnation, wire.WantRunning, "", ""
		return rec, nil
	}
	return registry.Instance{
		ID: orphan.record.ID, Name: name, Spec: o.file.Spec, Revision: max(1, o.file.Revision), Wanted: wire.WantRunning,
		Incarnation: orphan.record.Incarnation, EnvNames: o.file.EnvNames, CreatedAt: wire.Now(),
	}, nil
}

// adoptOrphan takes a committed adoption into the fleet.
func (s *Supervisor) adoptOrphan(in *instance, rec registry.Instance, o *orphan) {
	in.rec, in.host, in.why = rec, hostUnknown, "it is being adopted"
	in.stopTimer()
	s.fleet.put(in)
	s.orphanGone(o)
	s.saveSpec(in)
	s.judge(in)
}

// meet connects to a host that should have come up.
func (s *Supervisor) meet(in *instance) {
	if in.link != nil {
		return
	}
	if in.host == hostSpawning && in.record == nil {
		in.host, in.why = hostUnknown, "it is being met"
	}
	s.judge(in)
}

func (o *adoptOp) answer(s *Supervisor, c *call) {
	in := s.fleet.byID[c.receipt.Instance.ID]
	if in == nil {
		c.fail(wire.Errorf(wire.NotFound, "instance %s was removed meanwhile", c.receipt.Instance.Name))
		return
	}
	s.waitFor(in, o.cmd.WaitMS, func(in *instance) bool { return in.link != nil && in.status != nil || in.state().Over() }, func(in *instance) {
		c.succeed(wire.InstanceResult{Receipt: c.receipt, Instance: s.describe(in)})
	})
}

// reapOp ends orphans.
type reapOp struct {
	cmd wire.Reap
}

func (*reapOp) prepare(context.Context, *Supervisor) *wire.Error { return nil }
func (*reapOp) discard(*Supervisor)                              {}

func (o *reapOp) plan(s *Supervisor, c *call) (change, *wire.Error) {
	var facts []wire.Event
	for _, t := range o.cmd.Targets {
		if found := s.reapTarget(t); found != nil {
			facts = append(facts, factOf(found.record.ID, wire.Stopping, "reaped by hand"))
		}
	}
	return change{write: func(tx *registry.Tx) error {
		for _, ev := range facts {
			if err := tx.AppendFact(ev); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

func (o *reapOp) answer(s *Supervisor, c *call) {
	type job struct {
		target wire.Target
		orphan *orphan
	}
	var jobs []job
	for _, t := range o.cmd.Targets {
		jobs = append(jobs, job{t, s.reapTarget(t)})
	}
	timeout := time.Duration(o.cmd.WaitMS) * time.Millisecond
	if timeout == 0 {
		timeout = wire.DefaultWaitMS * time.Millisecond
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		out := make([]wire.Reaped, len(jobs))
		var wg sync.WaitGroup
		for i, j := range jobs {
			wg.Go(func() { out[i] = s.reap(ctx, j.target, j.orphan, o.cmd.EvenIfBusy) })
		}
		wg.Wait()
		c.succeed(wire.ReapResult{Receipt: c.receipt, Reaped: out})
	}()
}

// reapTarget finds the orphan that a target names.
func (s *Supervisor) reapTarget(t wire.Target) *orphan {
	if t.ID != "" {
		return s.orphanByRef(t.ID)
	}
	for _, o := range s.fleet.orphans {
		if o.record.PID == t.PID && o.record.StartTicks == t.StartTicks {
			return o
		}
	}
	return nil
}

// reap stops one orphan through its own ladder, after asking whether it is
// busy.
func (s *Supervisor) reap(ctx context.Context, t wire.Target, o *orphan, evenIfBusy bool) wire.Reaped {
	out := wire.Reaped{Target: t}
	refuse := func(format string, args ...any) wire.Reaped {
		out.Refused = wire.Ptr(fmt.Sprintf(format, args...))
		return out
	}
	if o == nil {
		return refuse("it is no orphan of this home")
	}
	st, err := o.link.status(wire.HostGetStatus{})
	if err != nil {
		return refuse("it does not answer: %s", err.Message)
	}
	if len(st.Holds) > 0 && !evenIfBusy {
		return refuse("it is busy: %s, since %s", st.Holds[0].Label, st.Holds[0].Since.Format(time.RFC3339))
	}
	b, err := o.link.call(ctx, wire.HostStop{})
	if err != nil {
		return refuse("it could not be stopped: %s", err.Message)
	}
	var done wire.StopDone
	if err := unmarshal(b, &done); err != nil {
		return refuse("%s", err.Message)
	}
	out.Ended = done.Ended
	if err := s.awaitGone(ctx, o.record); err != nil {
		return refuse("its host %d does not leave: %v", o.record.PID, err)
	}
	out.Ended++ // the host
	if n := len(done.Escaped); n > 0 {
		return refuse("%d processes could not be ended, the first is %d (%s)", n, done.Escaped[0].PID, done.Escaped[0].Command)
	}
	return out
}

// awaitGone waits until a host that was told to leave has left.
func (s *Supervisor) awaitGone(ctx context.Context, r lease.Host) error {
	p, _ := r.Open()
	if p == nil {
		return nil
	}
	defer p.Close()
	return p.Wait(ctx)
}

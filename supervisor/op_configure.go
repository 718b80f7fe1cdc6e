package supervisor

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// configureOp replaces an instance's spec.
type configureOp struct{ cmd wire.Configure }

func (o *configureOp) prepare(context.Context, *Supervisor) *wire.Error {
	return checkSupport(o.cmd.Spec)
}
func (o *configureOp) discard(*Supervisor) {}

func (o *configureOp) plan(s *Supervisor, c *call) (change, *wire.Error) {
	in, err := s.need(o.cmd.Instance)
	if err != nil {
		return change{}, err
	}
	c.receipt.Instance = in.ref()
	if o.cmd.IfRevision != 0 && o.cmd.IfRevision != in.rec.Revision {
		return change{}, wire.Errorf(wire.Conflict, "instance %s is at revision %d, not %d: somebody changed it meanwhile", in.rec.Name, in.rec.Revision, o.cmd.IfRevision).
			At("/command/if_revision")
	}
	rec := in.rec
	rec.Spec = o.cmd.Spec
	if !reflect.DeepEqual(in.rec.Spec, rec.Spec) {
		rec.Revision++
	}
	return change{
		keys:  keysOf(in),
		write: func(tx *registry.Tx) error { return tx.PutInstance(rec) },
		apply: func() { s.reconfigure(in, rec) },
	}, nil
}

// reconfigure applies a committed spec. What only a start can change, such as
// the command line, takes effect at the next one.
func (s *Supervisor) reconfigure(in *instance, rec registry.Instance) {
	in.stale = in.stale || in.living() && startsDiffer(in.rec.Spec, rec.Spec)
	in.rec = rec
	s.saveSpec(in)
	if l := in.link; l != nil {
		go l.call(context.Background(), wire.HostConfigure{Name: rec.Name, Spec: rec.Spec, Revision: rec.Revision})
	}
	s.reconcile(in)
}

// startsDiffer reports whether two specs start the agent differently.
func startsDiffer(a, b wire.Spec) bool {
	return !slices.Equal(a.Argv, b.Argv) || a.Cwd != b.Cwd || a.EnvFile != b.EnvFile || dialectOf(a) != dialectOf(b) || a.Exclusive != b.Exclusive
}

func (o *configureOp) answer(s *Supervisor, c *call) {
	in := s.fleet.byID[c.receipt.Instance.ID]
	if in == nil {
		c.fail(wire.Errorf(wire.NotFound, "instance %s was removed meanwhile", c.receipt.Instance.Name))
		return
	}
	c.succeed(wire.ConfigureResult{Receipt: c.receipt, Instance: s.describe(in), Revision: in.rec.Revision, NeedsRestart: in.stale})
}

// applyOp makes the fleet what a list says, in one transaction.
type applyOp struct {
	cmd    wire.Apply
	staged []stagedEnv
	result wire.ApplyResult
	goals  []goal
}

// goal is what one instance of the list is to reach.
type goal struct {
	in   *instance
	done func(*instance) bool
}

func (o *applyOp) prepare(_ context.Context, s *Supervisor) *wire.Error {
	seen := map[string]bool{}
	for i, d := range o.cmd.Instances {
		if seen[d.Name] {
			return wire.Errorf(wire.InvalidRequest, "the name %s stands twice in the list", d.Name).At(at(i, "name"))
		}
		seen[d.Name] = true
		if err := checkSpec(d.Spec, d.Env); err != nil {
			err.Message = d.Name + ": " + err.Message
			return err.At(at(i, strings.TrimPrefix(err.Details.Pointer, "/command/")))
		}
	}
	if o.cmd.DryRun {
		return nil
	}
	return o.stageAll(s)
}

func at(i int, member string) string {
	return "/command/instances/" + strconv.Itoa(i) + "/" + member
}

// stageAll makes the environments durable, several at a time: each costs a wait
// for the disk.
func (o *applyOp) stageAll(s *Supervisor) *wire.Error {
	o.staged = make([]stagedEnv, len(o.cmd.Instances))
	errs := make([]*wire.Error, len(o.cmd.Instances))
	slots := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for i, d := range o.cmd.Instances {
		slots <- struct{}{}
		wg.Go(func() {
			o.staged[i], errs[i] = s.stage(d.Name, d.Env)
			<-slots
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			o.discard(s)
			return err
		}
	}
	return nil
}

func (o *applyOp) discard(s *Supervisor) {
	for _, st := range o.staged {
		s.unstage(st)
	}
}

// step is what an apply does to one instance.
type step struct {
	in    *instance
	rec   registry.Instance
	apply func()
	done  func(*instance) bool
}

func (o *applyOp) plan(s *Supervisor, c *call) (change, *wire.Error) {
	o.result = wire.ApplyResult{Started: []string{}, Changed: []string{}, Stopped: []string{}, Unchanged: []string{}}
	o.goals = nil
	var steps []step
	listed := map[string]bool{}
	for i, d := range o.cmd.Instances {
		listed[d.Name] = true
		st, err := o.planOne(s, i, d)
		if err != nil {
			return change{}, err
		}
		steps = append(steps, st...)
	}
	if o.cmd.Prune {
		steps = append(steps, o.planPrune(s, listed)...)
	}
	if o.cmd.DryRun {
		return change{}, dryRun
	}
	ch := change{}
	for _, st := range steps {
		ch.keys = append(ch.keys, keysOf(st.in)...)
		o.goals = append(o.goals, goal{in: st.in, done: st.done})
	}
	ch.write = func(tx *registry.Tx) error {
		for _, st := range steps {
			if err := tx.PutInstance(st.rec); err != nil {
				return err
			}
		}
		return nil
	}
	ch.apply = func() {
		for _, st := range steps {
			st.apply()
		}
	}
	return ch, nil
}

// dryRun ends a plan that is only to be shown. It never leaves this package.
var dryRun = wire.Errorf(wire.Internal, "a dry run commits nothing")

func (o *applyOp) planOne(s *Supervisor, i int, d wire.Declared) ([]step, *wire.Error) {
	in := s.fleet.find(d.Name)
	var staged stagedEnv
	if o.staged != nil {
		staged = o.staged[i]
	}
	if in == nil {
		o.result.Started = append(o.result.Started, d.Name)
		in = s.newInstance(staged, d.Name, d.Spec)
		return []step{{in: in, rec: in.rec, done: started, apply: func() {
			s.fleet.put(in)
			s.spawn(in, nil)
		}}}, nil
	}
	if in.host == hostForeign || in.host == hostUnknown || in.rec.Removing {
		return nil, wire.Errorf(wire.Unavailable, "instance %s: %s", in.rec.Name, in.why).At(at(i, "name"))
	}
	same := reflect.DeepEqual(in.rec.Spec, d.Spec)
	running := in.rec.Wanted == wire.WantRunning && in.rec.Over == "" && !in.rec.Parked
	if same && running {
		o.result.Unchanged = append(o.result.Unchanged, d.Name)
		s.unstage(staged)
		return nil, nil
	}
	rec := in.rec
	start := startOp{cmd: wire.Start{Name: d.Name, Spec: &d.Spec}, staged: staged}
	start.adjust(&rec, same)
	if running {
		o.result.Changed = append(o.result.Changed, d.Name)
		return []step{o.change(s, in, rec)}, nil
	}
	o.result.Started = append(o.result.Started, d.Name)
	return []step{{in: in, rec: rec, done: started, apply: func() { start.apply(s, in, rec, false) }}}, nil
}

// change restarts a running instance with its new spec, if only a start can
// change it.
func (o *applyOp) change(s *Supervisor, in *instance, rec registry.Instance) step {
	run := in.runs()
	rec.Restart = startsDiffer(in.rec.Spec, rec.Spec) && in.hosted()
	done := func(in *instance) bool { return !in.rec.Restart && started(in) && in.runs() > run || in.state().Over() }
	if !rec.Restart {
		done = started
	}
	return step{in: in, rec: rec, done: done, apply: func() {
		in.asked.restart = false
		s.reconfigure(in, rec)
		in.stale = false
	}}
}

func (o *applyOp) planPrune(s *Supervisor, listed map[string]bool) []step {
	var out []step
	for _, in := range s.fleet.byID {
		if listed[in.rec.Name] || in.rec.Wanted == wire.WantStopped && !in.living() {
			continue
		}
		o.result.Stopped = append(o.result.Stopped, in.rec.Name)
		rec := in.rec
		rec.Wanted, rec.WhenIdle = wire.WantStopped, false
		out = append(out, step{
			in: in, rec: rec, apply: func() { s.stop(in, rec, 0) },
			done: func(in *instance) bool { return in.host == noHost },
		})
	}
	slices.Sort(o.result.Stopped)
	return out
}

func (o *applyOp) answer(s *Supervisor, c *call) {
	o.result.Receipt = &c.receipt
	left := len(o.goals)
	if left == 0 {
		c.succeed(o.result)
		return
	}
	for _, g := range o.goals {
		s.waitFor(g.in, o.cmd.WaitMS, g.done, func(*instance) {
			if left--; left == 0 {
				c.succeed(o.result)
			}
		})
	}
}

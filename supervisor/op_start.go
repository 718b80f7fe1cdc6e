package supervisor

import (
	"context"
	"maps"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// startOp starts an instance: a new one, or one that is over.
type startOp struct {
	cmd    wire.Start
	staged stagedEnv
}

// stagedEnv is an environment that was made durable for one start.
type stagedEnv struct {
	id    string // of the instance; a new one's is chosen here
	token string
	names []string
}

// stage makes an environment durable before anything is committed.
func (s *Supervisor) stage(name string, env map[string]string) (stagedEnv, *wire.Error) {
	st := stagedEnv{id: wire.NewInstanceID()}
	if v := s.views.latest.Load().Find(name); v != nil {
		st.id = v.ID
	}
	if env == nil {
		env = map[string]string{}
	}
	st.token, st.names = wire.NewInstanceID(), slices.Sorted(maps.Keys(env))
	if err := stageEnv(s.cfg.Home.Instance(st.id), st.token, env); err != nil {
		return st, storeError(err)
	}
	crashpoint.At("start.staged")
	return st, nil
}

func storeError(err error) *wire.Error {
	return wire.Errorf(wire.Unavailable, "the instance's folder cannot be written: %v", err)
}

// unstage removes what was staged for nothing. The folder goes with it if it
// was made for it.
func (s *Supervisor) unstage(st stagedEnv) {
	if st.token == "" {
		return
	}
	folder := s.cfg.Home.Instance(st.id)
	s.files.do(st.id, func() {
		os.Remove(envFile(folder, st.token))
		os.Remove(folder.Path()) // only if it is empty
	})
}

func (o *startOp) prepare(_ context.Context, s *Supervisor) *wire.Error {
	spec := o.cmd.Spec
	if spec == nil {
		v := s.views.latest.Load().Find(o.cmd.Name)
		if v == nil {
			return wire.Errorf(wire.NotFound, "there is no instance %q, and no command was given to make one", o.cmd.Name).At("/command/name")
		}
		got, err := s.get(wire.Get{Instance: v.ID})
		if err != nil {
			return err
		}
		known := got.(wire.GetResult).Spec
		spec = &known
	}
	if err := checkSpec(*spec, o.cmd.Env); err != nil {
		return err
	}
	var err *wire.Error
	o.staged, err = s.stage(o.cmd.Name, o.cmd.Env)
	return err
}

// checkSpec refuses what could not be started: no such folder, no such program.
func checkSpec(spec wire.Spec, env map[string]string) *wire.Error {
	if err := checkSupport(spec); err != nil {
		return err
	}
	st, err := os.Stat(spec.Cwd)
	if err != nil || !st.IsDir() {
		return wire.Errorf(wire.InvalidRequest, "the directory %s does not exist", spec.Cwd).At("/command/spec/cwd")
	}
	all := map[string]string{}
	if spec.EnvFile != "" {
		file, err := host.ReadEnvFile(spec.EnvFile)
		if err != nil {
			return wire.Errorf(wire.InvalidRequest, "the environment file cannot be read: %v", err).At("/command/spec/env_file")
		}
		maps.Copy(all, file)
	}
	maps.Copy(all, env)
	if _, err := host.LookPath(spec.Argv[0], spec.Cwd, all); err != nil {
		return wire.Errorf(wire.InvalidRequest, "%v", err).At("/command/spec/argv/0")
	}
	return nil
}

// checkSupport refuses promises that this version would not keep.
func checkSupport(spec wire.Spec) *wire.Error {
	for member, asked := range map[string]bool{
		"memory_max": spec.MemoryMax != 0, "idle_unload_ms": spec.IdleUnloadMS != 0, "exclusive": spec.Exclusive, "permission": spec.Permission != nil,
	} {
		if asked {
			return wire.Errorf(wire.UnsupportedMethod, "%s is not enforced by this version: leave it out", member).At("/command/spec/" + member)
		}
	}
	return nil
}

func (o *startOp) plan(s *Supervisor, c *call) (change, *wire.Error) {
	in := s.fleet.find(o.cmd.Name)
	if in == nil {
		return o.planNew(s, c)
	}
	c.receipt.Instance = in.ref()
	if in.host == hostForeign || in.host == hostUnknown && in.link == nil && in.record != nil {
		return change{}, wire.Errorf(wire.Unavailable, "instance %s: %s", in.rec.Name, in.why)
	}
	if in.rec.Removing {
		return change{}, wire.Errorf(wire.Conflict, "instance %s is being removed", in.rec.Name)
	}
	same := o.cmd.Spec == nil || reflect.DeepEqual(*o.cmd.Spec, in.rec.Spec)
	running := in.rec.Wanted == wire.WantRunning && in.rec.Over == "" && !in.rec.Parked
	if running && !same {
		return change{}, wire.Errorf(wire.Conflict, "instance %s runs with another spec: stop it first, or change it with set", in.rec.Name).At("/command/spec")
	}
	rec := in.rec
	if !running {
		o.adjust(&rec, same)
	}
	return change{
		keys: keysOf(in),
		write: func(tx *registry.Tx) error {
			if running {
				return nil
			}
			if err := tx.AppendFact(fact(in, wire.Starting, "started by hand")); err != nil {
				return err
			}
			return tx.PutInstance(rec)
		},
		apply: func() { o.apply(s, in, rec, running) },
	}, nil
}

// adjust makes the record of an instance that is to run again.
func (o *startOp) adjust(rec *registry.Instance, same bool) {
	rec.Wanted, rec.Over, rec.Reason, rec.WhenIdle, rec.Restart, rec.Parked = wire.WantRunning, "", "", false, false, false
	rec.EnvToken, rec.EnvNames = o.staged.token, o.staged.names
	if !same {
		rec.Spec = *o.cmd.Spec
		rec.Revision++
	}
}

func (o *startOp) apply(s *Supervisor, in *instance, rec registry.Instance, running bool) {
	if running {
		s.unstage(o.staged)
		return
	}
	in.rec = rec
	in.byHand()
	// A host that was told to end ends; another takes its place.
	in.follow = in.asked.stop && in.host == hostAlive
	in.asked.stop = false
	if o.cmd.Foreground && in.host == noHost {
		s.expect(in)
		return
	}
	s.reconcile(in)
}

func (o *startOp) planNew(s *Supervisor, c *call) (change, *wire.Error) {
	if o.cmd.Spec == nil {
		return change{}, noInstance(o.cmd.Name)
	}
	in := s.newInstance(o.staged, o.cmd.Name, *o.cmd.Spec)
	c.receipt.Instance = in.ref()
	return change{
		keys: keysOf(in),
		write: func(tx *registry.Tx) error {
			if err := tx.AppendFact(fact(in, wire.Starting, "started by hand")); err != nil {
				return err
			}
			return tx.PutInstance(in.rec)
		},
		apply: func() {
			s.fleet.put(in)
			if o.cmd.Foreground {
				s.expect(in)
				return
			}
			s.spawn(in, nil)
		},
	}, nil
}

// newInstance is an instance whose first host is chosen with it, so that one
// commit is enough to start it.
func (s *Supervisor) newInstance(st stagedEnv, name string, spec wire.Spec) *instance {
	return &instance{rec: registry.Instance{
		ID: st.id, Name: name, Spec: spec, Revision: 1, Wanted: wire.WantRunning, Incarnation: wire.NewID(),
		EnvNames: st.names, EnvToken: st.token, CreatedAt: wire.Now(),
	}}
}

// expectBound is how long a host in the foreground may take to appear.
const expectBound = 30 * time.Second

// expect waits for a host that somebody else starts.
func (s *Supervisor) expect(in *instance) {
	in.host, in.record, in.status, in.asked, in.expected = hostSpawning, nil, nil, asked{}, false
	in.spawned = time.Now()
	file, folder := s.specFile(in), s.cfg.Home.Instance(in.rec.ID)
	env := envFile(folder, in.rec.EnvToken)
	incarnation := in.rec.Incarnation
	s.files.do(in.rec.ID, func() {
		err := promoteEnv(folder, env)
		if err == nil {
			err = saveSpecFile(folder, file)
		}
		go s.post(func() { // who leaves waits for this work, and takes no steps then
			if err != nil {
				s.cfg.Log.Error("an instance's files could not be written", "instance", file.Name, "err", err)
			}
			in.expected = true
			s.reconcile(in)
		})
	})
	s.later(expectBound, func() {
		if in.host == hostSpawning && in.rec.Incarnation == incarnation {
			in.host = noHost
			s.over(in, wire.Failed, "its host in the foreground did not appear")
			s.reconcile(in)
		}
	})
}

func (o *startOp) answer(s *Supervisor, c *call) {
	in := s.fleet.byID[c.receipt.Instance.ID]
	if in == nil {
		c.fail(wire.Errorf(wire.NotFound, "instance %s was removed meanwhile", c.receipt.Instance.Name))
		return
	}
	reply := func(in *instance) {
		c.succeed(wire.InstanceResult{Receipt: c.receipt, Instance: s.describe(in)})
	}
	goal := func(in *instance) bool { return !in.follow && started(in) }
	if o.cmd.Foreground { // its files stand; the rest is the caller's
		goal = func(in *instance) bool { return in.expected || in.host != hostSpawning }
	}
	s.waitFor(in, o.cmd.WaitMS, goal, reply)
}

// started is the goal of a start: the agent runs, or it never will.
func started(in *instance) bool {
	switch in.state() {
	case wire.Running, wire.Unloaded, wire.Failed, wire.Finished, wire.Stopped, wire.Foreign:
		return true
	case wire.BackingUp:
		return in.status != nil // the agent ran and ended
	}
	return false
}

func (o *startOp) discard(s *Supervisor) { s.unstage(o.staged) }

// restartOp ends the agent and starts it again, in the same host.
type restartOp struct {
	cmd    wire.RestartInstance
	staged stagedEnv
	run    int // before
}

func (o *restartOp) prepare(_ context.Context, s *Supervisor) *wire.Error {
	v := s.views.latest.Load().Find(o.cmd.Instance)
	if v == nil {
		return noInstance(o.cmd.Instance)
	}
	got, err := s.get(wire.Get{Instance: v.ID})
	if err != nil {
		return err
	}
	if o.cmd.Env == nil {
		return nil
	}
	if err := checkSpec(got.(wire.GetResult).Spec, o.cmd.Env); err != nil {
		return err
	}
	o.staged, err = s.stage(v.Name, o.cmd.Env)
	return err
}

func (o *restartOp) plan(s *Supervisor, c *call) (change, *wire.Error) {
	in, err := s.need(o.cmd.Instance)
	if err != nil {
		return change{}, err
	}
	c.receipt.Instance = in.ref()
	if in.host == hostForeign || in.host == hostUnknown {
		return change{}, wire.Errorf(wire.Unavailable, "instance %s: %s", in.rec.Name, in.why)
	}
	if in.rec.Removing {
		return change{}, wire.Errorf(wire.Conflict, "instance %s is being removed", in.rec.Name)
	}
	rec := in.rec
	rec.Wanted, rec.Over, rec.Reason, rec.WhenIdle = wire.WantRunning, "", "", o.cmd.WhenIdle
	rec.Restart, rec.Parked = in.hosted(), false
	if o.staged.token != "" {
		rec.EnvToken, rec.EnvNames = o.staged.token, o.staged.names
	}
	o.run = in.runs()
	return change{
		keys: keysOf(in),
		write: func(tx *registry.Tx) error {
			if err := tx.AppendFact(fact(in, wire.Starting, "restarted by hand")); err != nil {
				return err
			}
			return tx.PutInstance(rec)
		},
		apply: func() {
			in.rec = rec
			in.asked.restart = false
			in.byHand()
			s.reconcile(in)
		},
	}, nil
}

// runs is the counter of the agent's starts so far.
func (in *instance) runs() int {
	switch {
	case in.status != nil:
		return in.status.Run
	case in.exit != nil:
		return in.exit.Run
	}
	return 0
}

func (o *restartOp) answer(s *Supervisor, c *call) {
	in := s.fleet.byID[c.receipt.Instance.ID]
	if in == nil {
		c.fail(wire.Errorf(wire.NotFound, "instance %s was removed meanwhile", c.receipt.Instance.Name))
		return
	}
	run := o.run
	s.waitFor(in, o.cmd.WaitMS, func(in *instance) bool {
		return !in.rec.Restart && started(in) && (in.runs() > run || in.state().Over())
	}, func(in *instance) {
		c.succeed(wire.InstanceResult{Receipt: c.receipt, Instance: s.describe(in)})
	})
}

func (o *restartOp) discard(s *Supervisor) { s.unstage(o.staged) }

// askRestart tells a host to start its agent anew, after it was given the new
// environment.
func (s *Supervisor) askRestart(in *instance) {
	l, idle := in.link, in.rec.WhenIdle
	spec := wire.HostConfigure{Name: in.rec.Name, Spec: in.rec.Spec, Revision: in.rec.Revision}
	folder := s.cfg.Home.Instance(in.rec.ID)
	env := envFile(folder, in.rec.EnvToken)
	go func() {
		err := promoteEnv(folder, env)
		// The spec first: it may have been changed while the host was on its way.
		for _, c := range []wire.Command{spec, wire.HostRestart{WhenIdle: idle}} {
			if err != nil {
				break
			}
			if _, werr := l.call(context.Background(), c); werr != nil {
				err = werr
			}
		}
		s.post(func() { s.restartTold(in, l, err) })
	}()
}

func (s *Supervisor) restartTold(in *instance, l *link, err error) {
	if err != nil {
		s.cfg.Log.Error("an agent could not be restarted", "instance", in.rec.Name, "err", err)
		if in.link == l {
			in.asked.restart = false
		}
		return
	}
	in.rec.Restart = false
	s.amend(in, func(rec *registry.Instance) bool {
		rec.Restart = false
		if rec.Wanted == wire.WantRunning {
			rec.WhenIdle = false // else it is a stop's
		}
		return true
	}, nil, func(bool) { s.saveSpec(in) }, nil)
	s.reconcile(in)
}

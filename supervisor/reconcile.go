package supervisor

import (
	"errors"
	"time"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// reconcile compares what an instance is wanted to be with what it is, and
// takes the next step. It is called after every change of either, and may be
// called at any time: a step that was taken is not taken twice.
func (s *Supervisor) reconcile(in *instance) {
	s.views.touch(in)
	switch {
	case in.host == hostAlive && in.link != nil && in.status != nil:
		s.steer(in)
	case in.host == hostUnknown && in.record != nil && in.rec.Wanted == wire.WantStopped && !in.asked.stop:
		in.asked.stop = true
		s.stopWedged(in)
	case in.host == noHost && in.rec.Removing:
		s.forget(in)
	case in.host == noHost && in.rec.Wanted == wire.WantRunning && in.rec.Over == "" && in.timer == nil && !in.rec.Parked:
		s.launch(in)
	}
	in.wake()
}

// steer tells a connected host what it was not told yet.
func (s *Supervisor) steer(in *instance) {
	switch {
	case in.rec.Wanted == wire.WantStopped && !in.asked.stop && !in.status.State.Over():
		in.asked.stop = true
		s.askStop(in)
	case in.rec.Restart && !in.asked.restart && in.rec.Wanted == wire.WantRunning:
		in.asked.restart = true
		s.askRestart(in)
	}
}

// launch starts a new host: it takes the alive lock, chooses a new incarnation,
// commits it, and spawns. Whoever holds that lock is the instance's host or is
// about to be, so two can never be on their way.
func (s *Supervisor) launch(in *instance) {
	in.host, in.why = hostSpawning, ""
	in.record, in.status = nil, nil
	folder := s.cfg.Home.Instance(in.rec.ID)
	go func() {
		lock, err := claim(folder)
		if !s.post(func() { s.claimed(in, lock, err) }) && lock != nil {
			lock.Release()
		}
	}()
}

func claim(folder lease.Folder) (*lease.Lock, error) {
	if err := folder.Make(); err != nil {
		return nil, err
	}
	return lease.Acquire(folder.AliveLock())
}

// claimed goes on once the lock is ours, or is not.
func (s *Supervisor) claimed(in *instance, lock *lease.Lock, err error) {
	if in.host != hostSpawning || in.record != nil || in.rec.Wanted != wire.WantRunning {
		if lock != nil {
			lock.Release()
		}
		if in.host == hostSpawning && in.record == nil {
			in.host = noHost
		}
		s.reconcile(in)
		return
	}
	switch {
	case errors.Is(err, lease.ErrHeld):
		in.host, in.why = hostUnknown, "another host of it is on its way"
		s.judge(in)
		return
	case err != nil:
		s.launchFailed(in, err.Error())
		return
	}
	incarnation := wire.NewID()
	s.amend(in, func(rec *registry.Instance) bool {
		rec.Incarnation, rec.Restart = incarnation, false
		return rec.Wanted == wire.WantRunning && rec.Over == "" && !rec.Removing
	}, nil, func(done bool) {
		if !done { // it was stopped meanwhile
			lock.Release()
			in.host = noHost
			s.reconcile(in)
			return
		}
		s.spawn(in, lock)
	}, func(err *wire.Error) {
		lock.Release()
		s.launchFailed(in, err.Message)
	})
}

func (s *Supervisor) launchFailed(in *instance, why string) {
	s.cfg.Log.Error("a host could not be spawned", "instance", in.rec.Name, "err", why)
	in.host, in.why = noHost, why
	s.launchAfter(in, time.Second)
}

// launchAfter tries again after a pause.
func (s *Supervisor) launchAfter(in *instance, d time.Duration) {
	in.stopTimer()
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		s.post(func() {
			if in.timer == t {
				in.timer = nil
				s.reconcile(in)
			}
		})
	})
	in.timer = t
	s.views.touch(in)
}

// forget deletes an instance that is to be removed and is stopped.
func (s *Supervisor) forget(in *instance) {
	if s.batch.clashes(keysOf(in)) {
		return // it is being forgotten already
	}
	s.change(change{
		keys: keysOf(in),
		write: func(tx *registry.Tx) error {
			if err := tx.AppendFact(fact(in, wire.Stopped, "removed")); err != nil {
				return err
			}
			return tx.DeleteInstance(in.rec.ID, in.rec.Incarnation)
		},
		apply: func() { s.forgotten(in) },
	})
}

// forgotten drops an instance that stands in the registry no more.
func (s *Supervisor) forgotten(in *instance) {
	in.stopTimer()
	s.fleet.drop(in)
	s.views.remove(in)
	in.rec.Removing = true
	in.wake()
	folder, name := s.cfg.Home.Instance(in.rec.ID), in.rec.Name
	s.files.do(in.rec.ID, func() {
		if err := removeFolder(folder); err != nil {
			s.cfg.Log.Error("an instance's folder could not be removed", "instance", name, "err", err)
		}
	})
}

// over notes that an instance ended by itself, so that no supervisor to come
// starts it again.
func (s *Supervisor) over(in *instance, state wire.State, reason string) {
	in.rec.Over, in.rec.Reason, in.follow = state, reason, false
	s.amend(in, func(rec *registry.Instance) bool {
		rec.Over, rec.Reason = state, reason
		return true
	}, []wire.Event{fact(in, state, reason)}, func(bool) { s.saveSpec(in) }, nil)
}

// saveSpec brings instance.json up to date, beside the owner.
func (s *Supervisor) saveSpec(in *instance) {
	file, folder := s.specFile(in), s.cfg.Home.Instance(in.rec.ID)
	s.files.do(in.rec.ID, func() {
		if err := saveSpecFile(folder, file); err != nil {
			s.cfg.Log.Error("an instance's file could not be written", "instance", file.Name, "err", err)
		}
	})
}

func (s *Supervisor) specFile(in *instance) host.SpecFile {
	return host.SpecFile{
		ID: in.rec.ID, Name: in.rec.Name, Wanted: in.rec.Wanted, Revision: in.rec.Revision, Incarnation: in.rec.Incarnation,
		Registry: s.db.UUID(), Spec: in.rec.Spec, EnvNames: in.rec.EnvNames, Over: in.rec.Over, Reason: in.rec.Reason,
		Automatic: in.automatic,
	}
}

package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// clearBound is how long the tree of a dead host may take to end.
const clearBound = 5 * time.Second

// disconnected is told when the connection to a host has ended, and all that it
// said has been heard. The host may have ended too, or be wedged.
func (s *Supervisor) disconnected(in *instance, l *link) {
	if in.link != l {
		return
	}
	in.link, in.asked = nil, asked{}
	s.views.touch(in)
	switch {
	case in.dead:
		s.gone(in)
	case in.status != nil && in.status.State.Over():
		s.judgeLater(in) // it leaves in order: the kernel tells when it has left
	default:
		s.judge(in)
	}
}

// hostGone is told when the kernel has reported a host's end. Its last words
// may still be on their way: they are heard first.
func (s *Supervisor) hostGone(id, incarnation string) {
	in := s.fleet.byID[id]
	if in == nil || in.record == nil || in.record.Incarnation != incarnation || in.host == noHost || in.host == hostLost {
		return // or its spawner tells
	}
	in.dead = true
	if in.link == nil {
		s.gone(in)
	}
}

// gone settles the end of a host: an orderly one, after which nothing is left,
// or a death.
func (s *Supervisor) gone(in *instance) {
	in.disconnect()
	in.link = nil
	if in.status != nil && in.status.State.Over() {
		s.ended(in)
		return
	}
	s.lost(in, "the host died")
}

// ended takes in a host that left in order.
func (s *Supervisor) ended(in *instance) {
	st := in.status
	in.host, in.record, in.status = noHost, nil, nil
	if e, ok := host.ReadExit(s.cfg.Home.Instance(in.rec.ID)); ok {
		in.exit = &e
	}
	in.tails.wake()
	if in.follow && in.rec.Wanted == wire.WantRunning && in.rec.Over == "" {
		s.reconcile(in) // started again after it was told to end
		return
	}
	if in.rec.Wanted == wire.WantRunning && (st.State == wire.Finished || st.State == wire.Failed) {
		s.over(in, st.State, deref(st.Reason))
	} else if in.rec.Wanted == wire.WantRunning && in.rec.Over == "" {
		// It stopped although nobody wanted it to: somebody ended the host.
		s.again(in, "the host was told to end")
		return
	}
	s.reconcile(in)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// lost ends what a dead host left, beside the owner, and then follows the
// restart policy. No host is started while the old one's agent lives.
func (s *Supervisor) lost(in *instance, why string) {
	if in.host == hostLost {
		return
	}
	in.host, in.why = hostLost, why
	in.disconnect()
	in.link, in.status = nil, nil
	agent, id, incarnation := in.agent(), in.rec.ID, in.rec.Incarnation
	s.views.touch(in)
	in.tails.wake()
	go func() {
		c := s.clear(id, incarnation, agent)
		s.post(func() { s.cleared(in, incarnation, c) })
	}()
}

// clearance is what ending a dead host's tree found.
type clearance struct {
	exit  host.ExitFile
	known bool // the exit is of this incarnation's last run
	lives bool // a host holds the lock: nothing was touched
	left  []proc.Survivor
}

// clear ends the tree of a dead host and learns what can be learnt of the
// agent's end. It holds the alive lock for the while: who has it is the host, or
// there is none.
func (s *Supervisor) clear(id, incarnation string, agent *proc.Identity) clearance {
	folder := s.cfg.Home.Instance(id)
	lock, err := claim(folder)
	if err != nil {
		return clearance{lives: errors.Is(err, lease.ErrHeld), left: []proc.Survivor{{Err: err}}}
	}
	defer lock.Release()
	record, err := folder.ReadHost()
	recorded := err == nil && record.Incarnation == incarnation
	if recorded && record.Agent != nil {
		agent = record.Agent // newer than what the last status said
	}
	ctx, cancel := context.WithTimeout(context.Background(), clearBound)
	defer cancel()
	crashpoint.At("sweep.clear")
	c := clearance{left: host.EndOrphans(ctx, s.cfg.Home, id, agent)}
	c.exit, c.known = host.ReadExit(folder)
	c.known = c.known && c.exit.Incarnation == incarnation && (!recorded || c.exit.Run >= record.Run)
	if !c.known && recorded && agent != nil {
		c.exit, c.known = s.conclude(folder, record, *agent, c.exit), true
	}
	crashpoint.At("sweep.record")
	if err := folder.RemoveHost(incarnation); err != nil {
		s.cfg.Log.Error("a dead host's record could not be removed", "id", id, "err", err)
	}
	return c
}

// conclude writes the exit of a run whose host died before it could. The status
// is real if the agent fell to this supervisor, and unknown otherwise.
// The exits of earlier runs go along, in case the journal does not have them.
func (s *Supervisor) conclude(folder lease.Folder, record lease.Host, agent proc.Identity, before host.ExitFile) host.ExitFile {
	file := host.ExitFile{
		Exit: wire.Exit{Run: record.Run, At: wire.Now()}, Incarnation: record.Incarnation, Reason: "the host died", StderrTail: []string{},
	}
	if before.Run > 0 {
		file.Untold = append(before.Untold, before)
		file.Untold[len(file.Untold)-1].Untold = nil
	}
	if e, ok := s.reaper.exitOf(agent.PID); ok {
		file.Exit = host.ExitOf(record.Run, e)
		file.Reason = "the host died; agent " + e.String()
	}
	crashpoint.At("sweep.exit")
	if err := lease.WriteJSON(folder.ExitFile(), file); err != nil {
		s.cfg.Log.Error("an exit could not be written", "id", record.ID, "err", err)
	}
	return file
}

// cleared goes on after a dead host's tree is gone.
func (s *Supervisor) cleared(in *instance, incarnation string, c clearance) {
	if in.host != hostLost || in.rec.Incarnation != incarnation {
		return
	}
	if c.lives {
		in.host, in.record = hostUnknown, nil
		s.judge(in)
		return
	}
	if len(c.left) > 0 {
		// No second agent beside the first: the sweep tries again.
		in.why = "processes of a dead host could not be ended: " + c.left[0].Err.Error()
		in.host = hostUnknown
		s.reconcile(in)
		return
	}
	in.host, in.record = noHost, nil
	if c.known {
		in.exit = &c.exit
	}
	if in.rec.Wanted != wire.WantRunning || in.rec.Over != "" {
		s.conclusion(in)
		s.reconcile(in)
		return
	}
	if c.known && c.exit.Over != "" {
		s.over(in, c.exit.Over, c.exit.Why)
		s.conclusion(in)
		s.reconcile(in)
		return
	}
	s.cfg.Log.Warn("a host was lost", "instance", in.rec.Name, "why", in.why)
	s.again(in, "host_lost: "+in.why)
}

// again follows the restart policy after a host's end that nobody wanted.
func (s *Supervisor) again(in *instance, why string) {
	now := time.Now()
	var d host.Decision
	if in.rec.Spec.RestartPolicy() == wire.Never {
		d = host.Decision{Over: wire.Failed, Reason: why}
	} else {
		d = in.restarts.Again(in.rec.Spec, why, in.spawned, now)
	}
	if d.Over != "" {
		s.over(in, d.Over, d.Reason)
		s.conclusion(in)
		s.reconcile(in)
		return
	}
	in.automatic = true
	if d.After > 0 {
		s.launchAfter(in, d.After)
	}
	s.reconcile(in)
}

// conclusion tells the journal of an instance that gets no further host how its
// last run ended.
func (s *Supervisor) conclusion(in *instance) {
	id, state, reason := in.rec.ID, in.state(), in.rec.Reason
	s.files.do(id, func() {
		if err := host.Conclude(s.cfg.Home, id, state, reason); err != nil {
			s.cfg.Log.Error("an instance's end could not be journaled", "id", id, "err", err)
		}
	})
}

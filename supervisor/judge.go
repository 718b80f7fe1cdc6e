package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// finding is what a look at one instance folder found.
type finding struct {
	id      string
	record  lease.Host
	verdict proc.Verdict
	process *proc.Process // of a living host; owned by the finding
	link    *link         // nil if it could not be reached
	err     error         // why not
}

// lookBound is how long all looks of one round may take together.
const lookBound = 5 * time.Second

// survey looks at many folders at once, each host with its own short timeout.
// It runs beside the owner.
func (s *Supervisor) survey(ids []string, connect func(lease.Host) bool) []finding {
	ctx, cancel := context.WithTimeout(context.Background(), lookBound)
	defer cancel()
	out := make([]finding, len(ids))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i, id := range ids {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out[i] = s.examine(ctx, id, connect)
		})
	}
	wg.Wait()
	return out
}

func (s *Supervisor) examine(ctx context.Context, id string, connect func(lease.Host) bool) finding {
	folder := s.cfg.Home.Instance(id)
	f := finding{id: id, verdict: proc.Unknown}
	// In its turn: while we clear up after a dead host, the lock is ours.
	var found finding
	err := s.files.now(ctx, id, func() error {
		if ctx.Err() != nil {
			return nil // nobody waits for it any more
		}
		found.record, found.verdict, found.err = folder.FindHost()
		if found.verdict == proc.Alive {
			found.process, found.verdict = found.record.Find(folder.AliveLock())
		}
		return nil
	})
	if err != nil {
		f.err = fmt.Errorf("what a dead host left is still being ended")
		return f
	}
	f.record, f.verdict, f.err, f.process = found.record, found.verdict, found.err, found.process
	if f.process == nil || !connect(f.record) {
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, dialBound)
	defer cancel()
	f.link, f.err = s.dial(ctx, f.record)
	return f
}

func (f finding) release() {
	if f.process != nil {
		f.process.Close()
	}
	if f.link != nil {
		f.link.close()
	}
}

// adopt takes in what lives, when the supervisor starts.
func (s *Supervisor) adopt() { s.sweep(func(wire.SweepCounts) { s.adopted() }) }

// sweep judges every instance whose host is not connected, looks for orphans,
// and reports to done, which may be nil.
func (s *Supervisor) sweep(done func(wire.SweepCounts)) {
	s.keepPlace()
	if s.leaving.Load() != nil {
		return
	}
	s.housekeeping()
	counts := wire.SweepCounts{Judged: len(s.fleet.byID)}
	skip := map[string]bool{}
	for id, in := range s.fleet.byID {
		if in.link != nil || in.host == hostSpawning || in.host == hostLost {
			skip[id] = true
			counts.Alive++
			s.poke(in)
		}
	}
	named := map[string]string{}
	for id, in := range s.fleet.byID {
		named[id] = in.rec.Incarnation
	}
	known := map[string]bool{}
	for key := range s.fleet.orphans {
		known[key] = true
	}
	go func() {
		ids, err := s.cfg.Home.InstanceIDs()
		if err != nil {
			s.cfg.Log.Error("the instance folders could not be listed", "err", err)
		}
		ids = withAll(ids, named)
		found := s.survey(except(ids, skip), func(r lease.Host) bool { return !known[orphanKey(r.ID, r.Incarnation)] })
		if !s.post(func() { s.swept(found, counts, done) }) {
			for _, f := range found {
				f.release()
			}
		}
	}()
}

// withAll adds the named instances that have no folder at all.
func withAll(ids []string, named map[string]string) []string {
	have := map[string]bool{}
	for _, id := range ids {
		have[id] = true
	}
	for id := range named {
		if !have[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

func except(ids []string, skip map[string]bool) []string {
	var out []string
	for _, id := range ids {
		if !skip[id] {
			out = append(out, id)
		}
	}
	return out
}

// swept acts on what a survey found.
func (s *Supervisor) swept(found []finding, counts wire.SweepCounts, done func(wire.SweepCounts)) {
	for _, f := range found {
		switch f.verdict {
		case proc.Alive:
			counts.Alive++
		case proc.Gone:
			counts.Gone++
		case proc.Unknown:
			counts.Unknown++
		case proc.Foreign:
			counts.Foreign++
		}
		in := s.fleet.byID[f.id]
		if in != nil && (f.verdict != proc.Alive || f.record.Incarnation == in.rec.Incarnation) {
			s.judged(in, f, &counts)
			continue
		}
		s.stray(f, &counts)
	}
	counts.Orphans = len(s.fleet.orphans)
	if done != nil {
		done(counts)
	}
}

// judge looks at one instance's host, beside the owner.
func (s *Supervisor) judge(in *instance) {
	if in.judging || in.link != nil || s.fleet.byID[in.rec.ID] != in {
		return
	}
	in.judging = true
	id := in.rec.ID
	go func() {
		found := s.survey([]string{id}, func(lease.Host) bool { return true })
		if !s.post(func() {
			in.judging = false
			s.judged(in, found[0], new(wire.SweepCounts))
		}) {
			found[0].release()
		}
	}()
}

// judged takes the finding on an instance's own host.
func (s *Supervisor) judged(in *instance, f finding, counts *wire.SweepCounts) {
	if in.link != nil || in.host == hostSpawning || in.host == hostLost || s.fleet.byID[in.rec.ID] != in {
		f.release() // it changed while we looked
		return
	}
	switch f.verdict {
	case proc.Alive:
		s.takeIn(in, f, counts)
	case proc.Gone:
		s.goneFound(in, f, counts)
	case proc.Foreign:
		in.host, in.why = hostForeign, "its host belongs to another machine or PID namespace: end it there"
		in.record = &f.record
		s.reconcile(in)
	default:
		in.host, in.why = hostUnknown, unknownWhy(f.err)
		s.reconcile(in)
		s.judgeLater(in)
	}
}

// judgeLater looks again soon at a host that cannot be judged: most often it is
// on its way. Later looks come less and less often; the sweep goes on for ever.
func (s *Supervisor) judgeLater(in *instance) {
	in.patience = min(max(2*in.patience, 20*time.Millisecond), sweepEvery)
	if in.patience < sweepEvery {
		s.later(in.patience, func() { s.judge(in) })
	}
}

func unknownWhy(err error) string {
	if err != nil {
		return "its host cannot be judged: " + err.Error()
	}
	return "its host cannot be judged"
}

// takeIn adopts a living host, if it can be reached.
func (s *Supervisor) takeIn(in *instance, f finding, counts *wire.SweepCounts) {
	watch := in.host == noHost || in.host == hostUnknown || in.host == hostForeign || in.record == nil
	if watch && in.watched != f.record.Incarnation {
		in.watched = f.record.Incarnation
		go s.watchProcess(f.process, in.rec.ID, f.record.Incarnation)
	} else {
		f.process.Close()
	}
	if f.link == nil {
		in.host, in.why, in.record = hostUnknown, unknownWhy(f.err), &f.record
		s.reconcile(in)
		s.judgeLater(in)
		return
	}
	if !f.link.supported() {
		in.why = "its host speaks another protocol version"
	}
	counts.Adopted++
	s.connected(in, f.link)
}

// goneFound takes in a host that was found dead.
func (s *Supervisor) goneFound(in *instance, f finding, counts *wire.SweepCounts) {
	f.release()
	if f.err == nil || errors.Is(f.err, lease.ErrGarbage) {
		counts.RecordsRemoved++
	}
	if in.record != nil { // it lived while we watched
		s.gone(in)
		return
	}
	in.host, in.why = noHost, ""
	ours := f.err == nil && f.record.Incarnation == in.rec.Incarnation
	switch running := in.rec.Wanted == wire.WantRunning && in.rec.Over == ""; {
	case ours && running && f.record.BootID != proc.BootID():
		s.resume(in, f)
	case ours && running, s.agentLives(in.rec.ID):
		if f.err == nil {
			in.record = &f.record
		}
		if running {
			counts.Restarted++
		}
		s.lost(in, "its host died while no supervisor watched")
	default:
		s.settleDead(in, f, counts)
	}
}

// agentLives reports whether something of an instance's agent holds its lock.
func (s *Supervisor) agentLives(id string) bool {
	lock, err := lease.Probe(s.cfg.Home.Instance(id).AgentLock())
	return err == nil && lock.Held
}

// settleDead handles an instance without a host whose record is not of the
// incarnation that should run: it left in order, never came up, or was stopped.
func (s *Supervisor) settleDead(in *instance, f finding, counts *wire.SweepCounts) {
	e, ok := host.ReadExit(s.cfg.Home.Instance(in.rec.ID))
	if ok {
		in.exit = &e
	}
	if f.err == nil || errors.Is(f.err, lease.ErrGarbage) {
		id, record := in.rec.ID, f.record
		s.files.do(id, func() { s.clear(id, record.Incarnation, record.Agent) })
	}
	running := in.rec.Wanted == wire.WantRunning && in.rec.Over == ""
	if ok && running && e.Incarnation == in.rec.Incarnation && e.Over != "" {
		s.over(in, e.Over, e.Why)
		running = false
	}
	if running && in.timer == nil {
		counts.Restarted++
	}
	s.reconcile(in)
}

// resume starts what ran before the last boot, if it is to be.
func (s *Supervisor) resume(in *instance, f finding) {
	id, incarnation := in.rec.ID, f.record.Incarnation
	if e, ok := host.ReadExit(s.cfg.Home.Instance(id)); ok {
		in.exit = &e
		if e.Incarnation == incarnation && e.Over != "" {
			s.over(in, e.Over, e.Why)
			return
		}
	}
	s.files.do(id, func() { s.clear(id, incarnation, nil) })
	if s.cfg.NoResume || !in.rec.Spec.Resumes() {
		in.why = "it ran before the last boot and was not to be resumed"
		in.rec.Parked = true
		s.amend(in, func(rec *registry.Instance) bool {
			rec.Parked = rec.Wanted == wire.WantRunning
			return true
		}, nil, func(bool) {}, nil)
	}
	s.reconcile(in)
}

// stray takes the finding on a host that the registry does not name.
func (s *Supervisor) stray(f finding, counts *wire.SweepCounts) {
	key := orphanKey(f.id, f.record.Incarnation)
	switch {
	case f.verdict == proc.Gone:
		f.release()
		counts.RecordsRemoved += s.strayGone(f)
	case f.verdict != proc.Alive || s.fleet.orphans[key] != nil || f.link == nil:
		f.release()
	default:
		s.addOrphan(f)
	}
}

// strayGone ends what a dead host left that nobody names, and removes its
// record. The folder stays if it is an instance's: a registry that was restored
// from a backup may still want it.
func (s *Supervisor) strayGone(f finding) int {
	folder := s.cfg.Home.Instance(f.id)
	if f.err == nil || s.agentLives(f.id) {
		s.files.do(f.id, func() { s.clear(f.id, f.record.Incarnation, f.record.Agent) })
		return 1
	}
	if errors.Is(f.err, lease.ErrNoHost) && s.fleet.byID[f.id] == nil {
		if _, err := os.Lstat(folder.SpecFile()); errors.Is(err, os.ErrNotExist) {
			s.files.do(f.id, func() { s.removeRemains(folder) })
		}
	}
	return 0
}

// remainsAge is how old a folder without a spec must be before it counts as
// the remains of a removal, and not as a start on its way.
const remainsAge = time.Minute

func (s *Supervisor) removeRemains(folder lease.Folder) {
	st, err := os.Stat(folder.Path())
	if err != nil || time.Since(st.ModTime()) < remainsAge {
		return
	}
	if err := removeFolder(folder); err != nil {
		s.cfg.Log.Error("the remains of an instance could not be removed", "folder", folder.Path(), "err", err)
	}
}

// watchProcess waits for the end of a host that is not our child.
func (s *Supervisor) watchProcess(p *proc.Process, id, incarnation string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer p.Close()
	if p.Wait(ctx) == nil {
		s.post(func() { s.hostGone(id, incarnation) })
	}
}

// poke has a host look after its own record and socket, if one of them is
// missing.
func (s *Supervisor) poke(in *instance) {
	l := in.link
	if l == nil {
		return
	}
	name, registry := in.rec.Name, s.db.UUID()
	file, socket := s.cfg.Home.Instance(in.rec.ID).HostFile(), l.record.Socket
	s.files.do(in.rec.ID, func() {
		_, noFile := os.Lstat(file)
		_, noSocket := os.Lstat(socket)
		if noFile == nil && noSocket == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), dialBound)
		defer cancel()
		l.call(ctx, wire.HostLease{Registry: registry, Name: name})
	})
}

// later runs a step after a pause.
func (s *Supervisor) later(d time.Duration, step func()) {
	time.AfterFunc(d, func() { s.post(step) })
}

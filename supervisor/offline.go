package supervisor

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// offlineBound is how long a host may take to say how it is.
const offlineBound = 300 * time.Millisecond

// Offline tells the truth about a home without a supervisor, from the instance
// folders, judged one by one, and from the hosts that live. It opens no
// registry and changes nothing.
func Offline(ctx context.Context, home lease.Home) (wire.Status, error) {
	st := wire.Status{Home: home.Dir(), Instances: []wire.Instance{}, Orphans: []wire.Orphan{}}
	ids, err := home.InstanceIDs()
	if err != nil {
		return st, err
	}
	s := &Supervisor{cfg: Config{Home: home}} // for dial alone
	found := make([]*wire.Instance, len(ids))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i, id := range ids {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			found[i] = s.lookAt(ctx, id)
		})
	}
	wg.Wait()
	for _, in := range found {
		if in != nil {
			st.Instances = append(st.Instances, *in)
		}
	}
	slices.SortFunc(st.Instances, func(a, b wire.Instance) int { return strings.Compare(a.Name, b.Name) })
	return st, nil
}

// lookAt describes one instance from its folder and its host; nil if the folder
// is no instance's.
func (s *Supervisor) lookAt(ctx context.Context, id string) *wire.Instance {
	folder := s.cfg.Home.Instance(id)
	file, err := host.ReadSpec(folder)
	if err != nil {
		return nil
	}
	in := &instance{}
	in.rec.ID, in.rec.Name, in.rec.Spec, in.rec.Wanted = id, file.Name, file.Spec, file.Wanted
	in.rec.Incarnation, in.rec.EnvNames, in.rec.Over, in.rec.Reason = file.Incarnation, file.EnvNames, file.Over, file.Reason
	if e, ok := host.ReadExit(folder); ok {
		in.exit = &e
		if in.rec.Over == "" && e.Over != "" && e.Incarnation == file.Incarnation {
			in.rec.Over, in.rec.Reason = e.Over, e.Why
		}
	}
	f := s.examine(ctx, id, func(lease.Host) bool { return true })
	defer f.release()
	s.settleLook(in, f)
	out := s.describe(in)
	if out.State == wire.Starting { // nobody is there to start it
		out.State, out.Reason = wire.Lost, wire.Ptr("it is meant to run, but no host and no supervisor lives")
	}
	return &out
}

func (s *Supervisor) settleLook(in *instance, f finding) {
	switch f.verdict {
	case proc.Gone:
		return
	case proc.Foreign:
		in.host, in.why = hostForeign, "its host belongs to another machine or PID namespace"
		return
	case proc.Unknown:
		in.host, in.why = hostUnknown, unknownWhy(f.err)
		return
	}
	in.record = &f.record
	in.rec.Incarnation = f.record.Incarnation
	if f.link == nil {
		in.host, in.why = hostUnknown, unknownWhy(f.err)
		return
	}
	in.host = hostAlive
	go f.link.read(func(frame) {})
	ctx, cancel := context.WithTimeout(context.Background(), offlineBound)
	defer cancel()
	b, err := f.link.call(ctx, wire.HostGetStatus{})
	st := new(wire.HostStatus)
	if err != nil || unmarshal(b, st) != nil {
		in.host, in.why = hostUnknown, "its host does not answer"
		return
	}
	in.status = st
	in.usage = usage{Usage: proc.Measure(proc.Tree(f.record.PID, host.CastProcesses(s.cfg.Home))), at: wire.Now()}
}

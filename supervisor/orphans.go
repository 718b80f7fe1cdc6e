package supervisor

import "github.com/castctl/castctl/wire"

// addOrphan keeps an orphan visible: it is watched, never adopted or ended but
// by a person's act.
func (s *Supervisor) addOrphan(f finding) {
	o := &orphan{record: f.record, link: f.link, since: wire.Now()}
	s.fleet.orphans[o.key()] = o
	s.cfg.Log.Warn("an orphan was found", "id", o.record.ID, "name", o.record.Name, "pid", o.record.PID)
	go s.watchProcessOf(f, o)
	go func() {
		o.link.read(func(fr frame) {
			if fr.Status != nil {
				s.post(func() { s.orphanTold(o, fr.Status) })
			}
		})
		s.post(func() { s.orphanGone(o) })
	}()
	go o.link.tell(wire.HostWatch{})
	s.views.touchOrphans()
}

func (s *Supervisor) watchProcessOf(f finding, o *orphan) {
	s.watchProcess(f.process, o.record.ID, o.record.Incarnation)
	s.post(func() { s.orphanGone(o) })
}

func (s *Supervisor) orphanTold(o *orphan, st *wire.HostStatus) {
	if s.fleet.orphans[o.key()] != o {
		return
	}
	o.status = st
	s.views.touchOrphans()
}

// orphanGone drops an orphan that ended or cannot be reached any more; if it
// lives, the next sweep finds it again.
func (s *Supervisor) orphanGone(o *orphan) {
	if s.fleet.orphans[o.key()] != o {
		return
	}
	o.link.close()
	delete(s.fleet.orphans, o.key())
	s.views.touchOrphans()
}

// orphanByRef finds an orphan by id or name.
func (s *Supervisor) orphanByRef(ref string) *orphan {
	for _, o := range s.fleet.orphans {
		if o.record.ID == ref || o.record.Name == ref {
			return o
		}
	}
	return nil
}

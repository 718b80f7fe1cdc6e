package supervisor

import (
	"slices"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/wire"
)

// DefaultJournalsMax is how many bytes all journals of a home may take
// together.
const DefaultJournalsMax = 10 << 30

// capJournals has the longest journals drop their oldest events when all
// together take too much: those above a common level are cut to it, the others
// keep everything.
func (s *Supervisor) capJournals() {
	allowed := s.cfg.JournalsMax
	if allowed == 0 {
		allowed = DefaultJournalsMax
	}
	ids := make([]string, 0, len(s.fleet.byID))
	for id := range s.fleet.byID {
		ids = append(ids, id)
	}
	go func() {
		sizes := make([]int64, len(ids))
		for i, id := range ids {
			sizes[i], _ = journal.Size(s.cfg.Home.Instance(id).Journal())
		}
		level, over := waterLevel(sizes, allowed)
		if !over {
			return
		}
		s.post(func() {
			for i, id := range ids {
				if in := s.fleet.byID[id]; in != nil && sizes[i] > level {
					s.trim(in, level)
				}
			}
		})
	}()
}

// trim cuts one journal: its host does, or the supervisor in the host's place.
func (s *Supervisor) trim(in *instance, level int64) {
	s.cfg.Log.Warn("a journal is cut: all together are too long", "instance", in.rec.Name, "bytes", level)
	if in.link != nil {
		go in.link.tell(wire.HostTrim{Max: max(level, 1)})
		return
	}
	folder := s.cfg.Home.Instance(in.rec.ID)
	s.files.do(in.rec.ID, func() {
		lock, err := claim(folder)
		if err != nil {
			return // a host is on its way; the next sweep asks it
		}
		defer lock.Release()
		if err := journal.Trim(folder.Journal(), level); err != nil {
			s.cfg.Log.Error("a journal could not be cut", "id", folder.Path(), "err", err)
		}
	})
}

// waterLevel finds the greatest level such that sizes cut to it take at most
// max together; over is false if they fit as they are.
func waterLevel(sizes []int64, max int64) (level int64, over bool) {
	sorted := slices.Sorted(slices.Values(sizes))
	for i, size := range sorted {
		share := max / int64(len(sorted)-i)
		if size > share {
			return share, true
		}
		max -= size
	}
	return 0, false
}

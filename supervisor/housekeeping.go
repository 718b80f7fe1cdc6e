package supervisor

import (
	"time"

	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

const (
	receiptsLast = 8 * 24 * time.Hour // at least seven days, says the protocol
	pruneAtOnce  = 1000
)

// housekeeping is what a sweep does besides judging.
func (s *Supervisor) housekeeping() {
	s.leaveIfIdle()
	s.reaper.collect()
	s.capJournals()
	before := wire.Now().Add(-receiptsLast)
	var due bool
	s.db.View(func(tx *registry.Tx) error {
		due = tx.HasReceiptBefore(before)
		return nil
	})
	if !due {
		return
	}
	s.change(change{
		write: func(tx *registry.Tx) error { return tx.PruneReceipts(before, pruneAtOnce) },
		apply: func() {},
	})
}

// leaveIfIdle ends a supervisor that nobody needs: detached, nothing to
// supervise, no clients for half an hour. Whoever needs one starts it.
func (s *Supervisor) leaveIfIdle() {
	if s.cfg.Foreground || len(s.fleet.orphans) > 0 {
		return
	}
	for _, in := range s.fleet.byID {
		if in.living() || in.rec.Wanted == wire.WantRunning && in.rec.Over == "" {
			return
		}
	}
	if s.holds.Leave(idleLeave) {
		s.leave("nothing to supervise, and no client for half an hour")
	}
}

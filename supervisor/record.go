package supervisor

import (
	"context"
	"errors"
	"log/slog"

	"github.com/castctl/castctl/lease"
)

// recordKeeper keeps server.json what it should be: a holder of the daemon lock
// whose record is missing or overwritten publishes it again at once.
type recordKeeper struct {
	home    lease.Home
	log     *slog.Logger
	record  lease.Server
	waiting bool // published once
}

// Publish makes the supervisor findable. It must accept connections by then.
func (s *Supervisor) Publish(ctx context.Context, rec lease.Server) error {
	rec.Mark, rec.InstanceID = s.tenure.mark, s.tenure.id
	if err := s.cfg.Home.PublishServer(rec); err != nil {
		return err
	}
	changed, err := lease.WatchFile(ctx, s.cfg.Home.ServerFile())
	if err != nil {
		// The sweep looks too; it is only later.
		s.cfg.Log.Warn("the record cannot be watched", "err", err)
	}
	s.post(func() {
		s.record = recordKeeper{home: s.cfg.Home, log: s.cfg.Log, record: rec, waiting: true}
		s.views.setServer(rec)
		s.record.keep()
	})
	go func() {
		for range changed {
			s.post(s.keepPlace)
		}
	}()
	return nil
}

// keepPlace looks after the home and the record. A home that was removed or
// replaced is not ours any more: nothing is committed to it, and we leave.
func (s *Supervisor) keepPlace() {
	if !s.tenure.lock.Current() {
		s.leave("the home was removed or replaced")
		return
	}
	s.record.keep()
}

// keep publishes the record again if it is not there or not ours.
func (k *recordKeeper) keep() {
	if !k.waiting {
		return
	}
	now, err := k.home.ReadServer()
	if err == nil && now.InstanceID == k.record.InstanceID {
		return
	}
	if err != nil && !errors.Is(err, lease.ErrNoServer) && !errors.Is(err, lease.ErrGarbage) {
		k.log.Error("the record cannot be read", "err", err)
		return
	}
	if err := k.home.PublishServer(k.record); err != nil {
		k.log.Error("the record could not be published again", "err", err)
	}
}

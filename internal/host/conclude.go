package host

import (
	"errors"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// Conclude tells the journal of an instance whose host is dead, and that gets
// no other, how its last run ended and where it stands. It acts as the host for
// that moment, under the host's own lock; if a host lives it does nothing.
func Conclude(home lease.Home, id string, state wire.State, reason string) error {
	folder := home.Instance(id)
	lock, err := lease.Acquire(folder.AliveLock())
	if errors.Is(err, lease.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	memory := newMemory()
	j, _, err := journal.Open(folder.Journal(), journal.Config{Instance: id, Boot: proc.BootID(), Memory: memory})
	if err != nil {
		return err
	}
	for _, r := range memory.Open() {
		memory.Settle(r.Turn, wire.TurnUnknown)
		ev := wire.NewEvent(wire.EventTurnEnded, wire.TurnEndedData{Outcome: wire.TurnUnknown}).In("", r.Turn)
		err = errors.Join(err, j.Append(false, &ev))
	}
	run := memory.kept.Run
	if e, ok := ReadExit(folder); ok {
		run = e.Run
		for _, e := range append(e.Untold, e) {
			if memory.Exited(e.Run) {
				ev := exitEvent(e)
				err = errors.Join(err, j.Append(false, &ev))
			}
		}
	}
	ev := wire.NewEvent(wire.EventState, wire.StateData{State: state, Reason: textOrNil(reason), Run: run, Holds: []wire.Hold{}})
	return errors.Join(err, j.Append(false, &ev), j.Close())
}

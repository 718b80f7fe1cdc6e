package supervisor

import (
	"errors"
	"io"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// ReadHistory reads events of one instance's journal from disk. It needs
// neither a host nor a supervisor. last is the number of the last event if the
// caller knows it, else 0.
func ReadHistory(folder lease.Folder, c wire.History, limit int, last uint64) (wire.HistoryResult, *wire.Error) {
	out := wire.HistoryResult{Events: []wire.Event{}}
	bounds, err := journal.Find(folder.Journal())
	if errors.Is(err, journal.ErrNoJournal) {
		return out, nil
	}
	if err != nil {
		return out, wire.Errorf(wire.Internal, "the journal cannot be read: %v", err)
	}
	after, werr := historyStart(folder, c, bounds)
	if werr != nil {
		return out, werr
	}
	r := journal.NewReader(folder.Journal())
	defer r.Close()
	if err := r.SeekAfter(after); err != nil {
		return out, expired(c.After)
	}
	out.First = wire.Ptr(wire.Pos{Epoch: bounds.Last.Epoch, Seq: bounds.First}.String())
	out.Last = wire.Ptr(bounds.Last.String())
	for len(out.Events) < limit {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, wire.Errorf(wire.Internal, "the journal cannot be read: %v", err)
		}
		if !wanted(e.Type, c.Types) {
			continue
		}
		ev, err := e.Event()
		if err != nil {
			return out, wire.Errorf(wire.Internal, "the event %d cannot be read: %v", e.Seq, err)
		}
		if c.Session != "" && (ev.Session == nil || *ev.Session != c.Session) {
			continue
		}
		out.Events = append(out.Events, ev)
		out.Next = wire.Ptr(wire.Pos{Epoch: r.Epoch(), Seq: e.Seq}.String())
	}
	if out.Next != nil && *out.Next == *out.Last {
		out.Next = nil
	}
	return out, nil
}

func historyStart(folder lease.Folder, c wire.History, b journal.Bounds) (uint64, *wire.Error) {
	if c.After == "" {
		return b.First - 1, nil
	}
	p, werr := wire.ParsePos(c.After)
	if werr != nil {
		return 0, werr.At("/command/after")
	}
	switch err := journal.Locate(folder.Journal(), p, b.Last.Seq); {
	case errors.Is(err, journal.ErrExpired):
		return 0, expired(c.After)
	case err != nil:
		return 0, wire.Errorf(wire.NotFound, "the position %q: %v", c.After, err).At("/command/after")
	}
	return p.Seq, nil
}

func expired(after string) *wire.Error {
	return wire.Errorf(wire.NotFound, "the events after %q are not kept any more", after).At("/command/after")
}

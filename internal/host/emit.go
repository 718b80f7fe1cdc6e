package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/wire"
)

// backlog holds the host's own events while the disk is full. It is bounded:
// beyond that events are dropped and counted, and the gap is told.
type backlog struct {
	events  []wire.Event
	dropped int64
	waiting bool // a retry is under way
}

const maxBacklog = 1000

// emit appends one of the host's own events. It belongs to the owner.
func (h *Host) emit(ev wire.Event) {
	if len(h.backlog.events) > 0 {
		h.backlog.add(ev)
		return
	}
	err := h.journal.Append(false, &ev)
	switch {
	case err == nil:
	case errors.Is(err, journal.ErrFull):
		h.backlog.add(ev)
		h.retryBacklog()
	default:
		h.cfg.Log.Error("an event was lost", "type", ev.Type, "err", err)
	}
}

func (b *backlog) add(ev wire.Event) {
	if len(b.events) >= maxBacklog {
		b.dropped++
		return
	}
	ev.Time = wire.Now() // when it happened, not when there was room
	b.events = append(b.events, ev)
}

func (h *Host) retryBacklog() {
	if h.backlog.waiting {
		return
	}
	h.backlog.waiting = true
	time.AfterFunc(retryFull, func() {
		h.post(func() {
			h.backlog.waiting = false
			h.flushBacklog()
		})
	})
}

func (h *Host) flushBacklog() {
	b := &h.backlog
	for len(b.events) > 0 {
		if err := h.journal.Append(false, &b.events[0]); err != nil {
			if errors.Is(err, journal.ErrFull) {
				h.retryBacklog()
				return
			}
			h.cfg.Log.Error("an event was lost", "type", b.events[0].Type, "err", err)
		}
		b.events = b.events[1:]
	}
	b.events = nil
	if n := b.dropped; n > 0 {
		b.dropped = 0
		h.emit(wire.NewEvent(wire.EventNotice, wire.NoticeData{
			Kind: wire.NoticeGap, Message: fmt.Sprintf("the disk was full: %d events were lost", n), Count: &n,
		}))
	}
}

package forecast

import (
	"time"

	"github.com/castctl/castctl/wire"
)

// What may become of an event. Byte limits and bounds are in the tags of the
// commands; here is what depends on the ledger and the clock.

func (c EventCreate) apply(b *book, now time.Time) error {
	if b.hasEvent(c.EventID) {
		return wire.Errorf(wire.Conflict, "there is an event %q already", c.EventID).At("/command/event_id")
	}
	row := eventRow{Question: c.Question, CreatedAt: now}
	if c.ClosesAt != nil {
		row.ClosesAt = wire.Ptr(c.ClosesAt.UTC())
	}
	return b.putEvent(c.EventID, row)
}

func (c ForecastRecord) apply(b *book, now time.Time) error {
	row, err := b.event(c.EventID)
	if err != nil {
		return err
	}
	if status := row.status(now); status != StatusOpen {
		return refused(c.EventID, status, "takes no more forecasts")
	}
	return b.putForecast(c.EventID, forecastRow{Forecaster: c.Forecaster, Probability: c.Probability, RecordedAt: now})
}

func (c EventResolve) apply(b *book, now time.Time) error {
	return settle(b, c.EventID, now, "can no longer be resolved", func(row *eventRow) { row.Outcome = &c.Outcome })
}

func (c EventVoid) apply(b *book, now time.Time) error {
	return settle(b, c.EventID, now, "can no longer be made void", func(row *eventRow) { row.Reason = &c.Reason })
}

// settle ends an event, once. It may be before its closing time.
func settle(b *book, id string, now time.Time, refusal string, how func(*eventRow)) error {
	row, err := b.event(id)
	if err != nil {
		return err
	}
	if status := row.status(now); status == StatusResolved || status == StatusVoid {
		return refused(id, status, refusal)
	}
	row.SettledAt = &now
	how(&row)
	return b.putEvent(id, row)
}

func refused(id string, status Status, what string) error {
	return wire.Errorf(wire.InvalidState, "event %q is %s and %s", id, status, what).At("/command/event_id")
}

func (c EventCreate) facts(b *book, r Receipt, now time.Time) (any, error) {
	return changed(b, c.EventID, r, now)
}

func (c EventResolve) facts(b *book, r Receipt, now time.Time) (any, error) {
	return changed(b, c.EventID, r, now)
}

func (c EventVoid) facts(b *book, r Receipt, now time.Time) (any, error) {
	return changed(b, c.EventID, r, now)
}

func changed(b *book, eventID string, r Receipt, now time.Time) (any, error) {
	e, err := b.showEvent(eventID, now)
	if err != nil {
		return nil, err
	}
	return EventChanged{Receipt: r, Event: e}, nil
}

func (c ForecastRecord) facts(b *book, r Receipt, now time.Time) (any, error) {
	e, err := b.showEvent(c.EventID, now)
	if err != nil {
		return nil, err
	}
	f, err := b.standingForecast(c.EventID, c.Forecaster)
	if err != nil {
		return nil, err
	}
	return ForecastRecorded{Receipt: r, Forecast: f, Event: e}, nil
}

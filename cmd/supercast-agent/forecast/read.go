package forecast

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

func limit(asked int) int { return cmp.Or(asked, DefaultLimit) }

func (c EventGet) read(b *book, now time.Time) (any, error) {
	e, err := b.showEvent(c.EventID, now)
	if err != nil {
		return nil, err
	}
	return EventFound{Event: e}, nil
}

func (c EventList) read(b *book, now time.Time) (any, error) {
	page := EventPage{Events: []Event{}}
	cursor := b.tx.Bucket(events).Cursor()
	k, v := cursor.Seek([]byte(c.After)) // nothing sorts before the empty id
	if string(k) == c.After {
		k, v = cursor.Next()
	}
	for ; k != nil; k, v = cursor.Next() {
		var row eventRow
		if err := b.decode(v, &row); err != nil {
			return nil, err
		}
		if c.Status != "" && row.status(now) != c.Status {
			continue
		}
		if len(page.Events) == limit(c.Limit) {
			last := page.Events[len(page.Events)-1].ID
			page.Next = &last
			break
		}
		page.Events = append(page.Events, b.show(string(k), row, now))
	}
	return page, nil
}

func (c ForecastList) read(b *book, _ time.Time) (any, error) {
	if _, err := b.event(c.EventID); err != nil {
		return nil, err
	}
	page := ForecastPage{Forecasts: []Forecast{}}
	of := b.tx.Bucket(forecasts).Bucket([]byte(c.EventID))
	if of == nil {
		return page, nil
	}
	cursor := of.Cursor()
	k, v := cursor.Seek(number(uint64(c.After)))
	if len(k) == 8 && binary.BigEndian.Uint64(k) == uint64(c.After) {
		k, v = cursor.Next()
	}
	for ; k != nil; k, v = cursor.Next() {
		f, err := b.showForecast(c.EventID, k, v)
		if err != nil {
			return nil, err
		}
		if c.Forecaster != "" && f.Forecaster != c.Forecaster {
			continue
		}
		if len(page.Forecasts) == limit(c.Limit) {
			last := page.Forecasts[len(page.Forecasts)-1].Number
			page.Next = &last
			break
		}
		page.Forecasts = append(page.Forecasts, f)
	}
	return page, nil
}

func (c Leaderboard) read(b *book, _ time.Time) (any, error) {
	board := Ranking{}
	sums := map[string]*tally{}
	// Events come in the order of their ids, so the sums, which depend on the
	// order by their last bits, are the same every time.
	err := b.tx.Bucket(events).ForEach(func(id, v []byte) error {
		var row eventRow
		if err := b.decode(v, &row); err != nil {
			return err
		}
		if row.Outcome == nil {
			return nil
		}
		board.Resolved++
		return b.score(string(id), *row.Outcome, sums)
	})
	if err != nil {
		return nil, err
	}
	board.Forecasters = len(sums)
	board.Leaderboard = ranked(sums)
	board.Leaderboard = board.Leaderboard[:min(len(board.Leaderboard), limit(c.Limit))]
	return board, nil
}

// score adds the standing forecasts on one resolved event.
func (b *book) score(eventID string, outcome bool, sums map[string]*tally) error {
	last := b.tx.Bucket(standing).Bucket([]byte(eventID))
	if last == nil {
		return nil // nobody made a forecast
	}
	return last.ForEach(func(forecaster, _ []byte) error {
		f, err := b.standingForecast(eventID, string(forecaster))
		if err != nil {
			return err
		}
		t := sums[f.Forecaster]
		if t == nil {
			t = &tally{}
			sums[f.Forecaster] = t
		}
		t.add(f.Probability, outcome)
		return nil
	})
}

// ranked orders the forecasters: the lowest mean Brier score first, and by name
// where it is equal.
func ranked(sums map[string]*tally) []Ranked {
	out := make([]Ranked, 0, len(sums))
	for name, t := range sums {
		out = append(out, t.mean(name))
	}
	slices.SortFunc(out, func(a, b Ranked) int {
		return cmp.Or(cmp.Compare(a.Brier, b.Brier), strings.Compare(a.Forecaster, b.Forecaster))
	})
	return out
}

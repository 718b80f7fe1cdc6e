package forecast_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

// model is what the ledger must be, kept in maps.
type model struct {
	now      time.Time
	receipts map[string]remembered
	events   map[string]forecast.Status
	closes   map[string]time.Time
	count    map[string]int64
}

type remembered struct {
	command wire.Command
	receipt string
}

// want is the code that the model expects, empty for success, and whether the
// request was carried out before. Commands are compared as they are sent.
func (m *model) want(id string, c wire.Command, line []byte) (code wire.Code, retry bool) {
	if known, ok := m.receipts[id]; ok {
		first, err := wire.Encode(wire.Request{ID: id, Command: known.command})
		if err != nil || string(first) != string(line) {
			return wire.Conflict, false
		}
		return "", true
	}
	switch c := c.(type) {
	case forecast.EventCreate:
		if _, there := m.events[c.EventID]; there {
			return wire.Conflict, false
		}
	case forecast.ForecastRecord:
		return m.allowed(c.EventID, forecast.StatusOpen), false
	case forecast.EventResolve:
		return m.allowed(c.EventID, forecast.StatusOpen, forecast.StatusClosed), false
	case forecast.EventVoid:
		return m.allowed(c.EventID, forecast.StatusOpen, forecast.StatusClosed), false
	}
	return "", false
}

func (m *model) allowed(event string, in ...forecast.Status) wire.Code {
	status, there := m.status(event)
	if !there {
		return wire.NotFound
	}
	if slices.Contains(in, status) {
		return ""
	}
	return wire.InvalidState
}

func (m *model) status(event string) (forecast.Status, bool) {
	status, there := m.events[event]
	if closes, has := m.closes[event]; status == forecast.StatusOpen && has && !m.now.Before(closes) {
		status = forecast.StatusClosed
	}
	return status, there
}

func (m *model) apply(id string, c wire.Command, receipt string) {
	m.receipts[id] = remembered{c, receipt}
	switch c := c.(type) {
	case forecast.EventCreate:
		m.events[c.EventID] = forecast.StatusOpen
		if c.ClosesAt != nil {
			m.closes[c.EventID] = *c.ClosesAt
		}
	case forecast.ForecastRecord:
		m.count[c.EventID]++
	case forecast.EventResolve:
		m.events[c.EventID] = forecast.StatusResolved
	case forecast.EventVoid:
		m.events[c.EventID] = forecast.StatusVoid
	}
}

// Whatever is asked in whatever order, with whatever ids, the ledger does what
// the model does: no change is lost or doubled, every retry gets the bytes of
// its first receipt, and nothing depends on whether the ledger is a file.
func TestModel(t *testing.T) {
	for _, kind := range []string{"memory", "file"} {
		t.Run(kind, func(t *testing.T) {
			dir, n := t.TempDir(), 0
			rapid.Check(t, func(t *rapid.T) {
				n++
				var ledger *forecast.Ledger
				var err error
				if kind == "memory" {
					ledger, err = forecast.Memory()
				} else {
					ledger, err = forecast.Open(filepath.Join(dir, fmt.Sprint(n)))
				}
				if err != nil {
					t.Fatal(err)
				}
				defer ledger.Close()
				m := &model{now: noon, receipts: map[string]remembered{}, events: map[string]forecast.Status{}, closes: map[string]time.Time{}, count: map[string]int64{}}
				a := &forecast.Agent{Ledger: ledger, Now: func() time.Time { return m.now }}
				steps := rapid.IntRange(1, 30).Draw(t, "steps")
				for range steps {
					m.now = m.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "minutes")) * time.Minute)
					m.step(t, a, rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6"}).Draw(t, "id"), drawCommand(t))
				}
				m.compare(t, a)
			})
		})
	}
}

func drawCommand(t *rapid.T) wire.Command {
	event := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "event")
	switch rapid.IntRange(0, 3).Draw(t, "op") {
	case 0:
		c := forecast.EventCreate{EventID: event, Question: "?"}
		if rapid.Bool().Draw(t, "closes") {
			c.ClosesAt = wire.Ptr(noon.Add(10 * time.Minute))
		}
		return c
	case 1:
		return forecast.ForecastRecord{EventID: event, Forecaster: "ann", Probability: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "p")}
	case 2:
		return forecast.EventResolve{EventID: event, Outcome: rapid.Bool().Draw(t, "outcome")}
	}
	return forecast.EventVoid{EventID: event, Reason: "-"}
}

func (m *model) step(t *rapid.T, a *forecast.Agent, id string, c wire.Command) {
	line, err := wire.Encode(wire.Request{ID: id, Command: c})
	if err != nil {
		t.Fatal(err)
	}
	code, retry := m.want(id, c, line)
	answer, err := wire.DecodeResponse(a.Answer(t.Context(), line).Encode())
	if err != nil || answer.ID == nil || *answer.ID != id {
		t.Fatalf("%s: %+v, %v", line, answer, err)
	}
	if code != "" {
		if answer.Error == nil || answer.Error.Code != code || answer.Error.Delivery != wire.NotSent {
			t.Fatalf("%s: %s %+v, want %s", line, answer.Result, answer.Error, code)
		}
		return
	}
	if answer.Error != nil {
		t.Fatalf("%s: %v", line, answer.Error)
	}
	receipt := receiptOf(t, answer)
	if retry {
		if first := m.receipts[id].receipt; receipt != first {
			t.Fatalf("%s: the receipt\n%s\nis answered as\n%s", line, first, receipt)
		}
		return
	}
	m.apply(id, c, receipt)
}

// receiptOf cuts the receipt out of an answer as it was sent.
func receiptOf(t interface{ Fatalf(string, ...any) }, r wire.RawResponse) string {
	var result struct {
		Receipt jsontext.Value `json:"receipt"`
	}
	if err := json.Unmarshal(r.Result, &result); err != nil || result.Receipt == nil {
		t.Fatalf("%s has no receipt: %v", r.Result, err)
	}
	return string(result.Receipt)
}

// compare holds the whole ledger against the model.
func (m *model) compare(t *rapid.T, a *forecast.Agent) {
	line, err := wire.Encode(wire.Request{ID: "x", Command: forecast.EventList{}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := wire.DecodeResponse(a.Answer(t.Context(), line).Encode())
	if err != nil {
		t.Fatal(err)
	}
	var page forecast.EventPage
	if err := json.Unmarshal(answer.Result, &page); err != nil {
		t.Fatal(err)
	}
	if len(page.Events) != len(m.events) {
		t.Fatalf("%d events, want %d", len(page.Events), len(m.events))
	}
	for _, e := range page.Events {
		status, _ := m.status(e.ID)
		if e.Status != status || e.Forecasts != m.count[e.ID] {
			t.Fatalf("%+v, want %s with %d forecasts", e, status, m.count[e.ID])
		}
	}
}

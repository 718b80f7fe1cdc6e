package forecast_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

// What every command does in every state of its event. An empty code is
// success.
func TestLifecycle(t *testing.T) {
	commands := map[string]wire.Command{
		"create":   forecast.EventCreate{EventID: "e", Question: "Again?"},
		"forecast": forecast.ForecastRecord{EventID: "e", Forecaster: "ann", Probability: 0.5},
		"resolve":  forecast.EventResolve{EventID: "e", Outcome: true},
		"void":     forecast.EventVoid{EventID: "e", Reason: "moot"},
		"get":      forecast.EventGet{EventID: "e"},
		"list":     forecast.ForecastList{EventID: "e"},
	}
	const refused, missing, taken = wire.InvalidState, wire.NotFound, wire.Conflict
	for _, c := range []struct {
		state string
		want  map[string]wire.Code
	}{
		{"absent", map[string]wire.Code{"create": "", "forecast": missing, "resolve": missing, "void": missing, "get": missing, "list": missing}},
		{"open", map[string]wire.Code{"create": taken, "forecast": "", "resolve": "", "void": "", "get": "", "list": ""}},
		{"closed", map[string]wire.Code{"create": taken, "forecast": refused, "resolve": "", "void": "", "get": "", "list": ""}},
		{"resolved", map[string]wire.Code{"create": taken, "forecast": refused, "resolve": refused, "void": refused, "get": "", "list": ""}},
		{"void", map[string]wire.Code{"create": taken, "forecast": refused, "resolve": refused, "void": refused, "get": "", "list": ""}},
	} {
		for name, command := range commands {
			t.Run(c.state+"/"+name, func(t *testing.T) {
				a := inState(t, c.state)
				answer := call(t, a, "the-id", command)
				var got wire.Code
				if answer.Error != nil {
					got = answer.Error.Code
					if answer.Error.Details.Pointer != "/command/event_id" || answer.Error.Details.Method != command.Op() || answer.Error.Delivery != wire.NotSent {
						t.Errorf("%+v", answer.Error)
					}
				}
				if got != c.want[name] {
					t.Errorf("%q, want %q", got, c.want[name])
				}
				if got != "" && wire.Command(command) != nil && forecast.Ops.Mutation(command.Op()) {
					// A failure burns no id: the same id serves for something else.
					must(t, a, "the-id", forecast.EventCreate{EventID: "other", Question: "?"})
				}
			})
		}
	}
}

// inState makes an agent whose ledger has an event e in the given state, or
// none.
func inState(t *testing.T, state string) *forecast.Agent {
	c := &clock{noon}
	a := &forecast.Agent{Ledger: memory(t), Now: c.now}
	if state == "absent" {
		return a
	}
	closes := noon.Add(time.Hour)
	must(t, a, "setup-1", forecast.EventCreate{EventID: "e", Question: "?", ClosesAt: &closes})
	switch state {
	case "closed":
		c.at = closes // to the instant
	case "resolved":
		must(t, a, "setup-2", forecast.EventResolve{EventID: "e", Outcome: false})
	case "void":
		must(t, a, "setup-2", forecast.EventVoid{EventID: "e", Reason: "moot"})
	}
	if got := decode[forecast.EventFound](t, must(t, a, "q", forecast.EventGet{EventID: "e"})).Event.Status; string(got) != state {
		t.Fatalf("the event is %s, want %s", got, state)
	}
	return a
}

// An event closes at its time, not before, and stays what it was.
func TestClosing(t *testing.T) {
	c := &clock{noon}
	a := &forecast.Agent{Ledger: memory(t), Now: c.now}
	closes := noon.Add(time.Hour)
	must(t, a, "1", forecast.EventCreate{EventID: "e", Question: "?", ClosesAt: &closes})
	c.at = closes.Add(-time.Microsecond)
	must(t, a, "2", forecast.ForecastRecord{EventID: "e", Forecaster: "ann", Probability: 0.5})
	c.at = closes
	if late := call(t, a, "3", forecast.ForecastRecord{EventID: "e", Forecaster: "ann", Probability: 0.6}); late.Error == nil {
		t.Error("a forecast at the closing time was taken")
	}
	// A retry is not a new forecast: it gets its receipt after the closing too.
	again := decode[forecast.ForecastRecorded](t, must(t, a, "2", forecast.ForecastRecord{EventID: "e", Forecaster: "ann", Probability: 0.5}))
	if again.Event.Status != forecast.StatusClosed || again.Forecast.Number != 1 || again.Event.Forecasts != 1 {
		t.Errorf("%+v", again)
	}
}

// Facts around a receipt are present facts; the receipt is the old one.
func TestRetryShowsPresentFacts(t *testing.T) {
	c := &clock{noon}
	a := &forecast.Agent{Ledger: memory(t), Now: c.now}
	create := forecast.EventCreate{EventID: "e", Question: "?"}
	first := decode[forecast.EventChanged](t, must(t, a, "1", create))
	c.at = c.at.Add(time.Minute)
	must(t, a, "2", forecast.ForecastRecord{EventID: "e", Forecaster: "ann", Probability: 0.1})
	must(t, a, "3", forecast.ForecastRecord{EventID: "e", Forecaster: "ann", Probability: 0.2})
	c.at = c.at.Add(time.Minute)
	must(t, a, "4", forecast.EventResolve{EventID: "e", Outcome: true})
	again := decode[forecast.EventChanged](t, must(t, a, "1", create))
	if !again.Receipt.CommittedAt.Equal(first.Receipt.CommittedAt) || again.Event.Status != forecast.StatusResolved || again.Event.Forecasts != 2 {
		t.Errorf("%+v", again)
	}
	older := decode[forecast.ForecastRecorded](t, must(t, a, "2", forecast.ForecastRecord{EventID: "e", Forecaster: "ann", Probability: 0.1}))
	if older.Receipt.ID != "2" || older.Forecast.Number != 2 || older.Forecast.Probability != 0.2 {
		t.Errorf("%+v", older)
	}
}

// Byte limits and bounds, each at its edge.
func TestLimits(t *testing.T) {
	a := &forecast.Agent{Ledger: memory(t)}
	must(t, a, "setup", forecast.EventCreate{EventID: "e", Question: "?"})
	id200, id201 := strings.Repeat("é", 100), strings.Repeat("é", 100)+"x"
	text2000, text2001 := strings.Repeat("é", 1000), strings.Repeat("é", 1000)+"x"
	for _, c := range []struct {
		name, command, pointer string // no pointer is success
	}{
		{"event id of 200 bytes", `{"op":"event_create","event_id":"` + id200 + `","question":"?"}`, ""},
		{"event id of 201 bytes", `{"op":"event_create","event_id":"` + id201 + `","question":"?"}`, "/command/event_id"},
		{"blank event id", `{"op":"event_create","event_id":" \u00a0","question":"?"}`, "/command/event_id"},
		{"question of 2000 bytes", `{"op":"event_create","event_id":"q","question":"` + text2000 + `"}`, ""},
		{"question of 2001 bytes", `{"op":"event_create","event_id":"q2","question":"` + text2001 + `"}`, "/command/question"},
		{"blank question", `{"op":"event_create","event_id":"q2","question":"\n"}`, "/command/question"},
		{"forecaster of 200 bytes", `{"op":"forecast_record","event_id":"e","forecaster":"` + id200 + `","probability":0}`, ""},
		{"forecaster of 201 bytes", `{"op":"forecast_record","event_id":"e","forecaster":"` + id201 + `","probability":0}`, "/command/forecaster"},
		{"probability of 1", `{"op":"forecast_record","event_id":"e","forecaster":"a","probability":1}`, ""},
		{"probability above 1", `{"op":"forecast_record","event_id":"e","forecaster":"a","probability":1.0000000000000002}`, "/command/probability"},
		{"probability below 0", `{"op":"forecast_record","event_id":"e","forecaster":"a","probability":-5e-324}`, "/command/probability"},
		{"probability of 1e400", `{"op":"forecast_record","event_id":"e","forecaster":"a","probability":1e400}`, "/command/probability"},
		{"probability in quotes", `{"op":"forecast_record","event_id":"e","forecaster":"a","probability":"0.5"}`, "/command/probability"},
		{"outcome of 1", `{"op":"event_resolve","event_id":"e","outcome":1}`, "/command/outcome"},
		{"closes_at with an offset", `{"op":"event_create","event_id":"t1","question":"?","closes_at":"2030-01-01T01:00:00.5+01:00"}`, ""},
		{"closes_at without an offset", `{"op":"event_create","event_id":"t2","question":"?","closes_at":"2030-01-01T01:00:00"}`, "/command/closes_at"},
		{"closes_at without a time", `{"op":"event_create","event_id":"t2","question":"?","closes_at":"2030-01-01"}`, "/command/closes_at"},
		{"closes_at on the 30th of February", `{"op":"event_create","event_id":"t2","question":"?","closes_at":"2030-02-30T00:00:00Z"}`, "/command/closes_at"},
		{"closes_at with a comma", `{"op":"event_create","event_id":"t2","question":"?","closes_at":"2030-01-01T01:00:00,5Z"}`, "/command/closes_at"},
		{"closes_at with a space", `{"op":"event_create","event_id":"t2","question":"?","closes_at":"2030-01-01 01:00:00Z"}`, "/command/closes_at"},
		{"closes_at that is a number", `{"op":"event_create","event_id":"t2","question":"?","closes_at":1893456000}`, "/command/closes_at"},
		{"closes_at in the past is a closed event", `{"op":"event_create","event_id":"t3","question":"?","closes_at":"0001-01-01T00:00:00Z"}`, ""},
		{"limit of 1000", `{"op":"event_list","limit":1000}`, ""},
		{"limit of 1001", `{"op":"event_list","limit":1001}`, "/command/limit"},
		{"limit of 0", `{"op":"forecast_list","event_id":"e","limit":0}`, "/command/limit"},
		{"an unknown status", `{"op":"event_list","status":"done"}`, "/command/status"},
		{"reason of 2000 bytes", `{"op":"event_void","event_id":"e","reason":"` + text2000 + `"}`, ""},
		{"reason of 2001 bytes", `{"op":"event_void","event_id":"e","reason":"` + text2001 + `"}`, "/command/reason"},
	} {
		t.Run(c.name, func(t *testing.T) {
			line := `{"version":1,"id":"` + c.name + `","command":` + c.command + `}`
			answer := a.Answer(t.Context(), []byte(line))
			switch {
			case *answer.ID != c.name:
				t.Errorf("id %q", *answer.ID)
			case c.pointer == "" && answer.Error != nil:
				t.Errorf("%v at %q", answer.Error, answer.Error.Details.Pointer)
			case c.pointer != "" && (answer.Error == nil || answer.Error.Code != wire.InvalidRequest || answer.Error.Details.Pointer != c.pointer):
				t.Errorf("%+v, want invalid_request at %s", answer.Error, c.pointer)
			}
		})
	}
	got := decode[forecast.EventFound](t, must(t, a, "x", forecast.EventGet{EventID: "t3"})).Event
	if got.Status != forecast.StatusClosed || got.ClosesAt == nil {
		t.Errorf("an event that closes in the year 1 is %+v", got)
	}
}

// Pages, put together, are the whole list, in order and without a double.
func TestPages(t *testing.T) {
	a := &forecast.Agent{Ledger: memory(t)}
	var ids []string
	for i := range 25 {
		id := fmt.Sprintf("e%02d", (i*7)%25)
		ids = append(ids, id)
		must(t, a, id, forecast.EventCreate{EventID: id, Question: "?"})
		must(t, a, "f"+id, forecast.ForecastRecord{EventID: "e00", Forecaster: fmt.Sprint(i % 3), Probability: 0.5})
	}
	slices.Sort(ids)
	var got []string
	after := ""
	for {
		page := decode[forecast.EventPage](t, must(t, a, "x", forecast.EventList{After: after, Limit: 10}))
		for _, e := range page.Events {
			got = append(got, e.ID)
		}
		if page.Next == nil {
			break
		}
		after = *page.Next
	}
	if diff := cmp.Diff(ids, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var numbers []int64
	last := int64(0)
	for {
		page := decode[forecast.ForecastPage](t, must(t, a, "x", forecast.ForecastList{EventID: "e00", Forecaster: "1", After: last, Limit: 4}))
		for _, f := range page.Forecasts {
			numbers = append(numbers, f.Number)
		}
		if page.Next == nil {
			break
		}
		last = *page.Next
	}
	if diff := cmp.Diff([]int64{2, 5, 8, 11, 14, 17, 20, 23}, numbers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	whole := decode[forecast.EventPage](t, must(t, a, "x", forecast.EventList{Limit: 25}))
	if len(whole.Events) != 25 || whole.Next != nil {
		t.Errorf("%d events, next %v", len(whole.Events), whole.Next)
	}
	none := decode[forecast.EventPage](t, must(t, a, "x", forecast.EventList{Status: forecast.StatusVoid}))
	if len(none.Events) != 0 || none.Next != nil {
		t.Errorf("%+v", none)
	}
}

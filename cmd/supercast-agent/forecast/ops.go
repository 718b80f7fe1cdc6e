package forecast

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

// Ops is the set of operations of the protocol.
var Ops = wire.NewSet(
	wire.Operation{Command: BinaryScore{}, Result: Score{}},
	wire.Operation{Command: EventGet{}, Result: EventFound{}},
	wire.Operation{Command: EventList{}, Result: EventPage{}},
	wire.Operation{Command: ForecastList{}, Result: ForecastPage{}},
	wire.Operation{Command: Leaderboard{}, Result: Ranking{}},
	wire.Operation{Command: EventCreate{}, Result: EventChanged{}, Mutation: true},
	wire.Operation{Command: ForecastRecord{}, Result: ForecastRecorded{}, Mutation: true},
	wire.Operation{Command: EventResolve{}, Result: EventChanged{}, Mutation: true},
	wire.Operation{Command: EventVoid{}, Result: EventChanged{}, Mutation: true},
)

// DefaultLimit is how long a page is if the request does not say.
const DefaultLimit = 100

// BinaryScore scores one probability against an outcome. It needs no ledger.
type BinaryScore struct {
	Probability float64 `json:"probability" wire:"min=0,max=1"`
	Outcome     bool    `json:"outcome"`
}

// Score answers [BinaryScore].
type Score struct {
	Brier float64 `json:"brier"` // (p-o)²
	Log   float64 `json:"log"`   // -ln of the probability given to what happened
}

// EventGet asks for one event.
type EventGet struct {
	EventID string `json:"event_id" wire:"nonblank,max=200"`
}

// EventFound answers [EventGet].
type EventFound struct {
	Event Event `json:"event"`
}

// EventList asks for events in the order of their ids.
type EventList struct {
	Status Status `json:"status,omitzero"`
	After  string `json:"after,omitzero" wire:"nonblank,max=200"` // an event id
	Limit  int    `json:"limit,omitzero" wire:"min=1,max=1000"`
}

// EventPage answers [EventList]. Next is what to ask for after, null at the end.
type EventPage struct {
	Events []Event `json:"events"`
	Next   *string `json:"next"`
}

// ForecastList asks for the forecasts on an event in the order of their making.
type ForecastList struct {
	EventID    string `json:"event_id" wire:"nonblank,max=200"`
	Forecaster string `json:"forecaster,omitzero" wire:"nonblank,max=200"`
	After      int64  `json:"after,omitzero" wire:"min=1"` // a forecast's number
	Limit      int    `json:"limit,omitzero" wire:"min=1,max=1000"`
}

// ForecastPage answers [ForecastList]. Next is what to ask for after, null at
// the end.
type ForecastPage struct {
	Forecasts []Forecast `json:"forecasts"`
	Next      *int64     `json:"next"`
}

// Leaderboard asks for the forecasters, best first.
type Leaderboard struct {
	Limit int `json:"limit,omitzero" wire:"min=1,max=1000"`
}

// Ranking answers [Leaderboard].
type Ranking struct {
	Resolved    int      `json:"resolved"` // events that count
	Forecasters int      `json:"forecasters"`
	Leaderboard []Ranked `json:"leaderboard"`
}

// Ranked is a forecaster's mean scores over the resolved events on which he
// made a forecast.
type Ranked struct {
	Forecaster string   `json:"forecaster"`
	Events     int      `json:"events"`
	Brier      float64  `json:"brier"`
	Log        *float64 `json:"log"` // null if infinite
}

// EventCreate adds an event.
type EventCreate struct {
	EventID  string `json:"event_id" wire:"nonblank,max=200"`
	Question string `json:"question" wire:"nonblank,max=2000"`
	// ClosesAt ends the taking of forecasts. omitzero would lose the year 1: it
	// asks the time, not the pointer, whether it is zero.
	ClosesAt *time.Time `json:"closes_at,omitempty"`
}

// ForecastRecord adds a forecast.
type ForecastRecord struct {
	EventID     string  `json:"event_id" wire:"nonblank,max=200"`
	Forecaster  string  `json:"forecaster" wire:"nonblank,max=200"`
	Probability float64 `json:"probability" wire:"min=0,max=1"`
}

// EventResolve says what happened.
type EventResolve struct {
	EventID string `json:"event_id" wire:"nonblank,max=200"`
	Outcome bool   `json:"outcome"`
}

// EventVoid takes an event out of the scoring.
type EventVoid struct {
	EventID string `json:"event_id" wire:"nonblank,max=200"`
	Reason  string `json:"reason" wire:"nonblank,max=2000"`
}

// EventChanged answers the mutations of an event.
type EventChanged struct {
	Receipt Receipt `json:"receipt"`
	Event   Event   `json:"event"`
}

// ForecastRecorded answers [ForecastRecord] with the forecaster's standing
// forecast: a retry that comes after a newer one shows the newer one.
type ForecastRecorded struct {
	Receipt  Receipt  `json:"receipt"`
	Forecast Forecast `json:"forecast"`
	Event    Event    `json:"event"`
}

// Receipt proves that a mutation was committed.
type Receipt struct {
	ID          string    `json:"id"`
	Op          string    `json:"op"`
	CommittedAt time.Time `json:"committed_at"`

	stored jsontext.Value // as it was committed
}

// newReceipt makes the receipt of a mutation that is about to be committed.
func newReceipt(id, op string, now time.Time) (Receipt, error) {
	r := Receipt{ID: id, Op: op, CommittedAt: now}
	type plain Receipt
	stored, err := json.Marshal(plain(r))
	r.stored = stored
	return r, err
}

// MarshalJSONTo writes the bytes that were committed, so that a receipt stays
// the same even when a later version would write it otherwise.
func (r Receipt) MarshalJSONTo(e *jsontext.Encoder) error { return e.WriteValue(r.stored) }

// Status says how far an event has come.
type Status string

const (
	StatusOpen     Status = "open"
	StatusClosed   Status = "closed" // takes no more forecasts, outcome not known
	StatusResolved Status = "resolved"
	StatusVoid     Status = "void"
)

// Enum lists the statuses.
func (Status) Enum() []string {
	return []string{string(StatusOpen), string(StatusClosed), string(StatusResolved), string(StatusVoid)}
}

// Event is a question with a yes or no for an answer.
type Event struct {
	ID        string     `json:"event_id"`
	Question  string     `json:"question"`
	Status    Status     `json:"status"`
	Outcome   *bool      `json:"outcome"`
	Reason    *string    `json:"reason"` // why it is void
	CreatedAt time.Time  `json:"created_at"`
	ClosesAt  *time.Time `json:"closes_at"`
	SettledAt *time.Time `json:"settled_at"` // resolved or made void
	Forecasts int64      `json:"forecasts"`  // how many
}

// Forecast is one probability that somebody gave to an event.
type Forecast struct {
	EventID     string    `json:"event_id"`
	Number      int64     `json:"number"` // from 1, of the event
	Forecaster  string    `json:"forecaster"`
	Probability float64   `json:"probability"`
	RecordedAt  time.Time `json:"recorded_at"`
}

// Op names the operation.
func (BinaryScore) Op() string    { return "binary_score" }
func (EventGet) Op() string       { return "event_get" }
func (EventList) Op() string      { return "event_list" }
func (ForecastList) Op() string   { return "forecast_list" }
func (Leaderboard) Op() string    { return "leaderboard" }
func (EventCreate) Op() string    { return "event_create" }
func (ForecastRecord) Op() string { return "forecast_record" }
func (EventResolve) Op() string   { return "event_resolve" }
func (EventVoid) Op() string      { return "event_void" }

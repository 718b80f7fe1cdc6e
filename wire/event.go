package wire

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// EventType says what an event tells; its data has that type's shape.
type EventType string

const (
	EventOutput      EventType = "output"
	EventStderr      EventType = "stderr"
	EventState       EventType = "state"
	EventQueue       EventType = "queue"
	EventTurnStarted EventType = "turn_started"
	EventTurnEnded   EventType = "turn_ended"
	EventNotice      EventType = "notice"
	EventExit        EventType = "exit"
	EventError       EventType = "error"
	// What the dialects of conversations add.
	EventToken              EventType = "token"
	EventThinking           EventType = "thinking"
	EventMessage            EventType = "message"
	EventToolStarted        EventType = "tool_started"
	EventToolUpdated        EventType = "tool_updated"
	EventToolEnded          EventType = "tool_ended"
	EventUsage              EventType = "usage"
	EventCompacted          EventType = "compacted"
	EventPlan               EventType = "plan"
	EventPermissionRequest  EventType = "permission_requested"
	EventPermissionResolved EventType = "permission_resolved"
)

// Enum lists the types.
func (EventType) Enum() []string {
	return []string{
		string(EventOutput), string(EventState), string(EventTurnStarted), string(EventToken), string(EventThinking), string(EventMessage),
		string(EventToolStarted), string(EventToolUpdated), string(EventToolEnded), string(EventUsage), string(EventCompacted),
		string(EventTurnEnded), string(EventPermissionRequest), string(EventPermissionResolved), string(EventQueue), string(EventPlan),
		string(EventNotice), string(EventStderr), string(EventExit), string(EventError),
	}
}

// Event is one numbered fact about an instance.
type Event struct {
	Seq      uint64         `json:"seq"` // from 1, without gaps
	Time     time.Time      `json:"time"`
	Instance string         `json:"instance"` // its id
	Session  *string        `json:"session"`
	Turn     *string        `json:"turn"`
	Type     EventType      `json:"type"`
	Data     jsontext.Value `json:"data"`
}

// NewEvent makes an event without number, time and instance, which the journal
// adds.
func NewEvent(t EventType, data any) Event {
	b, err := json.Marshal(data)
	if err != nil {
		panic("wire: event data: " + err.Error()) // only shapes of this package are passed
	}
	return Event{Type: t, Data: b}
}

// In places the event in a session and a turn; empty strings leave them out.
func (e Event) In(session, turn string) Event {
	if session != "" {
		e.Session = &session
	}
	if turn != "" {
		e.Turn = &turn
	}
	return e
}

// OutputData is a batch of an agent's raw output (dialect plain). Exactly one
// of Text and Base64 is set: the latter if the bytes are not UTF-8.
type OutputData struct {
	Text   *string `json:"text,omitzero"`
	Base64 *string `json:"base64,omitzero"`
	Lines  int     `json:"lines"` // line ends in the batch
}

// StderrData is a batch of an agent's standard error.
type StderrData struct {
	Text   *string `json:"text,omitzero"`
	Base64 *string `json:"base64,omitzero"`
}

// StateData tells a change of state.
type StateData struct {
	State    State     `json:"state"`
	Activity *Activity `json:"activity"`
	Reason   *string   `json:"reason"`
	Run      int       `json:"run"`
	PID      *int      `json:"pid"`
	Holds    []Hold    `json:"holds"`
}

// QueueData is the whole queue after a change.
type QueueData struct {
	Turns []Queued `json:"turns"`
}

// TurnStartedData tells who began a turn.
type TurnStartedData struct {
	RequestID *string `json:"request_id"`
	By        string  `json:"by"` // client, queue or agent
}

// Outcome is how a turn ended.
type Outcome string

const (
	TurnCompleted Outcome = "completed"
	TurnRefused   Outcome = "refused"
	TurnCancelled Outcome = "cancelled"
	TurnFailed    Outcome = "failed"
	TurnUnknown   Outcome = "unknown"
)

// Enum lists the outcomes.
func (Outcome) Enum() []string {
	return []string{string(TurnCompleted), string(TurnRefused), string(TurnCancelled), string(TurnFailed), string(TurnUnknown)}
}

// TurnEndedData tells how a turn ended. Response is an NDJSON agent's envelope.
type TurnEndedData struct {
	Outcome    Outcome         `json:"outcome"`
	StopReason *string         `json:"stop_reason"`
	Response   *jsontext.Value `json:"response"`
	Error      *ErrorData      `json:"error"`
}

// ErrorData is an error event's data.
type ErrorData struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// NoticeKind says what a notice is about.
type NoticeKind string

const (
	NoticeOversize   NoticeKind = "oversize"   // a line over the cap was dropped
	NoticeTorn       NoticeKind = "torn"       // something ended in the middle
	NoticeGap        NoticeKind = "gap"        // events were lost, and are counted
	NoticeSuppressed NoticeKind = "suppressed" // too much standard error
	NoticeNotJSON    NoticeKind = "not_json"   // noise on the protocol's stream
	NoticeMemory     NoticeKind = "memory"
	NoticeAdopted    NoticeKind = "adopted"
	NoticeRebuilt    NoticeKind = "rebuilt"
	NoticeEpoch      NoticeKind = "epoch"
)

// Enum lists the kinds.
func (NoticeKind) Enum() []string {
	return []string{
		string(NoticeOversize), string(NoticeTorn), string(NoticeGap), string(NoticeSuppressed), string(NoticeNotJSON),
		string(NoticeMemory), string(NoticeAdopted), string(NoticeRebuilt), string(NoticeEpoch),
	}
}

// NoticeData tells what a person should know.
type NoticeData struct {
	Kind    NoticeKind `json:"kind"`
	Message string     `json:"message"`
	Count   *int64     `json:"count"`
	Bytes   *int64     `json:"bytes"`
}

// ExitData tells how a run ended.
type ExitData struct {
	Exit
	Reason     string   `json:"reason"`
	StderrTail []string `json:"stderr_tail"`
}

package host

import (
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/wire"
)

// keptRequests is how many finished requests a host remembers. A retry of an
// older one is answered with unknown, never sent again.
const keptRequests = 256

// memory is what a host knows again after it was killed. It lives in the
// journal, so the two cannot disagree. Everything is noted here before it is
// appended there: a segment that begins in between then knows it too.
type memory struct {
	mu   sync.Mutex // guards kept
	kept remembered
}

type remembered struct {
	Run      int       `json:"run"`      // of the last start
	ExitRun  int       `json:"exit_run"` // of the last exit event
	Turn     int       `json:"turn"`     // counter of turns
	Restarts int       `json:"restarts"`
	Since    time.Time `json:"since"` // requests committed before are not all known
	Requests []request `json:"requests"`
}

// request is a submit that was accepted.
type request struct {
	ID      string       `json:"id"`
	Turn    string       `json:"turn"`
	Outcome wire.Outcome `json:"outcome,omitzero"` // empty while its turn is open
	At      time.Time    `json:"at"`
}

func newMemory() *memory { return &memory{kept: remembered{Since: wire.Now()}} }

// Save is called when a segment begins.
func (m *memory) Save() any {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.kept
	c.Requests = slices.Clone(c.Requests)
	return c
}

// Restore takes the last segment's checkpoint.
func (m *memory) Restore(checkpoint jsontext.Value) {
	var c remembered
	if json.Unmarshal(checkpoint, &c) == nil {
		m.kept = c
	}
}

// Replay takes the last segment's events.
func (m *memory) Replay(e journal.Entry) {
	switch e.Type {
	case wire.EventState, wire.EventExit, wire.EventTurnStarted, wire.EventTurnEnded, wire.EventQueue:
	default:
		return
	}
	ev, err := e.Event()
	if err != nil {
		return
	}
	switch e.Type {
	case wire.EventState:
		var d wire.StateData
		if json.Unmarshal(ev.Data, &d) == nil {
			m.kept.Run = max(m.kept.Run, d.Run)
		}
	case wire.EventExit:
		var d wire.ExitData
		if json.Unmarshal(ev.Data, &d) == nil {
			m.kept.ExitRun = max(m.kept.ExitRun, d.Run)
		}
	case wire.EventTurnStarted:
		var d wire.TurnStartedData
		if json.Unmarshal(ev.Data, &d) == nil && d.RequestID != nil && ev.Turn != nil {
			m.accept(*d.RequestID, *ev.Turn, ev.Time)
		}
	case wire.EventQueue:
		var d wire.QueueData
		if json.Unmarshal(ev.Data, &d) == nil {
			for _, q := range d.Turns {
				m.accept(q.RequestID, q.Turn, ev.Time)
			}
		}
	case wire.EventTurnEnded:
		var d wire.TurnEndedData
		if json.Unmarshal(ev.Data, &d) == nil && ev.Turn != nil {
			m.settle(*ev.Turn, d.Outcome)
		}
	}
}

// Accept notes a request before its event is appended.
func (m *memory) Accept(id, turn string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accept(id, turn, at)
}

func (m *memory) accept(id, turn string, at time.Time) {
	if n := turnNumber(turn); n > m.kept.Turn {
		m.kept.Turn = n
	}
	if _, known := m.find(id); known {
		return
	}
	m.kept.Requests = append(m.kept.Requests, request{ID: id, Turn: turn, At: at})
	for i := 0; len(m.kept.Requests) > keptRequests && i < len(m.kept.Requests); {
		if r := m.kept.Requests[i]; r.Outcome != "" {
			m.kept.Since = r.At
			m.kept.Requests = slices.Delete(m.kept.Requests, i, i+1)
			continue
		}
		i++
	}
}

// Forget takes an accepted request back: its event could not be appended.
func (m *memory) Forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, known := m.find(id); known {
		m.kept.Requests = slices.Delete(m.kept.Requests, i, i+1)
	}
}

// Settle notes how a turn ended before its event is appended.
func (m *memory) Settle(turn string, o wire.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(turn, o)
}

func (m *memory) settle(turn string, o wire.Outcome) {
	for i := range m.kept.Requests {
		if m.kept.Requests[i].Turn == turn {
			m.kept.Requests[i].Outcome = o
		}
	}
}

func (m *memory) find(id string) (int, bool) {
	i := slices.IndexFunc(m.kept.Requests, func(r request) bool { return r.ID == id })
	return i, i >= 0
}

// Known looks a request up. covered is false if a request committed at that
// time may have been forgotten.
func (m *memory) Known(id string, committed time.Time) (r request, known, covered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, ok := m.find(id); ok {
		return m.kept.Requests[i], true, true
	}
	return request{}, false, committed.After(m.kept.Since)
}

// Open lists the requests whose turns have not ended.
func (m *memory) Open() []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []request
	for _, r := range m.kept.Requests {
		if r.Outcome == "" {
			out = append(out, r)
		}
	}
	return out
}

// NextTurn gives out a turn's number.
func (m *memory) NextTurn() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept.Turn++
	return m.kept.Turn
}

// StartRun counts a start of the agent.
func (m *memory) StartRun(restart bool) (run int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept.Run++
	if restart {
		m.kept.Restarts++
	}
	return m.kept.Run
}

// Restarts counts the automatic starts.
func (m *memory) Restarts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept.Restarts
}

// Exited notes that the exit event of a run is about to be appended; false
// means that it stands there already.
func (m *memory) Exited(run int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if run <= m.kept.ExitRun {
		return false
	}
	m.kept.ExitRun = run
	m.kept.Run = max(m.kept.Run, run)
	return true
}

package dialect

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

// MainSession is the one session of an NDJSON agent.
const MainSession = "main"

// ndjson is the envelope of the control protocol itself: one request object a
// line, one response a line, in the order of the requests. A turn is one
// request; the client's request id is the agent's envelope id too, so that the
// agent's own receipts protect a retry.
type ndjson struct {
	open  map[string]string // envelope id → turn
	order []string          // envelope ids in the order they were sent
}

func (*ndjson) Traits() Traits { return Traits{EndsOnEOF: true, Session: MainSession} }

func (d *ndjson) Begin(t Turn) ([]byte, *wire.Error) {
	if t.Submit.Command == nil {
		return nil, wire.Errorf(wire.InvalidRequest, "an NDJSON agent takes a command object, not text").At("/command/command")
	}
	command, err := compact(t.Submit.Command)
	if err != nil {
		return nil, wire.Errorf(wire.InvalidRequest, "the command is not JSON: %v", err).At("/command/command")
	}
	line, err := json.Marshal(struct {
		Version int            `json:"version"`
		ID      string         `json:"id"`
		Command jsontext.Value `json:"command"`
	}{wire.Protocol, t.Request, command})
	if err != nil {
		return nil, wire.Errorf(wire.InvalidRequest, "the command cannot be encoded: %v", err).At("/command/command")
	}
	if len(line) >= wire.MaxLine {
		return nil, wire.Errorf(wire.RequestTooLarge, "the command makes a line of %d bytes, more than %d", len(line)+1, wire.MaxLine)
	}
	d.open[t.Request] = t.ID
	d.order = append(d.order, t.Request)
	return line, nil
}

// Read takes a response. One with a null id answers the oldest request: the
// agent could not read its envelope.
func (d *ndjson) Read(line []byte) []Fact {
	var r wire.RawResponse
	err := json.Unmarshal(line, &r, jsontext.AllowDuplicateNames(true))
	if err != nil || r.Result == nil && r.Error == nil {
		return d.other(line)
	}
	id := ""
	switch {
	case r.ID != nil:
		id = *r.ID
	case len(d.order) > 0:
		id = d.order[0]
	}
	turn, ours := d.open[id]
	if !ours {
		return d.other(line)
	}
	d.forget(id)
	whole, err := compact(line)
	if err != nil { // which the journal does not take
		whole = nil
	}
	data := wire.TurnEndedData{Outcome: wire.TurnCompleted}
	if whole != nil {
		data.Response = &whole
	}
	if r.Error != nil {
		data.Outcome = wire.TurnFailed
		data.Error = &wire.ErrorData{Code: r.Error.Code, Message: r.Error.Message}
	}
	return []Fact{TurnEnded{Turn: turn, Data: data}}
}

func (d *ndjson) forget(id string) {
	delete(d.open, id)
	for i, o := range d.order {
		if o == id {
			d.order = append(d.order[:i], d.order[i+1:]...)
			return
		}
	}
}

// other passes on a line that answers nothing.
func (d *ndjson) other(line []byte) []Fact {
	text := string(line)
	return []Fact{Said{Event: wire.NewEvent(wire.EventOutput, wire.OutputData{Text: &text, Lines: 1})}}
}

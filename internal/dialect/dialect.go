// Package dialect says what the lines of one kind of agent mean: one file each.
//
// A dialect is told what clients want and what the agent wrote, and answers
// with lines for the agent and with facts for the host. It does no I/O, keeps
// no clock and numbers nothing, so a recording of an agent replays through it
// exactly. The host owns one value for each run of an agent and calls it from
// one goroutine.
package dialect

import (
	"errors"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

// Dialect reads and writes for one run of one agent.
type Dialect interface {
	// Traits is what the host must know before the agent runs.
	Traits() Traits
	// Begin returns the line that begins a turn. An error refuses the turn;
	// nothing was sent then.
	Begin(t Turn) (line []byte, err *wire.Error)
	// Read takes a line from the agent and returns what it tells.
	Read(line []byte) []Fact
}

// Traits is what sets a dialect apart for the host.
type Traits struct {
	// Bytes: the output is not lines of JSON; it is kept as it comes and the
	// input is never written.
	Bytes bool
	// EndsOnEOF: the agent ends by itself when its input ends.
	EndsOnEOF bool
	// Session names the agent's only session; empty if it has none.
	Session string
}

// Turn is one thing that the agent is asked to do.
type Turn struct {
	ID      string
	Request string // id of the request that caused it
	Submit  wire.Submit
}

// Fact is something that a line told: a [TurnEnded] or a [Said].
type Fact interface{ fact() }

// TurnEnded tells that a turn is over.
type TurnEnded struct {
	Turn string
	Data wire.TurnEndedData
}

// Said tells anything else, as an event of the turn that runs.
type Said struct{ Event wire.Event }

func (TurnEnded) fact() {}
func (Said) fact()      {}

// For returns the dialect for a run of an instance. Auto must have been
// resolved by [Recognise] before.
func For(d wire.Dialect) Dialect {
	if d == wire.NDJSON {
		return &ndjson{open: map[string]string{}}
	}
	return plain{}
}

// Recognise tells a dialect from a command line. What it does not know is
// plain.
func Recognise(named wire.Dialect, argv []string) wire.Dialect {
	if named != "" && named != wire.Auto {
		return named
	}
	if len(argv) > 0 && filepath.Base(argv[0]) == "supercast-agent" {
		return wire.NDJSON
	}
	return wire.Plain
}

// compact returns a JSON value without white space between its tokens, so that
// it fits on a line. A value in which a name stands twice is an error, although
// its form is good: what is written down must mean one thing. So is one that is
// so deep that it could not be read within an event.
func compact(v jsontext.Value) (jsontext.Value, error) {
	v = v.Clone()
	if err := v.Compact(); err != nil {
		return nil, err
	}
	around := append(append([]byte("[[[[[[[["), v...), "]]]]]]]]"...)
	if !jsontext.Value(around).IsValid() {
		return nil, errUnfit
	}
	return v, nil
}

var errUnfit = errors.New("a name stands twice in an object, or it is too deep")

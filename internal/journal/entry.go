package journal

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

// Entry is one record as it was read. Its bytes belong to the reader.
type Entry struct {
	Seq  uint64
	Time time.Time
	Type wire.EventType

	line     []byte
	raw      bool
	payload  []byte
	lines    int
	instance string
}

// The members of a record's line stand in a fixed order, so that reading past
// it needs no JSON decoder.
var (
	seqPrefix  = []byte(`{"seq":`)
	timePrefix = []byte(`,"time":"`)
	rawPrefix  = []byte(`","raw":`)
	typePrefix = []byte(`,"type":"`)
	linesTail  = []byte(`","lines":`)
)

// parseLine reads what every record has, and for a raw one the length of its
// payload.
func parseLine(line []byte) (e Entry, payload int, err error) {
	rest, ok := bytes.CutPrefix(line, seqPrefix)
	if !ok {
		return e, 0, errDamaged
	}
	seq, rest, ok := cutNumber(rest)
	if !ok {
		return e, 0, errDamaged
	}
	e.Seq, e.line = seq, line
	rest, ok = bytes.CutPrefix(rest, timePrefix)
	if !ok {
		return e, 0, errDamaged
	}
	end := bytes.IndexByte(rest, '"')
	if end < 1 || rest[end-1] != 'Z' {
		return e, 0, errDamaged
	}
	if e.Time, err = time.Parse(time.RFC3339Nano, string(rest[:end])); err != nil {
		return e, 0, errDamaged
	}
	rest = rest[end:]
	if after, ok := bytes.CutPrefix(rest, rawPrefix); ok {
		return e.parseRaw(after)
	}
	i := bytes.Index(rest, typePrefix)
	if i < 0 || line[len(line)-1] != '}' {
		return e, 0, errDamaged
	}
	rest = rest[i+len(typePrefix):]
	if end = bytes.IndexByte(rest, '"'); end < 0 {
		return e, 0, errDamaged
	}
	e.Type = wire.EventType(rest[:end])
	return e, 0, nil
}

func (e Entry) parseRaw(rest []byte) (Entry, int, error) {
	e.raw = true
	n, rest, ok := cutNumber(rest)
	if !ok || n > maxRecord {
		return e, 0, errDamaged
	}
	rest, ok = bytes.CutPrefix(rest, typePrefix)
	if !ok {
		return e, 0, errDamaged
	}
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return e, 0, errDamaged
	}
	e.Type = wire.EventType(rest[:end])
	rest, ok = bytes.CutPrefix(rest[end:], linesTail)
	if !ok {
		return e, 0, errDamaged
	}
	lines, rest, ok := cutNumber(rest)
	if !ok || lines > n || string(rest) != "}" {
		return e, 0, errDamaged
	}
	e.lines = int(lines)
	return e, int(n), nil
}

func cutNumber(b []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	n, err := strconv.ParseUint(string(b[:i]), 10, 64)
	return n, b[i:], err == nil
}

// Raw returns the agent's own bytes of a raw record, and whether it is one.
func (e Entry) Raw() ([]byte, bool) { return e.payload, e.raw }

// AppendJSON appends the event as JSON, in the shape of [wire.Event].
func (e Entry) AppendJSON(b []byte) []byte {
	if !e.raw {
		return append(b, e.line...)
	}
	b = appendHead(b, e.Seq, e.Time)
	b = append(b, `","instance":`...)
	b, _ = jsontext.AppendQuote(b, e.instance)
	b = append(b, `,"session":null,"turn":null,"type":"`...)
	b = append(b, e.Type...)
	b = append(b, `","data":{`...)
	if utf8.Valid(e.payload) {
		b = append(b, `"text":`...)
		b, _ = jsontext.AppendQuote(b, e.payload)
	} else {
		b = append(b, `"base64":"`...)
		b = base64.StdEncoding.AppendEncode(b, e.payload)
		b = append(b, '"')
	}
	if e.Type == wire.EventOutput {
		b = append(b, `,"lines":`...)
		b = strconv.AppendInt(b, int64(e.lines), 10)
	}
	return append(b, `}}`...)
}

// Event decodes the record.
func (e Entry) Event() (wire.Event, error) {
	var ev wire.Event
	err := json.Unmarshal(e.AppendJSON(nil), &ev)
	return ev, err
}

// appendHead begins a record's line, up to the closing quote of the time.
func appendHead(b []byte, seq uint64, at time.Time) []byte {
	b = append(b, seqPrefix...)
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, timePrefix...)
	return at.UTC().AppendFormat(b, time.RFC3339Nano)
}

// appendEvent writes an event as a record.
func appendEvent(b []byte, ev *wire.Event) []byte {
	b = appendHead(b, ev.Seq, ev.Time)
	b = append(b, `","instance":`...)
	b, _ = jsontext.AppendQuote(b, ev.Instance)
	for _, m := range []struct {
		name  string
		value *string
	}{{"session", ev.Session}, {"turn", ev.Turn}} {
		b = append(b, `,"`...)
		b = append(b, m.name...)
		b = append(b, `":`...)
		if m.value == nil {
			b = append(b, `null`...)
		} else {
			b, _ = jsontext.AppendQuote(b, *m.value)
		}
	}
	b = append(b, typePrefix...)
	b = append(b, ev.Type...)
	b = append(b, `","data":`...)
	b = append(b, ev.Data...)
	return append(b, "}\n"...)
}

// appendRawLine writes the line of a raw record.
func appendRawLine(b []byte, seq uint64, at time.Time, t wire.EventType, size, lines int) []byte {
	b = appendHead(b, seq, at)
	b = append(b, rawPrefix...)
	b = strconv.AppendInt(b, int64(size), 10)
	b = append(b, typePrefix...)
	b = append(b, t...)
	b = append(b, linesTail...)
	b = strconv.AppendInt(b, int64(lines), 10)
	return append(b, "}\n"...)
}

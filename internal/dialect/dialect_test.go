package dialect

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

func TestRecognise(t *testing.T) {
	for _, tc := range []struct {
		named wire.Dialect
		argv  string
		want  wire.Dialect
	}{
		{"", "sleep 1", wire.Plain},
		{wire.Auto, "sleep 1", wire.Plain},
		{wire.Auto, "/usr/bin/supercast-agent --db x", wire.NDJSON},
		{wire.Auto, "supercast-agent", wire.NDJSON},
		{wire.Auto, "sh supercast-agent", wire.Plain},
		{wire.Plain, "supercast-agent", wire.Plain},
		{wire.NDJSON, "sleep 1", wire.NDJSON},
		{wire.Auto, "", wire.Plain},
	} {
		if got := Recognise(tc.named, strings.Fields(tc.argv)); got != tc.want {
			t.Errorf("%q, %q: %s, want %s", tc.named, tc.argv, got, tc.want)
		}
	}
}

// Plain promises nothing: its bytes are a log, and nothing is ever written.
func TestPlain(t *testing.T) {
	d := For(wire.Plain)
	if traits := d.Traits(); !traits.Bytes || traits.EndsOnEOF || traits.Session != "" {
		t.Errorf("%+v", traits)
	}
	line, err := d.Begin(Turn{ID: "t1", Submit: wire.Submit{Text: "hi"}})
	if line != nil || err == nil || err.Code != wire.UnsupportedMethod || err.Delivery != wire.NotSent {
		t.Errorf("%q, %+v", line, err)
	}
	if facts := d.Read([]byte(`{"version":1,"id":"r","result":{}}`)); facts != nil {
		t.Errorf("%+v", facts)
	}
}

func TestNDJSONBegin(t *testing.T) {
	big := `{"op":"` + strings.Repeat("x", wire.MaxLine) + `"}`
	for name, tc := range map[string]struct {
		submit wire.Submit
		want   string
		code   wire.Code
	}{
		"a command":       {wire.Submit{Command: jsontext.Value("{ \"op\": \"echo\",\n \"text\": \"é\u2028 😀\" }")}, "{\"version\":1,\"id\":\"r1\",\"command\":{\"op\":\"echo\",\"text\":\"é\u2028 😀\"}}", ""},
		"text":            {wire.Submit{Text: "hi"}, "", wire.InvalidRequest},
		"not JSON":        {wire.Submit{Command: jsontext.Value(`{"op":`)}, "", wire.InvalidRequest},
		"a line too long": {wire.Submit{Command: jsontext.Value(big)}, "", wire.RequestTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := For(wire.NDJSON).Begin(Turn{ID: "t1", Request: "r1", Submit: tc.submit})
			if tc.code == "" {
				if err != nil || string(line) != tc.want {
					t.Errorf("%q, %v; want %q", line, err, tc.want)
				}
				return
			}
			if line != nil || err == nil || err.Code != tc.code || err.Delivery != wire.NotSent {
				t.Errorf("%q, %+v; want %s", line, err, tc.code)
			}
		})
	}
}

// A recording of an agent replays exactly: what each line tells, in order. "=>"
// begins a turn, "<=" is a line from the agent, and what follows "--" it told.
func TestNDJSONReads(t *testing.T) {
	for name, script := range map[string]string{
		"one request, one answer": `
			=> r1
			<= {"version":1,"id":"r1","result":{"x":1}} -- t-r1 completed {"version":1,"id":"r1","result":{"x":1}}`,
		"an error fails the turn": `
			=> r1
			<= {"version":1,"id":"r1","error":{"code":"conflict","message":"no","delivery":"not_sent","details":{}}} -- t-r1 failed conflict: no`,
		"answers out of order": `
			=> r1
			=> r2
			<= {"version":1,"id":"r2","result":{}} -- t-r2 completed {"version":1,"id":"r2","result":{}}
			<= {"version":1,"id":"r1","result":{}} -- t-r1 completed {"version":1,"id":"r1","result":{}}`,
		"a null id answers the oldest": `
			=> r1
			=> r2
			<= {"version":1,"id":null,"error":{"code":"invalid_request","message":"what?"}} -- t-r1 failed invalid_request: what?
			<= {"version":1,"id":"r2","result":{}} -- t-r2 completed {"version":1,"id":"r2","result":{}}`,
		"a second answer is output": `
			=> r1
			<= {"version":1,"id":"r1","result":{}} -- t-r1 completed {"version":1,"id":"r1","result":{}}
			<= {"version":1,"id":"r1","result":{}} -- said {"version":1,"id":"r1","result":{}}`,
		"an answer to nothing is output": `
			<= {"version":1,"id":"r9","result":{}} -- said {"version":1,"id":"r9","result":{}}
			<= {"version":1,"id":null,"error":{"code":"x","message":"y"}} -- said {"version":1,"id":null,"error":{"code":"x","message":"y"}}`,
		"what is no answer is output": `
			=> r1
			<= {"progress":0.5} -- said {"progress":0.5}
			<= {"id":"r1"} -- said {"id":"r1"}
			<= {"id":7,"result":{}} -- said {"id":7,"result":{}}
			<= {"id":"r1","result":{}} -- t-r1 completed {"id":"r1","result":{}}`,
		"names that stand twice end the turn without its answer": `
			=> r1
			<= {"id":"r1","result":{"a":1,"a":2}} -- t-r1 completed nothing`,
		"white space goes": `
			=> r1
			<= { "id" : "r1" , "result" : { } } -- t-r1 completed {"id":"r1","result":{}}`,
	} {
		t.Run(name, func(t *testing.T) { replay(t, script) })
	}
}

func replay(t *testing.T, script string) {
	t.Helper()
	d := For(wire.NDJSON)
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case strings.HasPrefix(line, "=> "):
			id := line[3:]
			if _, err := d.Begin(Turn{ID: "t-" + id, Request: id, Submit: wire.Submit{Command: jsontext.Value(`{"op":"x"}`)}}); err != nil {
				t.Fatal(err)
			}
		default:
			said, want, _ := strings.Cut(strings.TrimPrefix(line, "<= "), " -- ")
			facts := d.Read([]byte(said))
			if len(facts) != 1 {
				t.Fatalf("%s: %d facts", said, len(facts))
			}
			if got := describe(t, facts[0]); got != want {
				t.Errorf("%s\n told %s\n want %s", said, got, want)
			}
		}
	}
}

func describe(t *testing.T, f Fact) string {
	t.Helper()
	switch f := f.(type) {
	case Said:
		var data wire.OutputData
		if err := json.Unmarshal(f.Event.Data, &data); err != nil || f.Event.Type != wire.EventOutput {
			t.Fatalf("%+v: %v", f.Event, err)
		}
		return "said " + *data.Text
	case TurnEnded:
		s := f.Turn + " " + string(f.Data.Outcome) + " "
		switch {
		case f.Data.Error != nil:
			return s + string(f.Data.Error.Code) + ": " + f.Data.Error.Message
		case f.Data.Response == nil:
			return s + "nothing"
		}
		return s + string(*f.Data.Response)
	}
	t.Fatalf("%T", f)
	return ""
}

// Whatever a line says, each turn ends at most once, and what is told can be
// written down.
func FuzzNDJSONRead(f *testing.F) {
	f.Add([]byte(`{"id":"r1","result":{}}`), []byte(`{"id":null,"error":{"code":"x","message":"y"}}`))
	f.Add([]byte(`{"id":"r2","result":{"a":1,"a":2}}`), []byte(`{"id":"r2"}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		d := For(wire.NDJSON)
		for _, id := range []string{"r1", "r2"} {
			d.Begin(Turn{ID: id, Request: id, Submit: wire.Submit{Command: jsontext.Value(`{}`)}})
		}
		ended := map[string]bool{}
		for _, line := range [][]byte{a, b, a, b} {
			v := jsontext.Value(line)
			if v.Kind() != jsontext.KindBeginObject || !v.IsValid(jsontext.AllowDuplicateNames(true)) {
				return // the transport passes on nothing else
			}
			for _, fact := range d.Read(line) {
				e, ok := fact.(TurnEnded)
				if !ok {
					continue
				}
				if ended[e.Turn] {
					t.Errorf("turn %s ended twice", e.Turn)
				}
				ended[e.Turn] = true
				wire.NewEvent(wire.EventTurnEnded, e.Data)
			}
		}
	})
}

// An answer that is as deep as a line may be ends its turn, and can be written
// down and read again, with or without it.
func TestNDJSONDeepAnswer(t *testing.T) {
	for depth := 9_980; depth <= 10_000; depth++ {
		d := For(wire.NDJSON)
		if _, err := d.Begin(Turn{ID: "t1", Request: "r1", Submit: wire.Submit{Command: jsontext.Value(`{}`)}}); err != nil {
			t.Fatal(err)
		}
		line := `{"id":"r1","result":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
		if v := jsontext.Value(line); !v.IsValid(jsontext.AllowDuplicateNames(true)) {
			t.Fatalf("a line of depth %d is no message", depth)
		}
		facts := d.Read([]byte(line))
		e, ok := facts[0].(TurnEnded)
		if !ok || e.Data.Outcome != wire.TurnCompleted {
			t.Fatalf("depth %d: %+v", depth, facts)
		}
		ev := wire.NewEvent(wire.EventTurnEnded, e.Data)
		whole, err := json.Marshal([]any{map[string]any{"event": ev}})
		if err != nil {
			t.Fatalf("depth %d: %v", depth, err)
		}
		var back []map[string]wire.Event
		if err := json.Unmarshal(whole, &back); err != nil {
			t.Fatalf("depth %d: %v", depth, err)
		}
	}
}

package forecast_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

// goldenRequests has every operation with every member.
var goldenRequests = []wire.Request{
	{ID: "request-001", Command: forecast.BinaryScore{Probability: 0.3, Outcome: true}},
	{ID: "score-2", Command: forecast.BinaryScore{Probability: 1, Outcome: false}},
	{ID: "create-1", Command: forecast.EventCreate{EventID: "rain", Question: "Does it rain on Sunday?", ClosesAt: wire.Ptr(noon.Add(48 * time.Hour))}},
	{ID: "create-2", Command: forecast.EventCreate{EventID: "snow", Question: "Schneit's? \u2028 \"☃\""}},
	{ID: "record-1", Command: forecast.ForecastRecord{EventID: "rain", Forecaster: "ann", Probability: 0.3}},
	{ID: "record-2", Command: forecast.ForecastRecord{EventID: "rain", Forecaster: "bob", Probability: 0}},
	{ID: "record-1", Command: forecast.ForecastRecord{EventID: "rain", Forecaster: "ann", Probability: 0.3}},
	{ID: "record-1", Command: forecast.ForecastRecord{EventID: "rain", Forecaster: "ann", Probability: 0.4}},
	{ID: "resolve-1", Command: forecast.EventResolve{EventID: "rain", Outcome: true}},
	{ID: "record-3", Command: forecast.ForecastRecord{EventID: "rain", Forecaster: "cy", Probability: 0.9}},
	{ID: "void-1", Command: forecast.EventVoid{EventID: "snow", Reason: "It is July."}},
	{ID: "void-2", Command: forecast.EventVoid{EventID: "hail", Reason: "-"}},
	{ID: "get", Command: forecast.EventGet{EventID: "snow"}},
	{ID: "list-1", Command: forecast.EventList{}},
	{ID: "list-2", Command: forecast.EventList{Status: forecast.StatusResolved, After: "a", Limit: 1}},
	{ID: "list-3", Command: forecast.ForecastList{EventID: "rain", Forecaster: "bob", After: 1, Limit: 1000}},
	{ID: "board", Command: forecast.Leaderboard{Limit: 10}},
}

func goldenLines(t testing.TB) [][]byte {
	t.Helper()
	var lines [][]byte
	for _, r := range goldenRequests {
		line, err := wire.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestGolden(t *testing.T) {
	lines := goldenLines(t)
	golden(t, "supercast.jsonl", append(bytes.Join(lines, []byte("\n")), '\n'))
	schema := forecast.Ops.Schema("supercast-agent protocol")
	golden(t, "supercast.schema.json", schema)

	request, response := definition(t, schema, "request"), definition(t, schema, "response")
	c := &clock{noon}
	a := &forecast.Agent{Ledger: memory(t), Now: func() time.Time { c.at = c.at.Add(time.Second); return c.at }}
	var transcript strings.Builder
	seen := map[string]bool{}
	for i, line := range lines {
		got, err := forecast.Ops.Decode(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if diff := cmp.Diff(goldenRequests[i], got); diff != "" {
			t.Errorf("%s is decoded as another:\n%s", line, diff)
		}
		seen[got.Command.Op()] = true
		answer := a.Answer(t.Context(), line).Encode()
		check(t, request, line)
		check(t, response, answer)
		fmt.Fprintf(&transcript, "> %s\n< %s", line, answer)
	}
	for _, op := range forecast.Ops.Names() {
		if !seen[op] {
			t.Errorf("no golden request for %s", op)
		}
	}
	golden(t, "supercast.transcript", []byte(transcript.String()))
}

func definition(t testing.TB, schema []byte, name string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json#/$defs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t testing.TB, s *jsonschema.Schema, line []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err == nil {
		err = s.Validate(v)
	}
	if err != nil {
		t.Errorf("%s: %v", bytes.TrimSpace(line), err)
	}
}

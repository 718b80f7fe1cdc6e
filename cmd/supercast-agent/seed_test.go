package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/castctl/castctl/wire"
)

// The text that this program was written after, sentence by sentence. Every
// answer of every case is also held against the schema; see toAnswer.
var sentences = []struct {
	sentence string
	holds    func(t *testing.T)
}{
	{"Run supercast-agent --db PATH for durable storage or --memory for an ephemeral session.", durableOrEphemeral},
	{"The process accepts newline-delimited JSON: one request object per line and one response per nonblank line.", oneResponsePerLine},
	{"Output is flushed after every response so an agent can keep a subprocess open across tool calls.", flushed},
	{"The protocol is versioned independently from the crate release.", versionedIndependently},
	{"Requests currently require version: 1, an ID, and a command object with an op discriminator.", required},
	{"Unknown fields are rejected, including nested typed fields.", unknownFields},
	{`{"version":1,"id":"request-001","command":{"op":"binary_score","probability":0.3,"outcome":true}}`, theExample},
	{"Success contains result; failure contains error.", resultOrError},
	{"Every decoded request retains its ID in the response.", retainsID},
	{"Malformed or untyped input errors use a null ID because the envelope was not successfully decoded.", nullID},
	{"IDs must contain nonwhitespace content and at most 200 UTF-8 bytes.", idRules},
	{"For calculations and reads, an ID is response correlation only.", correlationOnly},
	{"For successful durable mutations, it is a database-wide idempotency key.", databaseWideKey},
	{"Use a new ID for a new intended mutation.", newIDForNewMutation},
	{"After a timeout or lost response, resend the same decoded command and ID.", lostResponse},
	{"The original receipt is returned, including its original commit timestamp.", originalReceipt},
	{"Whitespace and object-key order do not distinguish decoded commands.", spellingIsNoDifference},
	{"Reusing a committed ID with different content is a conflict.", conflict},
	{"The schema describes structural constraints.", schemaIsStructure},
	{"Runtime validation adds UTF-8 byte limits, numerical bounds, event lifecycle checks and cross-record relationships that JSON Schema alone does not capture.", runtimeValidation},
	{"Each input line is limited to 1 MiB including its newline.", lineLimit},
	{"An oversized line receives request_too_large and ends the stream before its command executes.", oversized},
	{"Blank lines are ignored.", blankLines},
	{"Other request errors return a response and processing continues.", processingContinues},
	{"Exit code 0: Every processed request succeeded", exitZero},
	{"Exit code 1: One or more request errors, including oversized input", exitOne},
	{"Exit code 2: Startup or I/O failure", exitTwo},
	{"During serving, stdout is reserved for protocol responses.", stdoutIsProtocol},
	{"Startup diagnostics go to stderr.", diagnosticsOnStderr},
	{"--help, --version and --schema are standalone informational modes and do not open a database.", informationalModes},
	{"Keep writes and response reads coordinated.", coordinated},
	{"Never assume a successful stdin write means the database committed.", writtenIsNotCommitted},
	{"Confirm the response ID and inspect result versus error.", confirmID},
	{"On process failure, restart and retry unresolved mutations with their original IDs.", retryAfterFailure},
	{"An application that allows parallel tool calls should serialize access to one process’s stdin/stdout or use one process/connection per worker.", oneProcessPerWorker},
	{"SQLite handles database write contention, but it does not multiplex responses for a poorly coordinated client. (Here it is bbolt.)", contention},
	{"The Python demo uses a finite batch, closes stdin, and checks response count and IDs.", demoBatch},
	{"It also proves that a committed update can be retried after a process restart.", demoRetry},
	{"It is a subprocess example rather than a native Python binding.", demoIsNoBinding},
}

func TestSeed(t *testing.T) {
	for _, s := range sentences {
		t.Run(s.sentence, s.holds)
	}
}

func durableOrEphemeral(t *testing.T) {
	db := newLedger(t)
	serve(t, lines(request("1", createRain)), "--db", db)
	if got := serve(t, lines(request("1", getRain)), "--db", db).answers[0]; got.Error != nil {
		t.Errorf("not durable: %s", got.line)
	}
	if info, err := os.Stat(db); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	same := serve(t, lines(request("1", createRain), request("2", getRain)), "--memory")
	if same.answers[1].Error != nil {
		t.Errorf("forgotten within the session: %s", same.answers[1].line)
	}
	if got := serve(t, lines(request("1", getRain)), "--memory").answers[0]; got.code() != wire.NotFound {
		t.Errorf("not ephemeral: %s", got.line)
	}
}

func oneResponsePerLine(t *testing.T) {
	f := serve(t, request("a", score)+"\n\n"+request("b", score)+"\r\n \t\n"+request("c", "7")+"\n"+request("d", score), "--memory")
	var ids []string
	for _, a := range f.answers {
		ids = append(ids, a.id())
	}
	if diff := cmp.Diff([]string{"a", "b", "null", "d"}, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	two := serve(t, lines(request("a", score)+request("b", score)), "--memory")
	if len(two.answers) != 1 || two.answers[0].code() != wire.InvalidRequest || two.answers[0].id() != "null" {
		t.Errorf("two requests on a line: %s", two.stdout)
	}
}

func flushed(t *testing.T) {
	k := begin(t, agent(t), nil, "--db", newLedger(t))
	for i, c := range []string{score, createRain, `{}`, annOnRain, getRain} {
		if got := k.ask(request(fmt.Sprint(i), c)); i != 2 && got.id() != fmt.Sprint(i) {
			t.Errorf("%s", got.line)
		}
	}
	if f := k.hangUp(); f.stdout != "" || f.code != someFailed {
		t.Errorf("%+v", f)
	}
}

func versionedIndependently(t *testing.T) {
	path, err := compile(t.TempDir(), "-ldflags", "-X main.version=27.3.1")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil || string(out) != "supercast-agent 27.3.1 (protocol 1)\n" {
		t.Errorf("%q, %v", out, err)
	}
	k := begin(t, path, nil, "--memory")
	if got := k.ask(request("x", score)); got.Error != nil || got.Version != 1 {
		t.Errorf("%s", got.line)
	}
	if got := k.ask(`{"version":27,"id":"x","command":` + score + `}`); got.code() != wire.UnsupportedVersion {
		t.Errorf("%s", got.line)
	}
}

func required(t *testing.T) {
	for line, want := range map[string]wire.Code{
		request("x", score):                                                      "",
		`{"id":"x","command":` + score + `}`:                                     wire.InvalidRequest,
		`{"version":1,"command":` + score + `}`:                                  wire.InvalidRequest,
		`{"version":1,"id":"x"}`:                                                 wire.InvalidRequest,
		`{"version":1,"id":"x","command":"binary_score"}`:                        wire.InvalidRequest,
		`{"version":1,"id":"x","command":{"probability":0.3,"outcome":true}}`:    wire.InvalidRequest,
		`{"version":1,"id":"x","op":"binary_score","probability":0.3}`:           wire.InvalidRequest,
		`{"version":"1","id":"x","command":` + score + `}`:                       wire.InvalidRequest,
		`{"version":2,"id":"x","command":` + score + `}`:                         wire.UnsupportedVersion,
		request("x", `{"op":"binary_scores","probability":0.3,"outcome":true}`):  wire.UnsupportedMethod,
		request("x", `{"op":"binary_score","probability":0.3}`):                  wire.InvalidRequest,
		request("x", `{"op":"binary_score","probability":null,"outcome":true}`):  wire.InvalidRequest,
		request("x", `{"op":"binary_score","probability":0.3,"outcome":"true"}`): wire.InvalidRequest,
		request("x", `{"op":"binary_score","probability":"0.3","outcome":true}`): wire.InvalidRequest,
		`[` + request("x", score) + `]`:                                          wire.InvalidRequest,
	} {
		f := serve(t, lines(line), "--memory")
		if len(f.answers) != 1 || f.answers[0].code() != want {
			t.Errorf("%s\n%s, want %q", line, f.stdout, want)
		}
	}
}

func unknownFields(t *testing.T) {
	golden, err := os.ReadFile("../../testdata/wire/supercast.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var input []string
	for line := range bytes.Lines(golden) {
		input = append(input,
			strings.Replace(strings.TrimSpace(string(line)), `"command":{`, `"command":{"zz":1,`, 1),
			strings.Replace(strings.TrimSpace(string(line)), `{"version"`, `{"zz":1,"version"`, 1))
	}
	for i, a := range serve(t, lines(input...), "--memory").answers {
		n++
		nested := i%2 == 0
		want := map[bool]string{true: "/command/zz", false: "/zz"}[nested]
		if a.code() != wire.InvalidRequest || a.Error.Details.Pointer != want || nested != (a.ID != nil) {
			t.Errorf("%s\n%s", input[i], a.line)
		}
	}
	if n != len(input) || n < 20 {
		t.Errorf("%d answers to %d lines", n, len(input))
	}
}

func theExample(t *testing.T) {
	f := serve(t, lines(`{"version":1,"id":"request-001","command":{"op":"binary_score","probability":0.3,"outcome":true}}`), "--memory")
	const want = `{"version":1,"id":"request-001","result":{"brier":0.49,"log":1.2039728043259361}}` + "\n"
	if f.stdout != want || f.code != 0 || f.stderr != "" {
		t.Errorf("%+v, want %s", f, want)
	}
}

func resultOrError(t *testing.T) {
	f := serve(t, lines(request("a", score), request("b", getRain)), "--memory")
	if a := f.answers[0]; a.Result == nil || a.Error != nil || strings.Contains(a.line, `"error"`) {
		t.Errorf("%s", a.line)
	}
	if a := f.answers[1]; a.Result != nil || a.Error == nil || strings.Contains(a.line, `"result"`) || a.Error.Message == "" || a.Error.Delivery != wire.NotSent {
		t.Errorf("%s", a.line)
	}
}

func retainsID(t *testing.T) {
	ids := []string{"1", " a ", "é\u2028\n\"\\", "\x00", "null", strings.Repeat("😀", 50)}
	commands := []string{score, getRain, createRain, `{"op":"fly"}`, `{"op":""}`, `{"op":"event_get"}`, `{"op":"event_get","event_id":null}`}
	var input, want []string
	for i, id := range ids {
		for _, c := range commands {
			line := request(id, c)
			if i%2 == 1 {
				line = strings.Replace(line, `"version":1`, `"version":3`, 1)
			}
			input, want = append(input, line), append(want, id)
		}
	}
	var got []string
	for _, a := range serve(t, lines(input...), "--memory").answers {
		got = append(got, a.id())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func nullID(t *testing.T) {
	input := []string{
		`hello`, `{"version":1,"id":"x","command":`, `null`, `[]`, `"x"`, `7`, request("x", score) + `}`, request("x", score) + "\u2028",
		`{"version":1,"id":7,"command":` + score + `}`, `{"version":1,"id":null,"command":` + score + `}`, `{"version":true,"id":"x","command":` + score + `}`,
		request("x", `[]`), request("x", `{"op":7}`), request("x", `{"op":"event_get","event_id":"a","event_id":"b"}`),
		"{\"version\":1,\"id\":\"x\",\"command\":{\"op\":\"event_get\",\"event_id\":\"\xff\"}}", "\ufeff" + request("x", score),
	}
	f := serve(t, lines(input...), "--memory")
	if len(f.answers) != len(input) {
		t.Fatalf("%d answers to %d lines:\n%s", len(f.answers), len(input), f.stdout)
	}
	for i, a := range f.answers {
		if a.ID != nil || !strings.HasPrefix(a.line, `{"version":1,"id":null,`) || a.code() != wire.InvalidRequest {
			t.Errorf("%s\n%s", input[i], a.line)
		}
	}
}

// requestSchema compiles what the program prints.
func requestSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(say(t, "--schema").stdout))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json#/$defs/request")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func structural(t *testing.T, s *jsonschema.Schema, line string) bool {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return s.Validate(v) == nil
}

func schemaIsStructure(t *testing.T) {
	s := requestSchema(t)
	golden, err := os.ReadFile("../../testdata/wire/supercast.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		if !structural(t, s, line) {
			t.Errorf("the schema refuses %s", line)
		}
	}
	for _, line := range []string{
		`{}`, `{"version":2,"id":"x","command":` + score + `}`, `{"version":1,"id":"","command":` + score + `}`, request("x", `{"op":"fly"}`),
		request("x", `{"op":"event_get"}`), request("x", `{"op":"event_get","event_id":7}`), request("x", `{"op":"event_get","event_id":"a","zz":1}`),
		request("x", `{"op":"binary_score","probability":1.5,"outcome":true}`), request("x", `{"op":"event_list","status":"done"}`),
	} {
		if structural(t, s, line) {
			t.Errorf("the schema takes %s", line)
		}
		if a := serve(t, lines(line), "--memory").answers[0]; a.Error == nil {
			t.Errorf("the program takes %s", line)
		}
	}
}

func runtimeValidation(t *testing.T) {
	s := requestSchema(t)
	resolve := `{"op":"event_resolve","event_id":"rain","outcome":true}`
	for _, c := range []struct {
		kind, command string
		code          wire.Code
		pointer       string
	}{
		{"UTF-8 byte limits", `{"op":"event_get","event_id":"` + strings.Repeat("é", 101) + `"}`, wire.InvalidRequest, "/command/event_id"},
		{"UTF-8 byte limits", `{"op":"event_create","event_id":"x","question":"` + strings.Repeat("é", 1001) + `"}`, wire.InvalidRequest, "/command/question"},
		{"numerical bounds", `{"op":"binary_score","probability":0,"outcome":true}`, wire.InvalidRequest, "/command/probability"},
		{"numerical bounds", `{"op":"binary_score","probability":1,"outcome":false}`, wire.InvalidRequest, "/command/probability"},
		{"numerical bounds", `{"op":"forecast_list","event_id":"rain","after":9223372036854775808}`, wire.InvalidRequest, "/command/after"},
		{"event lifecycle checks", `{"op":"forecast_record","event_id":"done","forecaster":"ann","probability":0.5}`, wire.InvalidState, "/command/event_id"},
		{"event lifecycle checks", `{"op":"forecast_record","event_id":"closed","forecaster":"ann","probability":0.5}`, wire.InvalidState, "/command/event_id"},
		{"event lifecycle checks", strings.Replace(resolve, "rain", "done", 1), wire.InvalidState, "/command/event_id"},
		{"event lifecycle checks", `{"op":"event_void","event_id":"done","reason":"-"}`, wire.InvalidState, "/command/event_id"},
		{"cross-record relationships", `{"op":"forecast_record","event_id":"snow","forecaster":"ann","probability":0.5}`, wire.NotFound, "/command/event_id"},
		{"cross-record relationships", createRain, wire.Conflict, "/command/event_id"},
		{"what JSON Schema's formats do not promise", `{"op":"event_create","event_id":"x","question":"?","closes_at":"tomorrow"}`, wire.InvalidRequest, "/command/closes_at"},
	} {
		line := request("x", c.command)
		if !structural(t, s, line) {
			t.Errorf("%s: the schema captures it: %s", c.kind, line)
		}
		f := serve(t, lines(
			request("1", createRain), request("2", `{"op":"event_create","event_id":"done","question":"?"}`), request("3", strings.Replace(resolve, "rain", "done", 1)),
			request("4", `{"op":"event_create","event_id":"closed","question":"?","closes_at":"2001-01-01T00:00:00Z"}`), line), "--memory")
		if a := f.answers[4]; a.code() != c.code || a.Error.Details.Pointer != c.pointer || a.id() != "x" {
			t.Errorf("%s: %.60s…: %s", c.kind, c.command, a.line)
		}
	}
}

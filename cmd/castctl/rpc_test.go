package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

// answer is one response of rpc.
type answer struct {
	Version int            `json:"version"`
	ID      *string        `json:"id"`
	Result  jsontext.Value `json:"result"`
	Error   *wire.Error    `json:"error"`
}

func (a answer) code() string {
	if a.Error == nil {
		return "ok"
	}
	return string(a.Error.Code)
}

// rpc feeds lines and reads the answers.
func (w *world) rpc(input string) ([]answer, result) {
	w.t.Helper()
	r := w.castWith(input, nil, "rpc")
	var out []answer
	for line := range strings.Lines(r.stdout) {
		out = append(out, decode[answer](w.t, line))
	}
	return out, r
}

func request(id, command string) string {
	return fmt.Sprintf(`{"version":1,"id":%q,"command":%s}`, id, command) + "\n"
}

// TestRPCSentences is a case for each sentence of seed 000, for castctl rpc.
func TestRPCSentences(t *testing.T) {
	w := newWorld(t)
	w.must("start", "a", "--", "sleep", "100000")
	long := strings.Repeat("x", wire.MaxLine)
	for _, tc := range []struct {
		sentence string
		input    string
		codes    string // one each, in order
		ids      string // null for none
		exit     int
	}{
		{"one request object per line and one response per nonblank line", request("1", `{"op":"version"}`) + "\n \t\r\n" + request("2", `{"op":"version"}`), "ok ok", "1 2", 0},
		{"Requests currently require version: 1", `{"version":2,"id":"1","command":{"op":"version"}}` + "\n", "unsupported_version", "1", 1},
		{"an ID", `{"version":1,"command":{"op":"version"}}` + "\n", "invalid_request", "null", 1},
		{"and a command object", `{"version":1,"id":"1","command":"version"}` + "\n", "invalid_request", "null", 1},
		{"with an op discriminator", `{"version":1,"id":"1","command":{"name":"x"}}` + "\n", "invalid_request", "null", 1},
		{"Unknown fields are rejected", request("1", `{"op":"version","x":1}`), "invalid_request", "1", 1},
		{"including nested typed fields", request("1", `{"op":"start","name":"b","spec":{"argv":["true"],"cwd":"/","restart":{"polciy":"never"}}}`), "invalid_request", "1", 1},
		{"Every decoded request retains its ID in the response", request("keep-me", `{"op":"get","instance":"nobody"}`), "not_found", "keep-me", 1},
		{"Malformed or untyped input errors use a null ID", "{\n[1]\nnull\n\"x\"\n", "invalid_request invalid_request invalid_request invalid_request", "null null null null", 1},
		{"IDs must contain nonwhitespace content", request("  ", `{"op":"version"}`), "invalid_request", "null", 1},
		{"and at most 200 UTF-8 bytes", request(strings.Repeat("é", 100), `{"op":"version"}`) + request(strings.Repeat("é", 100)+"x", `{"op":"version"}`), "ok invalid_request", strings.Repeat("é", 100) + " null", 1},
		{"For calculations and reads, an ID is response correlation only", request("r", `{"op":"version"}`) + request("r", `{"op":"status"}`), "ok ok", "r r", 0},
		{"For successful durable mutations, it is a database-wide idempotency key", request("m", `{"op":"sweep"}`) + request("m", `{"op":"sweep"}`), "ok ok", "m m", 0},
		{"Reusing a committed ID with different content is a conflict", request("m", `{"op":"stop","instance":"a"}`), "conflict", "m", 1},
		{
			"Whitespace and object-key order do not distinguish decoded commands",
			request("w", `{"op":"configure","instance":"a","spec":{"argv":["sleep","100000"],"cwd":"/"}}`) +
				`{"command": {"spec": {"cwd":"/", "argv": ["sleep" , "100000"]}, "instance":"a", "op":"configure"}, "id":"w", "version":1}` + "\n", "ok ok", "w w", 0,
		},
		{"Errors burn no id", request("e", `{"op":"stop","instance":"nobody"}`) + request("e", `{"op":"sweep"}`), "not_found ok", "e e", 1},
		{"Each input line is limited to 1 MiB including its newline", request("l", `{"op":"get","instance":"`+long+`"}`) + request("after", `{"op":"version"}`), "request_too_large", "null", 1},
		{"Other request errors return a response and processing continues", "nonsense\n" + request("2", `{"op":"version"}`), "invalid_request ok", "null 2", 1},
		{"0: Every processed request succeeded", "", "", "", 0},
		{"a last line without its end is a line", strings.TrimSuffix(request("1", `{"op":"version"}`), "\n"), "ok", "1", 0},
	} {
		t.Run(tc.sentence, func(t *testing.T) {
			answers, r := w.rpc(tc.input)
			var codes, ids []string
			for _, a := range answers {
				codes = append(codes, a.code())
				id := "null"
				if a.ID != nil {
					id = *a.ID
				}
				ids = append(ids, id)
				if a.Version != 1 {
					t.Errorf("version %d", a.Version)
				}
			}
			if got := strings.Join(codes, " "); got != tc.codes {
				t.Errorf("answers %q, want %q: %s", got, tc.codes, r.stdout)
			}
			if got := strings.Join(ids, " "); got != tc.ids {
				t.Errorf("ids %q, want %q", got, tc.ids)
			}
			if r.code != tc.exit {
				t.Errorf("exit code %d, want %d: %s", r.code, tc.exit, r.stderr)
			}
		})
	}
}

// TestRPCOriginalReceipt: the original receipt is returned byte for byte,
// including its original commit timestamp, also after a kill between commit and
// answer, and after a restart.
func TestRPCOriginalReceipt(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "CAST_CRASHPOINT=registry.committed@3", "CAST_CRASHPOINT_ONCE="+w.base+"/once")
	line := request("the-id", `{"op":"sweep"}`)
	first, r := w.rpc(line)
	for i := 0; len(first) != 1 || first[0].Error != nil; i++ {
		if i > 20 {
			t.Fatalf("it never succeeds: %s%s", r.stdout, r.stderr)
		}
		if len(first) == 1 && first[0].Error.Delivery != wire.DeliveryUnknown && first[0].Error.Delivery != wire.NotSent {
			t.Errorf("an error without delivery: %+v", first[0].Error)
		}
		first, r = w.rpc(line)
	}
	want := receiptOf(t, first[0])
	for range 3 {
		w.must("down")
		again, _ := w.rpc(line)
		if got := receiptOf(t, again[0]); got != want {
			t.Errorf("receipt %s, was %s", got, want)
		}
	}
}

func receiptOf(t *testing.T, a answer) string {
	t.Helper()
	var r struct {
		Receipt jsontext.Value `json:"receipt"`
	}
	if err := json.Unmarshal(a.Result, &r); err != nil {
		t.Fatalf("%v in %s", err, a.Result)
	}
	return string(r.Receipt)
}

// TestRPCFlushes: the answer comes before the input ends, so that a caller can
// keep the process open.
func TestRPCFlushes(t *testing.T) {
	w := newWorld(t)
	cmd := w.command("rpc")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for i := range 5 {
		id := fmt.Sprint(i)
		io.WriteString(in, request(id, `{"op":"version"}`))
		line, err := lines.ReadString('\n')
		if err != nil || *decode[answer](t, line).ID != id {
			t.Fatalf("answer %d: %q, %v", i, line, err)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestRPCInformation: --help, --version and --schema open nothing, and exit code
// 2 is a start that failed.
func TestRPCInformation(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{{"rpc", "--schema"}, {"rpc", "--help"}, {"--version"}, {"--help"}} {
		w.must(args...)
	}
	if _, err := os.Lstat(w.home); err == nil {
		t.Error("a home was made")
	}
	if err := os.WriteFile(w.home, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.castWith(request("1", `{"op":"version"}`), nil, "rpc")
	if r.code != exitUnable || r.stdout != "" || !strings.HasPrefix(r.stderr, "castctl: ") {
		t.Errorf("exit code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
	os.Remove(w.home)
}

// TestRPCFuzzedLines (1,000,000 of them in make e2e): no crash, no lost id:
// exactly one response for each line that is not blank.
func TestRPCFuzzedLines(t *testing.T) {
	n := fuzzedLines
	w := newWorld(t)
	w.must("start", "precious", "--", "sleep", "100000")
	cmd := w.command("rpc")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := make(chan string, 10_000)
	go func() {
		defer close(want)
		defer in.Close()
		buf := bufio.NewWriterSize(in, 1<<16)
		defer buf.Flush()
		gen := rand.New(rand.NewPCG(7, 7))
		for i := range n {
			line, id := fuzzedLine(gen, i)
			buf.WriteString(line + "\n")
			if strings.Trim(line, " \t\r") != "" {
				want <- id
			}
		}
	}()
	lines := bufio.NewReaderSize(out, 1<<16)
	answered := 0
	for id := range want {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d answers: %v", answered, err)
		}
		answered++
		a := decode[answer](t, line)
		if id != "?" && (a.ID == nil || *a.ID != id) {
			t.Fatalf("answer %s stands where the id %q belongs", line, id)
		}
	}
	cmd.Wait()
	t.Logf("%d answers to %d lines", answered, n)
	if in := w.instance("precious"); in.State != wire.Running {
		t.Errorf("the instance is %s", in.State)
	}
}

// fuzzedLine mutates a valid request, too little to stop the instance with the
// long name. The id is "?" if the mutation may have hit the envelope.
func fuzzedLine(gen *rand.Rand, i int) (line, id string) {
	id = fmt.Sprintf("id-%d", i)
	bodies := []string{
		`{"op":"version"}`, `{"op":"status","instance":"precious"}`, `{"op":"get","instance":"nobody"}`, `{"op":"nothing"}`,
		`{"op":"stop","instance":""}`, `{"op":"start","name":"X"}`, `{"op":"submit","instance":"precious","text":"x"}`, `{"op":"history","limit":0}`,
		`{"op":"reap","targets":[]}`, `{"op":"configure","instance":"precious","spec":null}`,
	}
	line = strings.TrimSuffix(request(id, bodies[gen.IntN(len(bodies))]), "\n")
	switch gen.IntN(4) {
	case 0:
		return line, id
	case 1: // inside the command
		at := strings.Index(line, `"command":{`) + len(`"command":{`)
		return line[:at] + fmt.Sprintf(`"x%d":%d,`, gen.IntN(9), gen.IntN(9)) + line[at:], id
	}
	b := []byte(line)
	for range 1 + gen.IntN(3) {
		p := gen.IntN(len(b))
		switch gen.IntN(3) {
		case 0:
			b[p] = byte(gen.IntN(256))
		case 1:
			b = append(b[:p], b[p+1:]...)
		default:
			b = append(b[:p], append([]byte{byte(gen.IntN(256))}, b[p:]...)...)
		}
	}
	return strings.ReplaceAll(string(b), "\n", " "), "?"
}

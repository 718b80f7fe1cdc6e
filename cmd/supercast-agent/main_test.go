package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

// No golden files are here; the flag is known so that one command rewrites those
// of all packages.
var _ = flag.Bool("update", false, "rewrite the golden files")

// hang bounds what should never take long, so that a test that hangs says so.
const hang = 2 * time.Minute

// program is the real program, built once for all tests.
var program = struct {
	dir  string
	path func() (string, error)
}{}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "supercast-agent-test-*")
	if err != nil {
		panic(err)
	}
	program.dir = dir
	program.path = sync.OnceValues(func() (string, error) { return compile(dir) })
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// compile builds the program into a folder.
func compile(dir string, flags ...string) (string, error) {
	if err := readSources(); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "supercast-agent")
	out, err := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), ".")...).CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
}

// readSources reads what the program is built from, so that go test knows that
// the result depends on it: of what only the built program runs nothing is in
// the test itself, and a cached success would hide its failures.
func readSources() error {
	for _, dir := range []string{".", "forecast", "../../wire", "../../internal/crashpoint"} {
		sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return err
		}
		for _, source := range append(sources, "../../go.mod") {
			if _, err := os.ReadFile(source); err != nil {
				return err
			}
		}
	}
	return nil
}

func agent(t testing.TB) string {
	t.Helper()
	path, err := program.path()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// mortal builds the program with its crash points.
func mortal(t testing.TB) string {
	t.Helper()
	path, err := compile(t.TempDir(), "-tags", "crashpoints")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// finished is a process that has ended.
type finished struct {
	stdout, stderr string
	code           int // -1 if killed
	answers        []answer
}

// answer is one line of stdout.
type answer struct {
	wire.RawResponse
	line string
}

func (a answer) id() string {
	if a.ID == nil {
		return "null"
	}
	return *a.ID
}

func (a answer) code() wire.Code {
	if a.Error == nil {
		return ""
	}
	return a.Error.Code
}

// receipt is the receipt as it was sent, byte for byte.
func (a answer) receipt(t testing.TB) string {
	t.Helper()
	var r struct {
		Receipt jsontext.Value `json:"receipt"`
	}
	if a.Error != nil {
		t.Fatalf("an error instead of a receipt: %s", a.line)
	}
	if err := json.Unmarshal(a.Result, &r); err != nil || r.Receipt == nil {
		t.Fatalf("no receipt in %s (%v)", a.line, err)
	}
	if !strings.Contains(a.line, `"receipt":`+string(r.Receipt)) {
		t.Fatalf("%s is not the text of %s", r.Receipt, a.line)
	}
	return string(r.Receipt)
}

func result[T any](t testing.TB, a answer) (v T) {
	t.Helper()
	if a.Error != nil {
		t.Fatalf("%s", a.line)
	}
	if err := json.Unmarshal(a.Result, &v); err != nil {
		t.Fatalf("%s: %v", a.line, err)
	}
	return v
}

// serve runs the program on a batch of input. Every line of its stdout must be
// a response of the published schema.
func serve(t testing.TB, input string, args ...string) finished {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, agent(t), args...)
	cmd.Stdin = strings.NewReader(input)
	f := wait(t, cmd)
	for line := range strings.Lines(f.stdout) {
		f.answers = append(f.answers, toAnswer(t, strings.TrimSuffix(line, "\n")))
	}
	return f
}

// say runs the program and returns what it prints.
func say(t testing.TB, args ...string) finished {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	return wait(t, exec.CommandContext(ctx, agent(t), args...))
}

func wait(t testing.TB, cmd *exec.Cmd) finished {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited && !errors.Is(err, io.ErrClosedPipe) {
		// A program that refuses its input early breaks the pipe it is fed by.
		if !strings.Contains(err.Error(), "broken pipe") {
			t.Fatal(err)
		}
	}
	return finished{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

var responseSchema = sync.OnceValue(func() *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(forecast.Ops.Schema("supercast-agent protocol")))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		panic(err)
	}
	return c.MustCompile("schema.json#/$defs/response")
})

// toAnswer reads one line of stdout and holds it against the schema.
func toAnswer(t testing.TB, line string) answer {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
	if err == nil {
		err = responseSchema().Validate(v)
	}
	if err != nil {
		t.Fatalf("stdout has %q: %v", line, err)
	}
	r, err := wire.DecodeResponse([]byte(line))
	if err != nil {
		t.Fatalf("stdout has %q: %v", line, err)
	}
	return answer{r, line}
}

// talk is a conversation with a living process.
type talk struct {
	t      testing.TB
	cmd    *exec.Cmd
	in     io.WriteCloser
	stdout io.Closer
	out    *bufio.Reader
	stderr bytes.Buffer
}

// begin starts a process; change, if not nil, has the last word on how.
func begin(t testing.TB, path string, change func(*exec.Cmd), args ...string) *talk {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), hang)
	k := &talk{t: t, cmd: exec.CommandContext(ctx, path, args...)}
	k.cmd.Stderr = &k.stderr
	var err error
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	k.stdout, k.out = out, bufio.NewReader(out)
	if change != nil {
		change(k.cmd)
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.cmd.Process.Kill()
		k.cmd.Wait()
		cancel()
	})
	return k
}

func (k *talk) send(line string) {
	k.t.Helper()
	if _, err := io.WriteString(k.in, line+"\n"); err != nil {
		k.t.Fatalf("%v; stderr: %s", err, k.stderr.String())
	}
}

func (k *talk) receive() answer {
	k.t.Helper()
	line, err := k.out.ReadString('\n')
	if err != nil {
		k.t.Fatalf("instead of an answer: %q, %v; stderr: %s", line, err, k.stderr.String())
	}
	return toAnswer(k.t, strings.TrimSuffix(line, "\n"))
}

func (k *talk) ask(line string) answer {
	k.t.Helper()
	k.send(line)
	return k.receive()
}

// end waits for the process, after its input was closed or it was told to go,
// and returns what it still said.
func (k *talk) end() finished {
	k.t.Helper()
	rest, err := io.ReadAll(k.out)
	if err != nil {
		k.t.Fatal(err)
	}
	k.cmd.Wait()
	return finished{stdout: string(rest), stderr: k.stderr.String(), code: k.cmd.ProcessState.ExitCode()}
}

func (k *talk) hangUp() finished {
	k.t.Helper()
	k.in.Close()
	return k.end()
}

// request writes a request line.
func request(id, command string) string {
	quoted, err := json.Marshal(id)
	if err != nil {
		panic(err)
	}
	return `{"version":1,"id":` + string(quoted) + `,"command":` + command + `}`
}

func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }

func newLedger(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "ledger.db")
}

const (
	score      = `{"op":"binary_score","probability":0.3,"outcome":true}`
	createRain = `{"op":"event_create","event_id":"rain","question":"Does it rain?"}`
	getRain    = `{"op":"event_get","event_id":"rain"}`
	annOnRain  = `{"op":"forecast_record","event_id":"rain","forecaster":"ann","probability":0.3}`
)

package wire_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/castctl/castctl/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with a file of testdata/wire, or rewrites the file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("..", "testdata", "wire", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./wire -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-golden +now):\n%s", path, diff)
	}
}

// program is one that speaks the envelope, with its golden requests.
type program struct {
	name     string
	ops      *wire.Set
	requests []wire.Command
}

var programs = []program{
	{name: "control", ops: wire.Control, requests: controlRequests},
	{name: "host", ops: wire.HostOps, requests: hostRequests},
}

var fullSpec = wire.Spec{
	Argv: []string{"pi", "--mode", "rpc"}, Cwd: "/home/ann/work", Dialect: wire.NDJSON,
	Restart: &wire.Restart{Policy: wire.Always, BackoffMS: wire.Ptr(int64(0)), Limit: wire.Ptr(0), WindowMS: wire.Ptr(int64(60000))},
	EnvFile: "/home/ann/.env", MemoryMax: 1 << 30, IdleUnloadMS: 1, StopTimeoutMS: 600_000, Exclusive: true,
	Children: wire.ChildrenHold, Permission: &wire.Permission{Policy: wire.AskDeny, TimeoutMS: 5000}, JournalMax: 1 << 20, Resume: wire.Ptr(false),
}

var controlRequests = []wire.Command{
	wire.GetVersion{},
	wire.GetStatus{},
	wire.GetStatus{Instance: "fix"},
	wire.Get{Instance: "fix"},
	wire.Get{Instance: "fix", Session: "main"},
	wire.History{},
	wire.History{Instance: "fix", Session: "main", After: "e:41", Limit: 1000, Types: []wire.EventType{wire.EventState, wire.EventExit}},
	wire.Start{Name: "fix"},
	wire.Start{Name: "a", Spec: &wire.Spec{Argv: []string{"true"}, Cwd: "/"}},
	wire.Start{
		Name: "0.fix-it_now", Spec: &fullSpec, Env: map[string]string{"PATH": "/bin", "EMPTY": "", "U": "é\u2028"},
		Foreground: true, Wait: wire.Wait{WaitMS: 600_000},
	},
	wire.Stop{Instance: "fix"},
	wire.Stop{Instance: "fix", WhenIdle: true, TimeoutMS: 1, Wait: wire.Wait{WaitMS: 1}},
	wire.RestartInstance{Instance: "fix", Env: map[string]string{}, WhenIdle: true},
	wire.Remove{Instance: "fix", Force: true},
	wire.Configure{Instance: "fix", Spec: fullSpec, IfRevision: 1},
	wire.Apply{Instances: []wire.Declared{}, Prune: true, DryRun: true},
	wire.Apply{Instances: []wire.Declared{{Name: "a", Spec: fullSpec, Env: map[string]string{"K": "v"}}, {Name: "b", Spec: wire.Spec{Argv: []string{"b"}, Cwd: "/"}}}},
	wire.Sweep{},
	wire.Adopt{ID: "00ff00ff00ff00ff", Name: "back"},
	wire.Reap{Targets: []wire.Target{{ID: "00ff00ff00ff00ff"}, {PID: 1, StartTicks: 1<<64 - 1}}, EvenIfBusy: true},
	wire.Submit{Instance: "fix", Text: "Summarize this folder. \u2028\u2029\u0085\ufeff"},
	wire.Submit{Instance: "fix", Session: "main", IfBusy: wire.IfBusyReject, Content: []wire.Block{
		{Type: "text", Text: "look"},
		{Type: "image", MIME: "image/png", Base64: "aGk="},
		{Type: "resource_link", URI: "file:///a"},
		{Type: "resource_link", URI: "file:///a", Name: "a"},
	}},
	wire.Submit{Instance: "demo", Command: jsontext.Value(`{"op":"event_get","event_id":"rain","deep":{"n":18446744073709551615}}`)},
}

var hostRequests = []wire.Command{
	wire.HostGetStatus{},
	wire.HostWatch{},
	wire.HostTail{On: true},
	wire.HostStop{WhenIdle: true, TimeoutMS: 10_000},
	wire.HostRestart{WhenIdle: true},
	wire.HostConfigure{Name: "fix", Spec: fullSpec, Revision: 2},
	wire.HostSubmit{Request: "r-1", CommittedAt: time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC), Submit: wire.Submit{Instance: "fix", Text: "hi"}},
	wire.HostLease{Registry: "00ff", Name: "fix"},
	wire.HostTrim{Max: 1 << 20},
}

// encoded writes the golden requests of a program.
func (p program) encoded(t *testing.T) [][]byte {
	t.Helper()
	var lines [][]byte
	for _, c := range p.requests {
		line, err := wire.Encode(wire.Request{ID: "golden-" + c.Op(), Command: c})
		if err != nil {
			t.Fatalf("%s: %v", c.Op(), err)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestGoldenRequests(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			lines := p.encoded(t)
			golden(t, p.name+".jsonl", append(bytes.Join(lines, []byte("\n")), '\n'))
			seen := map[string]bool{}
			for i, line := range lines {
				got, err := p.ops.Decode(line)
				if err != nil {
					t.Errorf("%s\n%v at %q", line, err, err.Details.Pointer)
					continue
				}
				if diff := cmp.Diff(p.requests[i], got.Command); diff != "" {
					t.Errorf("%s is decoded as another (-sent +decoded):\n%s", line, diff)
				}
				seen[got.Command.Op()] = true
			}
			for _, op := range p.ops.Names() {
				if !seen[op] {
					t.Errorf("no golden request for %s", op)
				}
			}
		})
	}
}

// Every member of every command stands in some golden request, so that the
// tests that start from them reach all positions.
func TestGoldenRequestsAreWhole(t *testing.T) {
	for _, p := range programs {
		var all bytes.Buffer
		for _, line := range p.encoded(t) {
			all.Write(line)
		}
		for _, op := range p.ops.Operations() {
			for f := range reflect.TypeOf(op.Command).Fields() {
				name, _, _ := bytes.Cut([]byte(f.Tag.Get("json")), []byte(","))
				if len(name) > 0 && !bytes.Contains(all.Bytes(), append(append([]byte{'"'}, name...), '"', ':')) {
					t.Errorf("%s: no golden request has %s", op.Command.Op(), name)
				}
			}
		}
	}
}

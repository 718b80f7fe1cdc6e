package forecast_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with a file of testdata/wire, or rewrites the file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("..", "..", "..", "testdata", "wire", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-golden +now):\n%s", path, diff)
	}
}

func memory(t testing.TB) *forecast.Ledger {
	t.Helper()
	l, err := forecast.Memory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func durable(t testing.TB, path string) *forecast.Ledger {
	t.Helper()
	l, err := forecast.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// clock is a time that stands still until it is moved.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// call has the agent answer one command.
func call(t testing.TB, a *forecast.Agent, id string, c wire.Command) wire.RawResponse {
	t.Helper()
	line, err := wire.Encode(wire.Request{ID: id, Command: c})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := wire.DecodeResponse(a.Answer(t.Context(), line).Encode())
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// must is call for a command that has to succeed.
func must(t testing.TB, a *forecast.Agent, id string, c wire.Command) wire.RawResponse {
	t.Helper()
	answer := call(t, a, id, c)
	if answer.Error != nil {
		t.Fatalf("%s %#v: %+v", id, c, answer.Error)
	}
	return answer
}

func decode[T any](t testing.TB, r wire.RawResponse) (v T) {
	t.Helper()
	if err := json.Unmarshal(r.Result, &v); err != nil {
		t.Fatalf("%s: %v", r.Result, err)
	}
	return v
}

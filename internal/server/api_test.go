package server_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/wire"
)

func post(command string) string {
	return request("POST /v1/commands", `{"version":1,"id":"`+wire.NewID()+`","command":`+command+`}`, home, token, isJSON)
}

func get(path string) string { return request("GET "+path, "", home, token) }

// Every code has a status, and those that can be had here are.
func TestStatusOfErrors(t *testing.T) {
	for _, code := range wire.Code("").Enum() {
		if server.StatusOf(wire.Code(code)) < 400 {
			t.Errorf("%s has status %d", code, server.StatusOf(wire.Code(code)))
		}
	}
	f := servertest.Open(t, server.Limits{Streams: 1})
	f.Start("one", "/bin/sh", "-c", "exec sleep 100000")
	f.Start("over", "/bin/true")
	over := f.Await("over", wire.Finished)
	journal := f.Home.Instance(over.ID).Journal() // which becomes a file
	if err := errors.Join(os.RemoveAll(journal), os.WriteFile(journal, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	held := dial(t, f)
	askStream(t, f, held, get("/v1/events"))
	for _, c := range []struct {
		name string
		raw  string
		want int
		code wire.Code
	}{
		{"not JSON", request("POST /v1/commands", "{", home, token, isJSON), 400, wire.InvalidRequest},
		{"another version", request("POST /v1/commands", `{"version":9,"id":"a","command":{"op":"version"}}`, home, token, isJSON), 400, wire.UnsupportedVersion},
		{"no credential", request("GET /v1/instances", "", home), 401, wire.Unauthorized},
		{"no such instance, to a command", post(`{"op":"get","instance":"none"}`), 404, wire.NotFound},
		{"no such instance, to a read", get("/v1/instances/none"), 404, wire.NotFound},
		{"no such instance, to a history", get("/v1/instances/none/history"), 404, wire.NotFound},
		{"no such instance, to a stream", get("/v1/events?instance=none"), 404, wire.NotFound},
		{"no such route", get("/v1/none"), 404, wire.NotFound},
		{"another spec", post(`{"op":"start","name":"one","spec":{"argv":["/bin/true"],"cwd":"/"}}`), 409, wire.Conflict},
		{"a submit to what is over", post(`{"op":"submit","instance":"over","text":"hello"}`), 409, wire.InvalidState},
		{"too large", strings.Replace(post(`{}`), "Content-Length: ", "Content-Length: 999999999", 1), 413, wire.RequestTooLarge},
		{"a journal that cannot be read", get("/v1/instances/over/history"), 500, wire.Internal},
		{"no such operation", post(`{"op":"fly"}`), 501, wire.UnsupportedMethod},
		{"a submit to plain", post(`{"op":"submit","instance":"one","text":"hello"}`), 501, wire.UnsupportedMethod},
		{"one stream too many", get("/v1/events"), 503, wire.Unavailable},
		{"a limit that is none", get("/v1/instances/one/history?limit=0"), 400, wire.InvalidRequest},
		{"a limit that is too high", get("/v1/instances/one/history?limit=1001"), 400, wire.InvalidRequest},
		{"a limit that is no number", get("/v1/instances/one/history?limit=ten"), 400, wire.InvalidRequest},
		{"a limit twice", get("/v1/instances/one/history?limit=1&limit=2"), 400, wire.InvalidRequest},
		{"a position that is none", get("/v1/instances/one/history?after=here"), 400, wire.InvalidRequest},
		{"a position of nowhere", get("/v1/instances/one/history?after=ffff:1"), 404, wire.NotFound},
		{"an unknown parameter", get("/v1/instances?x=1"), 400, wire.InvalidRequest},
		{"an unknown parameter of an instance", get("/v1/instances/one?x=1"), 400, wire.InvalidRequest},
		{"an unknown parameter of a history", get("/v1/instances/one/history?types=state"), 400, wire.InvalidRequest},
		{"an unknown parameter of a stream", get("/v1/events?session=main"), 400, wire.InvalidRequest},
		{"a nonce that is too short", request("GET /v1/identity?nonce=00", "", home), 400, wire.InvalidRequest},
		{"no nonce", request("GET /v1/identity", "", home), 400, wire.InvalidRequest},
		{"a nonce and more", request("GET /v1/identity?nonce="+strings.Repeat("0", 64)+"&x=1", "", home), 400, wire.InvalidRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ask(t, f, c.raw)
			if got.StatusCode != c.want || got.code() != c.code {
				t.Errorf("status %d and code %q, want %d and %q: %s", got.StatusCode, got.code(), c.want, c.code, got.body)
			}
			if strings.Contains(got.body, `"version"`) && got.StatusCode != 400 {
				var r wire.RawResponse
				if err := json.Unmarshal([]byte(got.body), &r); err != nil || r.Error.Delivery != wire.NotSent {
					t.Errorf("%s", got.body)
				}
			}
		})
	}
}

// What is read by address is the bare result of the command of that name.
func TestBareResults(t *testing.T) {
	f := victim(t, usual)
	f.Await("victim", wire.Running)
	for _, c := range []struct{ path, command string }{
		{"/v1/instances", `{"op":"status"}`},
		{"/v1/instances/victim", `{"op":"get","instance":"victim"}`},
		{"/v1/instances/victim/history", `{"op":"history","instance":"victim"}`},
		{"/v1/instances/victim/history?limit=1", `{"op":"history","instance":"victim","limit":1}`},
	} {
		t.Run(c.path, func(t *testing.T) {
			bare, whole := ask(t, f, get(c.path)), ask(t, f, post(c.command))
			r, err := wire.DecodeResponse([]byte(whole.body))
			if err != nil || bare.StatusCode != 200 || whole.StatusCode != 200 {
				t.Fatalf("%d and %d: %v", bare.StatusCode, whole.StatusCode, err)
			}
			if diff := cmp.Diff(settled(t, []byte(r.Result)), settled(t, []byte(bare.body))); diff != "" {
				t.Errorf("(-command +address):\n%s", diff)
			}
		})
	}
}

// settled decodes JSON and leaves out what is measured anew all the time.
func settled(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return unmeasured(v)
}

func unmeasured(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"rss_bytes", "cpu_seconds", "processes", "measured_at"} {
			delete(v, name)
		}
		for k := range v {
			v[k] = unmeasured(v[k])
		}
	case []any:
		for i := range v {
			v[i] = unmeasured(v[i])
		}
	}
	return v
}

// Whatever is answered, nobody may keep it, frame it or guess its type.
func TestHeadersOfAnswers(t *testing.T) {
	f := servertest.Open(t, usual)
	for _, c := range []struct {
		name string
		raw  string
		want int
	}{
		{"a result", get("/v1/instances"), 200},
		{"health", request("GET /health", "", home), 200},
		{"a stream", get("/v1/events"), 200},
		{"bad content", post(`{}`), 400},
		{"no credential", request("GET /v1/instances", "", home), 401},
		{"a foreign name", request("GET /", "", "Host: evil.test"), 403},
		{"a foreign page", request("GET /", "", home, "Origin: https://evil.test"), 403},
		{"nothing there", get("/none"), 404},
		{"another type", request("POST /v1/commands", "", home, token), 415},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ask(t, f, c.raw)
			if got.StatusCode != c.want {
				t.Fatalf("status %d, want %d", got.StatusCode, c.want)
			}
			for name, want := range map[string]string{
				"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
				"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			} {
				if got := got.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			want := "application/json"
			if c.name == "a stream" {
				want = "text/event-stream"
				if got.Header.Get("X-Accel-Buffering") != "no" {
					t.Error("a proxy may buffer the stream")
				}
			}
			if got.Header.Get("Content-Type") != want {
				t.Errorf("the type is %q, want %q", got.Header.Get("Content-Type"), want)
			}
			noCORS(t, got)
		})
	}
}

// The time that a request may take to arrive does not run while it is carried
// out.
func TestLongCommand(t *testing.T) {
	f := victim(t, server.Limits{Header: soon, Body: soon, Answer: soon, Idle: soon})
	f.Await("victim", wire.Running)
	// It is never idle, so this waits for as long as it may.
	got := ask(t, f, post(`{"op":"stop","instance":"victim","when_idle":true,"wait_ms":400}`))
	r := decode[struct {
		Result wire.StopResult `json:"result"`
	}](t, got.body)
	if got.StatusCode != http.StatusOK || r.Result.Instance.Name != "victim" || r.Result.Instance.State != wire.Running {
		t.Errorf("status %d: %s", got.StatusCode, got.body)
	}
}

// Several requests on one connection, also after a refused one.
func TestConnectionIsKept(t *testing.T) {
	f := servertest.Open(t, usual)
	for _, where := range []string{"tcp", "unix"} {
		t.Run(where, func(t *testing.T) {
			c := dial(t, f)
			if where == "unix" {
				c = dialTo(t, f.Record.Socket)
			}
			for _, want := range []int{200, 404, 415, 400, 200} {
				raw := map[int]string{
					200: get("/v1/instances"), 404: get("/none"), 415: request("POST /v1/commands", plant, home, token), 400: post(`{}`),
				}[want]
				if got := askOn(t, f, c, raw); got.StatusCode != want || got.Close {
					t.Fatalf("status %d, want %d; closed: %v", got.StatusCode, want, got.Close)
				}
			}
		})
	}
}

// Over TCP the door is told apart by its names; through the socket there is
// none.
func TestSocketNeedsNoName(t *testing.T) {
	f := servertest.Open(t, usual)
	got := askOn(t, f, dialTo(t, f.Record.Socket), request("GET /v1/instances", "", "Host: whatever"))
	if got.StatusCode != http.StatusOK {
		t.Errorf("status %d: %s", got.StatusCode, got.body)
	}
	// But a page is a page.
	got = askOn(t, f, dialTo(t, f.Record.Socket), request("GET /v1/instances", "", "Host: whatever", "Origin: https://evil.test"))
	if got.StatusCode != http.StatusForbidden {
		t.Errorf("status %d: %s", got.StatusCode, got.body)
	}
}

package server_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castctl/castctl/internal/server/servertest"
)

// attack is one request and the answers that it may get.
type attack struct {
	name string
	raw  string
	want int
}

func run(t *testing.T, f *servertest.Fleet, row string, attacks []attack) {
	t.Helper()
	for _, a := range attacks {
		unharmed(t, f, row+" "+a.name, func(t *testing.T) {
			if got := ask(t, f, a.raw); got.StatusCode != a.want {
				t.Errorf("status %d, want %d: %s", got.StatusCode, a.want, got.body)
			}
		})
	}
}

// Whoever has no credential gets one answer, whatever he asks for: he does not
// learn what there is.
func TestAttackWithoutCredential(t *testing.T) {
	f := victim(t, usual)
	want := ask(t, f, request("GET /v1/instances", "", home)).body
	for _, line := range []string{
		"GET /", "GET /v1/instances", "GET /v1/instances/victim", "GET /v1/instances/victim/history", "GET /v1/events",
		"GET /v1/events?instance=victim", "POST /v1/commands", "GET /v1/commands", "HEAD /v1/instances", "PUT /v1/instances/victim",
		"DELETE /v1/instances/victim", "PATCH /v1/commands", "TRACE /", "OPTIONS /v1/commands", "OPTIONS *", "GET /nowhere",
		"GET /v1", "GET /metrics", "GET /v1/openapi.json", "GET //v1/instances", "GET /v1/./instances", "GET /health/../v1/instances",
		"GET /v1/instances/", "GET /health/", "GET /HEALTH", "POST /health", "POST /v1/identity", "HEAD /v1/identity", "GET /v1/instances?x=1;y",
	} {
		unharmed(t, f, "A1 "+line, func(t *testing.T) {
			got := ask(t, f, request(line, "", home, isJSON))
			if got.StatusCode != http.StatusUnauthorized {
				t.Fatalf("status %d: %s", got.StatusCode, got.body)
			}
			if diff := cmp.Diff(want, got.body); diff != "" && !strings.HasPrefix(line, "HEAD") {
				t.Errorf("another answer than to the others:\n%s", diff)
			}
		})
	}
}

func TestAttackHost(t *testing.T) {
	f := victim(t, usual)
	const identity = "GET /v1/identity?nonce=0000000000000000000000000000000000000000000000000000000000000000"
	var attacks []attack
	for _, line := range []string{"GET /", "GET /health", identity, "GET /v1/instances", "GET /v1/events", "POST /v1/commands"} {
		attacks = append(attacks, attack{line, request(line, plant, "Host: evil.test:{P}", token, isJSON), 403})
	}
	run(t, f, "A2", attacks)

	attacks = nil
	for name, want := range map[string]int{
		"127.0.0.1:{P}": 200, "localhost:{P}": 200, "[::1]:{P}": 200,
		"127.0.0.1.evil.test:{P}": 403, "127.evil.com:{P}": 403, "localhost.evil.test:{P}": 403, "localhost.:{P}": 403,
		"LOCALHOST:{P}": 403, "[::ffff:127.0.0.1]:{P}": 403, "[0:0:0:0:0:0:0:1]:{P}": 403, "0.0.0.0:{P}": 403, "0:{P}": 403,
		"[::]:{P}": 403, "2130706433:{P}": 403, "0x7f000001:{P}": 403, "127.1:{P}": 403, "127.0.0.2:{P}": 403, "127.0.0.1:1": 403,
		"127.0.0.1": 403, "localhost": 403, "127.0.0.1:{P}:{P}": 403, "evil@127.0.0.1:{P}": 400, "127.0.0.1:0{P}": 403, "": 403, " ": 403,
	} {
		attacks = append(attacks, attack{"Host: " + name, request("GET /v1/instances", "", "Host: "+name, token), want})
	}
	attacks = append(
		attacks,
		attack{"two hosts", request("GET /v1/instances", "", home, "Host: evil.test", token), 400},
		attack{"two hosts, the other first", request("GET /v1/instances", "", "Host: evil.test", home, token), 400},
		attack{"no host", request("GET /v1/instances", "", token), 400},
		attack{"no host, as HTTP/1.0 allows", "GET /v1/instances HTTP/1.0\r\n" + token + "\r\n\r\n", 403},
		attack{"a foreign absolute address", request("GET http://evil.test/v1/instances", "", home, token), 403},
		attack{"the own absolute address", request("GET http://127.0.0.1:{P}/v1/instances", "", home, token), 403},
		attack{"the own absolute address under a foreign name", request("GET http://127.0.0.1:{P}/v1/instances", "", "Host: evil.test", token), 403},
		attack{"a forwarded host", request("GET /v1/instances", "", "Host: evil.test:{P}", "X-Forwarded-Host: 127.0.0.1:{P}", "Forwarded: host=127.0.0.1:{P}", token), 403},
	)
	run(t, f, "A3", attacks)
}

// A page can have a browser send a form, but not JSON.
func TestAttackForm(t *testing.T) {
	f := victim(t, usual)
	var attacks []attack
	for _, kind := range []string{
		"Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded", "Content-Type: multipart/form-data; boundary=x",
		"X-Nothing: 1", "Content-Type:", "Content-Type: text/plain; application/json", "Content-Type: application/json-patch+json",
		"Content-Type: application/jsonp", "Content-Type: text/json", "Content-Type: application/json, text/plain",
		"Content-Type: application/json\r\nContent-Type: text/plain", "Content-Type: text/plain\r\nContent-Type: application/json",
	} {
		name := strings.ReplaceAll(kind, "\r\n", " and ")
		attacks = append(
			attacks,
			attack{name, request("POST /v1/commands", plant, home, token, kind), 415},
			attack{name + " without a body", request("POST /v1/commands", "", home, token, kind), 415},
			attack{name + " without credential", request("POST /v1/commands", plant, home, kind), 401},
		)
	}
	for _, line := range []string{"POST /v1/instances", "POST /v1/instances/victim", "PUT /v1/commands", "DELETE /v1/instances/victim", "POST /v1/events", "POST /"} {
		attacks = append(attacks, attack{line, request(line, plant, home, token, isJSON), 404})
	}
	run(t, f, "A4", attacks)
}

func TestAttackFromPages(t *testing.T) {
	f := victim(t, usual)
	routes := []string{"GET /v1/instances", "GET /v1/events", "POST /v1/commands"}
	version := `{"version":1,"id":"a","command":{"op":"version"}}`
	var attacks []attack
	for header, allowed := range map[string]bool{
		"Origin: https://evil.test": false, "Origin: null": false, "Origin:": false, "Origin: http://localhost:1": false,
		"Origin: http://127.0.0.1": false, "Origin: http://127.0.0.1:{P}.evil.test": false, "Origin: https://127.0.0.1:{P}": false,
		"Origin: http://127.0.0.1:{P}/": false, "Origin: HTTP://127.0.0.1:{P}": false, "Origin: http://evil@127.0.0.1:{P}": false,
		"Origin: http://127.0.0.1:{P}\r\nOrigin: https://evil.test": false, "Origin: http://[::ffff:127.0.0.1]:{P}": false,
		"Origin: http://127.0.0.1:{P}": true, "Origin: http://localhost:{P}": true, "Origin: http://[::1]:{P}": true, "X-No-Origin: 1": true,
	} {
		for _, line := range routes {
			want := 403
			if allowed {
				want = 200
			}
			name := strings.ReplaceAll(header, "\r\n", " and ") + " " + line
			attacks = append(attacks, attack{name, request(line, version, home, token, isJSON, header), want})
			if allowed {
				attacks = append(attacks, attack{name + " without credential", request(line, version, home, isJSON, header), 401})
			}
		}
	}
	run(t, f, "A5", attacks)

	attacks = nil
	for site, want := range map[string]int{
		"cross-site": 403, "same-site": 403, "Cross-Site": 403, "anything": 403, "none\r\nSec-Fetch-Site: cross-site": 403,
		"same-origin": 200, "none": 200,
	} {
		for _, line := range routes {
			name := strings.ReplaceAll(site, "\r\n", " and ") + " " + line
			attacks = append(attacks, attack{name, request(line, version, home, token, isJSON, "Sec-Fetch-Site: "+site), want})
		}
	}
	run(t, f, "A6", attacks)
}

func TestAttackCORS(t *testing.T) {
	f := victim(t, usual)
	for origin, want := range map[string]int{"https://evil.test": 403, "null": 403, "http://127.0.0.1:{P}": 401} {
		for _, path := range []string{"/v1/commands", "/v1/instances", "/v1/events", "/health", "/"} {
			unharmed(t, f, "A7 "+origin+" "+path, func(t *testing.T) {
				got := ask(t, f, request("OPTIONS "+path, "", home, "Origin: "+origin, "Access-Control-Request-Method: POST",
					"Access-Control-Request-Headers: authorization,content-type", "Access-Control-Request-Private-Network: true"))
				if got.StatusCode != want {
					t.Errorf("status %d, want %d", got.StatusCode, want)
				}
				noCORS(t, got)
			})
		}
	}
	// Nor on an answer that is given.
	noCORS(t, ask(t, f, request("GET /v1/instances", "", home, token, "Origin: http://127.0.0.1:{P}")))
	noCORS(t, ask(t, f, request("GET /v1/events", "", home, token, "Origin: http://127.0.0.1:{P}")))
}

func noCORS(t *testing.T, r reply) {
	t.Helper()
	for name := range r.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("the answer carries %s", name)
		}
	}
}

func TestAttackUpgrade(t *testing.T) {
	f := victim(t, usual)
	websocket := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="}
	h2c := []string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"}
	with := func(headers []string, more ...string) string {
		return request("GET /v1/events", "", append(append([]string{home}, more...), headers...)...)
	}
	run(t, f, "A8", []attack{
		{"websocket without anything", with(websocket), 401},
		{"websocket from a page", with(websocket, "Origin: https://evil.test"), 403},
		{"websocket from a page with the token", with(websocket, "Origin: https://evil.test", token), 403},
		{"websocket with the token", with(websocket, token), 200},
		{"HTTP/2 without anything", with(h2c), 401},
		{"HTTP/2 with the token", with(h2c, token), 200},
		{"HTTP/2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403},
	})
}

// A browser prefetches what it likes: no GET changes anything, not even for who
// may.
func TestAttackGet(t *testing.T) {
	f := victim(t, usual)
	var attacks []attack
	for line, want := range map[string]int{
		"GET /": 404, "GET /health": 200, "GET /v1/instances": 200, "GET /v1/instances/victim": 200, "GET /v1/instances/victim/history": 200,
		"GET /v1/events": 200, "GET /v1/events?instance=victim": 200, "GET /v1/commands": 404, "HEAD /v1/instances": 200, "HEAD /v1/events": 404,
		"GET /v1/commands?op=stop&instance=victim": 404, "GET /v1/instances/victim?op=stop": 400, "GET /v1/instances/victim/stop": 404,
	} {
		attacks = append(attacks, attack{line, request(line, "", home, token, "Sec-Purpose: prefetch"), want})
	}
	attacks = append(attacks, attack{"a command in the body of a GET", request("GET /v1/commands", plant, home, token, isJSON), 404})
	run(t, f, "A9", attacks)
}

func TestAttackToken(t *testing.T) {
	f := victim(t, usual)
	good := f.Record.Token
	basic := base64.StdEncoding.EncodeToString([]byte("cast:" + good))
	run(t, f, "A10", []attack{
		{"in the query", request("GET /v1/instances?token={T}", "", home), 401},
		{"in the query, under its usual name", request("GET /v1/instances?access_token={T}", "", home), 401},
		{"in the query of a command", request("POST /v1/commands?token={T}", plant, home, isJSON), 401},
		{"in the query, beside the header", request("GET /v1/instances?token={T}", "", home, token), 400},
		{"in the query behind a semicolon", request("GET /v1/instances?x;token={T}", "", home, token), 400},
		{"in the query of a command, beside the header", request("POST /v1/commands?token={T}", plant, home, token, isJSON), 400},
		{"in the query of a stream, beside the header", request("GET /v1/events?token={T}", "", home, token), 400},
		{"in the path", request("GET /{T}/v1/instances", "", home), 401},
		{"in the referrer", request("GET /v1/instances", "", home, "Referer: http://127.0.0.1:{P}/?token={T}"), 401},
		{"in a cookie", request("GET /v1/instances", "", home, "Cookie: token={T}"), 401},
		{"as a password", request("GET /v1/instances", "", home, "Authorization: Basic "+basic), 401},
		{"in another header", request("GET /v1/instances", "", home, "X-Token: {T}", "Proxy-Authorization: Bearer {T}"), 401},
		{"in the body", request("POST /v1/commands", `{"token":"{T}"}`, home, isJSON), 401},
		{"in the user part of the address", request("GET http://{T}@127.0.0.1:{P}/v1/instances", "", home), 403},
	})
	run(t, f, "A11", []attack{
		{"the good one", request("GET /v1/instances", "", home, token), 200},
		{"none", request("GET /v1/instances", "", home, "Authorization: Bearer "), 401},
		{"nothing at all", request("GET /v1/instances", "", home, "Authorization:"), 401},
		{"a beginning", request("GET /v1/instances", "", home, "Authorization: Bearer "+good[:len(good)-1]), 401},
		{"an end", request("GET /v1/instances", "", home, "Authorization: Bearer "+good[1:]), 401},
		{"too long", request("GET /v1/instances", "", home, token+"0"), 401},
		{"twice over", request("GET /v1/instances", "", home, token+"{T}"), 401},
		{"in capitals", request("GET /v1/instances", "", home, "Authorization: Bearer "+strings.ToUpper(good)), 401},
		{"another of its length", request("GET /v1/instances", "", home, "Authorization: Bearer "+strings.Repeat("0", len(good))), 401},
		{"without its scheme", request("GET /v1/instances", "", home, "Authorization: {T}"), 401},
		{"two headers", request("GET /v1/instances", "", home, token, token), 401},
		{"a wrong one and the good one", request("GET /v1/instances", "", home, "Authorization: Bearer x", token), 401},
	})
	if strings.Contains(f.Log.String(), good) {
		t.Error("A10 the token stands in the log")
	}
}

package server_test

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/castctl/castctl/internal/server/servertest"
)

// Whoever claims more than he is gets nothing for it.
func TestAttackScope(t *testing.T) {
	f := victim(t, usual)
	command := func(members string) string {
		return request("POST /v1/commands", `{"version":1,"id":"attack","command":{"op":"start","name":"planted","spec":{"argv":["/bin/true"],"cwd":"/"}`+members+`}}`, home, token, isJSON)
	}
	envelope := func(members string) string {
		return request("POST /v1/commands", strings.TrimSuffix(plant, "}")+members+"}", home, token, isJSON)
	}
	spec := func(members string) string {
		return request("POST /v1/commands", `{"version":1,"id":"attack","command":{"op":"start","name":"planted","spec":{"argv":["/bin/true"],"cwd":"/"`+members+`}}}`, home, token, isJSON)
	}
	run(t, f, "A21", []attack{
		{"a role in the command", command(`,"role":"admin"`), 400},
		{"a scope in the command", command(`,"scope":["*"]`), 400},
		{"a user in the command", command(`,"uid":0`), 400},
		{"an instance in another case", command(`,"Name":"other"`), 400},
		{"the name twice", command(`,"name":"other"`), 400},
		{"a role in the envelope", envelope(`,"role":"admin"`), 400},
		{"a token in the envelope", envelope(`,"token":"{T}"`), 400},
		{"a user in the spec", spec(`,"user":"root"`), 400},
		{"an environment in the spec", spec(`,"env":{"LD_PRELOAD":"/tmp/x.so"}`), 400},
		{"null for a member", spec(`,"restart":null`), 400},
		{"something after the request", request("POST /v1/commands", plant+plant, home, token, isJSON), 400},
	})
}

// A name becomes a part of paths and is looked at by people: only plain ones
// are names.
func TestAttackName(t *testing.T) {
	f := victim(t, usual)
	var attacks []attack
	for label, name := range map[string]string{
		"a way up": "../x", "a way up, written in full": "..", "here": ".", "a folder": "a/b", "an absolute path": "/etc/passwd", "an option": "-rf",
		"a long option": "--force", "a NUL": "a\x00b", "300 bytes": strings.Repeat("a", 300), "64 bytes": strings.Repeat("a", 64),
		"a newline": "a\nb", "a newline at its end": "planted\n", "a Cyrillic a": "pl\u0430nted", "a full-width letter": "\uff50lanted",
		"a capital": "Planted", "a blank": "a b", "nothing": "", "a zero-width joiner": "pla\u200dnted", "a right-to-left mark": "\u202eplanted",
		"a glob": "*", "a backslash": `a\b`, "an escape sequence": "a\x1b[31m", "a shell's word": "$(id)", "another's way up": "..\\x", "a colon": "a:1",
		"a percent sign": "%2e%2e", "a hidden file": ".ssh",
	} {
		b, _ := json.Marshal(name)
		for _, op := range []string{
			`{"op":"start","name":` + string(b) + `,"spec":{"argv":["/bin/true"],"cwd":"/"}}`,
			`{"op":"apply","instances":[{"name":` + string(b) + `,"spec":{"argv":["/bin/true"],"cwd":"/"}}]}`,
		} {
			body := `{"version":1,"id":"attack","command":` + op + `}`
			attacks = append(attacks, attack{label + " " + op[6:11], request("POST /v1/commands", body, home, token, isJSON), 400})
		}
		if name == "" {
			continue
		}
		escaped := ""
		for _, c := range []byte(name) {
			escaped += "%" + strings.ToUpper(hexOf(c))
		}
		attacks = append(
			attacks,
			attack{label + " in the path", request("GET /v1/instances/"+escaped, "", home, token), 400},
			attack{label + " in the path to a history", request("GET /v1/instances/"+escaped+"/history", "", home, token), 400},
			attack{label + " in a stream", request("GET /v1/events?instance="+escaped, "", home, token), 400},
		)
	}
	attacks = append(attacks, []attack{
		{"an option for a program", request("POST /v1/commands", `{"version":1,"id":"a","command":{"op":"start","name":"planted","spec":{"argv":["-rf"],"cwd":"/"}}}`, home, token, isJSON), 400},
		{"a shell's line for a program", request("POST /v1/commands", `{"version":1,"id":"a","command":{"op":"start","name":"planted","spec":{"argv":["true; touch /tmp/planted"],"cwd":"/"}}}`, home, token, isJSON), 400},
		{"no program", request("POST /v1/commands", `{"version":1,"id":"a","command":{"op":"start","name":"planted","spec":{"argv":[],"cwd":"/"}}}`, home, token, isJSON), 400},
	}...)
	run(t, f, "A23", attacks)
}

func hexOf(c byte) string {
	const digits = "0123456789ABCDEF"
	return string([]byte{digits[c>>4], digits[c&15]})
}

// No parameter is an address that the supervisor would go to.
func TestAttackAddress(t *testing.T) {
	f := victim(t, usual)
	bait, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bitten := make(chan string, 1)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		if c, err := bait.Accept(); err == nil {
			bitten <- c.RemoteAddr().String()
			c.Close()
		}
	}()
	at := bait.Addr().String()
	start := func(spec string) string {
		return request("POST /v1/commands", `{"version":1,"id":"a","command":{"op":"start","name":"planted","spec":{`+spec+`}}}`, home, token, isJSON)
	}
	run(t, f, "A24", []attack{
		{"a query", request("GET /v1/instances?url=http://"+at+"/", "", home, token), 400},
		{"a query of the machine's metadata", request("GET /v1/instances?url=http://169.254.169.254/latest/meta-data/", "", home, token), 400},
		{"an instance to follow", request("GET /v1/events?instance=http://"+at+"/", "", home, token), 400},
		{"an instance to read", request("GET /v1/instances/http:%2F%2F"+at, "", home, token), 400},
		{"an environment file", start(`"argv":["/bin/true"],"cwd":"/","env_file":"http://` + at + `/"`), 400},
		{"a file address as environment file", start(`"argv":["/bin/true"],"cwd":"/","env_file":"file:///etc/passwd"`), 400},
		{"a folder", start(`"argv":["/bin/true"],"cwd":"http://` + at + `/"`), 400},
		{"a program", start(`"argv":["http://` + at + `/"],"cwd":"/"`), 400},
		{"a source to update from", request("POST /v1/commands", `{"version":1,"id":"a","command":{"op":"update","source":"http://`+at+`/"}}`, home, token, isJSON), 501},
		{"a proxy", request("GET http://"+at+"/", "", home, token), 403},
		{"a tunnel", "CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\n" + token + "\r\n\r\n", 403},
	})
	bait.Close()
	<-watching
	select {
	case who := <-bitten:
		t.Errorf("%s connected to an address that an attacker named", who)
	default:
	}
}

// Health says ok, and nothing else to anybody.
func TestAttackHealth(t *testing.T) {
	f := victim(t, usual)
	for name, headers := range map[string][]string{"without credential": {home}, "with the token": {home, token}} {
		unharmed(t, f, "A30 "+name, func(t *testing.T) {
			got := ask(t, f, request("GET /health", "", headers...))
			if got.StatusCode != http.StatusOK || got.body != `{"ok":true}` {
				t.Errorf("%d %s", got.StatusCode, got.body)
			}
			said := ""
			for name, values := range got.Header {
				said += name + ": " + strings.Join(values, ", ") + "\n"
			}
			for _, secret := range []string{f.Home.Dir(), "victim", f.Record.InstanceID, f.Record.Token, f.Record.Version, "castctl", "Go"} {
				if strings.Contains(said, secret) {
					t.Errorf("the headers tell %q:\n%s", secret, said)
				}
			}
		})
	}
}

// Each refusal comes before the next could say more: whoever fails two checks
// learns of the first only.
func TestOrderOfChecks(t *testing.T) {
	f := servertest.Open(t, usual)
	const (
		foreign = "Host: evil.test:{P}"
		text    = "Content-Type: text/plain"
		gzip    = "Content-Encoding: gzip"
		huge    = "Content-Length: 99999999999"
	)
	line := "POST /v1/commands HTTP/1.1\r\n"
	head := func(headers ...string) string { return line + strings.Join(headers, "\r\n") + "\r\n\r\n" }
	for _, c := range []struct {
		name string
		raw  string
		want int
	}{
		{"everything is wrong", head(foreign, "Authorization: Bearer x", text, gzip, huge), 403},
		{"all but the host is wrong, and the page is foreign", head(home, "Origin: https://evil.test", text, gzip, huge), 403},
		{"credential, type and size are wrong", head(home, "Authorization: Bearer x", text, gzip, huge), 401},
		{"no credential, compressed", head(home, isJSON, gzip, huge), 401},
		{"type and size are wrong", head(home, token, text, huge), 415},
		{"compressed and too large", head(home, token, isJSON, gzip, huge), 415},
		{"too large, and the parameter is wrong", strings.Replace(head(home, token, isJSON, huge), "/v1/commands", "/v1/commands?x=1", 1), 413},
		{"only the parameter is wrong", request("POST /v1/commands?x=1", "{}", home, token, isJSON), 400},
		{"only the content is wrong", request("POST /v1/commands", "{}", home, token, isJSON), 400},
		{"nothing is wrong", request("POST /v1/commands", `{"version":1,"id":"a","command":{"op":"version"}}`, home, token, isJSON), 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ask(t, f, c.raw); got.StatusCode != c.want {
				t.Errorf("status %d, want %d: %s", got.StatusCode, c.want, got.body)
			}
		})
	}
}

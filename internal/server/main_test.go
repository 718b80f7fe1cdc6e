package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/wire"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// usual is no limits but the usual ones.
var usual server.Limits

// Header lines. {P} stands for the bound port and {T} for the token.
const (
	home   = "Host: 127.0.0.1:{P}"
	token  = "Authorization: Bearer {T}"
	isJSON = "Content-Type: application/json"
)

// plant is a command that leaves an instance behind if it is carried out.
const plant = `{"version":1,"id":"attack","command":{"op":"start","name":"planted","spec":{"argv":["/bin/true"],"cwd":"/","restart":{"policy":"never"}}}}`

// request is an HTTP request as it goes over the wire.
func request(line, body string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s HTTP/1.1\r\n", line)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if body != "" || strings.HasPrefix(line, "POST") {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	return b.String() + "\r\n" + body
}

// reply is what came back.
type reply struct {
	*http.Response
	body string
}

// code is the code of the error in a reply.
func (r reply) code() wire.Code {
	var e struct {
		Error wire.Error `json:"error"`
	}
	json.Unmarshal([]byte(r.body), &e)
	return e.Error.Code
}

// fill puts port and token in the place of their marks.
func fill(f *servertest.Fleet, s string) string {
	return strings.NewReplacer("{P}", strconv.Itoa(f.Record.Port), "{T}", f.Record.Token).Replace(s)
}

// dial connects to the door, over TCP, or with a slash in the address to a
// socket.
func dial(t *testing.T, f *servertest.Fleet) net.Conn {
	t.Helper()
	return dialTo(t, net.JoinHostPort(f.Record.Host, strconv.Itoa(f.Record.Port)))
}

func dialTo(t *testing.T, address string) net.Conn {
	t.Helper()
	network := "tcp"
	if strings.Contains(address, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(servertest.Patience))
	return c
}

// ask sends a request on a connection of its own and reads the whole answer.
func ask(t *testing.T, f *servertest.Fleet, raw string) reply {
	t.Helper()
	return askOn(t, f, dial(t, f), raw)
}

func askOn(t *testing.T, f *servertest.Fleet, c net.Conn, raw string) reply {
	t.Helper()
	if _, err := io.WriteString(c, fill(f, raw)); err != nil {
		t.Fatal(err)
	}
	return answerOf(t, c, raw)
}

func answerOf(t *testing.T, c net.Conn, raw string) reply {
	t.Helper()
	method, _, _ := strings.Cut(raw, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		c.Close()
		return reply{resp, ""}
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("half an answer: %v", err)
	}
	return reply{resp, string(b)}
}

// imprint is what an attack must not change: every instance with its spec, and
// the fleet's history.
func imprint(f *servertest.Fleet) string {
	var b bytes.Buffer
	for _, v := range f.Sup.Snapshot().Views {
		got := f.Get(v.ID)
		in := got.Instance
		fmt.Fprintln(&b, in.Name, in.ID, in.State, in.Wanted, in.Run, in.Restarts, got.Revision, got.Spec.Argv)
	}
	for _, e := range servertest.Must[wire.HistoryResult](f, wire.History{Limit: 1000}).Events {
		fmt.Fprintln(&b, e.Seq, e.Instance, e.Type, string(e.Data))
	}
	return b.String()
}

// unharmed runs a sub-test and shows that it changed nothing.
func unharmed(t *testing.T, f *servertest.Fleet, name string, attack func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		before := imprint(f)
		attack(t)
		if diff := cmp.Diff(before, imprint(f)); diff != "" {
			t.Errorf("the attack changed something (-before +after):\n%s", diff)
		}
	})
}

// victim is a fleet with one instance that has something to lose.
func victim(t *testing.T, limits server.Limits) *servertest.Fleet {
	t.Helper()
	f := servertest.Open(t, limits)
	f.Start("victim", "/bin/sh", "-c", "echo secret output; exec sleep 100000")
	return f
}

package server_test

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/wire"
)

// soon is a limit that is over before a person would notice.
const soon = 50 * time.Millisecond

// othersWork shows that a client with the token, and one on the socket, are
// served.
func othersWork(t *testing.T, f *servertest.Fleet) {
	t.Helper()
	for _, c := range []net.Conn{dial(t, f), dialTo(t, f.Record.Socket)} {
		if got := askOn(t, f, c, get("/v1/instances")); got.StatusCode != http.StatusOK {
			t.Errorf("another client got %d: %s", got.StatusCode, got.body)
		}
		c.Close()
	}
}

// A head that does not arrive is not waited for.
func TestAbuseSlowHeader(t *testing.T) {
	f := victim(t, server.Limits{Header: soon})
	for name, head := range map[string]string{
		"nothing at all": "", "one byte": "G", "a request line": "GET / HTTP/1.1\r\n", "all but the end": strings.TrimSuffix(fill(f, get("/v1/instances")), "\r\n"),
	} {
		unharmed(t, f, "A25 "+name, func(t *testing.T) {
			c := dial(t, f)
			io.WriteString(c, head)
			othersWork(t, f)
			if err := untilClosed(c); err != nil {
				t.Errorf("the connection is not closed: %v", err)
			}
		})
	}
}

// untilClosed reads until the other end has closed.
func untilClosed(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return err
	}
	return nil
}

func TestAbuseHugeHeader(t *testing.T) {
	f := victim(t, usual)
	many := []string{home, token}
	for range 9000 {
		many = append(many, "X-Many: 1")
	}
	for name, raw := range map[string]string{
		"a large header": request("GET /v1/instances", "", home, token, "X-Large: "+strings.Repeat("x", 80<<10)),
		"many headers":   request("GET /v1/instances", "", many...),
		"a long address": request("GET /v1/instances?x="+strings.Repeat("x", 80<<10), "", home, token),
	} {
		unharmed(t, f, "A25 "+name, func(t *testing.T) {
			c := dial(t, f)
			io.WriteString(c, fill(f, raw))
			line, err := bufio.NewReader(c).ReadString('\n') // the rest may be lost: nobody reads what was sent
			if err != nil || !strings.Contains(line, " 431 ") {
				t.Errorf("%q, %v", line, err)
			}
			othersWork(t, f)
		})
	}
}

// chunk is a piece of a body whose length is not told beforehand.
func chunk(b string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(b), b) }

func TestAbuseBody(t *testing.T) {
	f := victim(t, server.Limits{Body: soon})
	chunked := request("GET /", "", home, token, isJSON, "Transfer-Encoding: chunked")
	chunked = strings.Replace(chunked, "GET /", "POST /v1/commands", 1)
	var zipped strings.Builder
	z := gzip.NewWriter(&zipped)
	z.Write(make([]byte, 8<<20))
	z.Close()

	for name, announced := range map[string]string{"33 MiB": "34603008", "1 GiB": "1073741824", "all there is": "9223372036854775807"} {
		unharmed(t, f, "A25 "+name+" announced", func(t *testing.T) {
			// Refused before any of it is sent.
			raw := strings.Replace(request("POST /v1/commands", "", home, token, isJSON), "Content-Length: 0", "Content-Length: "+announced, 1)
			if got := ask(t, f, raw); got.StatusCode != 413 || got.code() != wire.RequestTooLarge || !got.Close {
				t.Errorf("status %d, closes %v: %s", got.StatusCode, got.Close, got.body)
			}
		})
	}
	unharmed(t, f, "A25 33 MiB that are not announced", func(t *testing.T) {
		f := victim(t, usual)
		c := dial(t, f)
		io.WriteString(c, fill(f, chunked))
		big := chunk(strings.Repeat(" ", 1<<20))
		go func() {
			for range 33 {
				io.WriteString(c, big)
			}
		}()
		if got := answerOf(t, c, chunked); got.StatusCode != 413 || got.code() != wire.RequestTooLarge {
			t.Errorf("status %d: %s", got.StatusCode, got.body)
		}
		othersWork(t, f)
	})
	for name, part := range map[string]string{"that never comes": "", "that never ends": chunk(plant[:20])} {
		unharmed(t, f, "A25 a body "+name, func(t *testing.T) {
			c := dial(t, f)
			io.WriteString(c, fill(f, chunked+part))
			othersWork(t, f)
			got := answerOf(t, c, chunked)
			if got.StatusCode != 400 || got.code() != wire.InvalidRequest || !got.Close {
				t.Errorf("status %d, closes %v: %s", got.StatusCode, got.Close, got.body)
			}
		})
	}
	run(t, f, "A25", []attack{
		{"a body that is cut wrongly", chunked + "zz\r\n", 400},
		{"a compressed body", request("POST /v1/commands", zipped.String(), home, token, isJSON, "Content-Encoding: gzip"), 415},
		{"a body compressed in a way that is unknown", request("POST /v1/commands", plant, home, token, isJSON, "Content-Encoding: x"), 415},
		{"a body that says that it is not compressed", request("POST /v1/commands", plant, home, token, isJSON, "Content-Encoding: identity"), 415},
		{"a compressed transfer", request("POST /v1/commands", "", home, token, isJSON, "Transfer-Encoding: gzip"), 501},
		{"two lengths", request("POST /v1/commands", plant, home, token, isJSON, "Content-Length: 1"), 400},
		{"deep nesting", request("POST /v1/commands", `{"version":1,"id":"a","command":`+strings.Repeat(`{"a":`, 100_000)+"1"+strings.Repeat("}", 100_001), home, token, isJSON), 400},
	})
}

// Connections that show no credential make room; those that do stay.
func TestAbuseCrowd(t *testing.T) {
	f := victim(t, server.Limits{Conns: 8})
	guest := listen(t, f, "/v1/events", "")
	guest.of("snapshot")
	kept := dial(t, f)
	askOn(t, f, kept, get("/v1/instances"))
	for name, head := range map[string]string{
		"idle": "", "slow": "GET / HTTP/1.1\r\n", "asking for health": fill(f, request("GET /health", "", home)), "refused": fill(f, request("GET /", "", home)),
	} {
		unharmed(t, f, "A25 crowd, "+name, func(t *testing.T) {
			strangers := make([]net.Conn, 40)
			for i := range strangers {
				strangers[i] = dial(t, f)
				io.WriteString(strangers[i], head)
			}
			othersWork(t, f)
			if got := askOn(t, f, kept, get("/v1/instances")); got.StatusCode != http.StatusOK {
				t.Errorf("a connection with a credential: %d", got.StatusCode)
			}
			for _, c := range strangers[:30] {
				if err := untilClosed(c); err != nil {
					t.Fatalf("a stranger stays: %v", err)
				}
			}
		})
	}
	// When all have a credential there is no room, and no waiting either.
	for range 6 {
		c := dial(t, f)
		askOn(t, f, c, get("/v1/instances"))
	}
	c := dial(t, f)
	if _, err := bufio.NewReader(c).ReadByte(); err == nil {
		t.Error("there is more room than there should be")
	}
	f.Start("news", "/bin/true")
	guest.of("state")
	kept.Close()
	f.Eventually("a place to be free", func() bool {
		c := dial(t, f)
		defer c.Close()
		io.WriteString(c, fill(f, get("/v1/instances")))
		_, err := bufio.NewReader(c).ReadByte()
		return err == nil
	})
}

func TestAbuseStreams(t *testing.T) {
	f := victim(t, server.Limits{Streams: 3})
	open := make([]*eventSource, 3)
	for i := range open {
		open[i] = listen(t, f, []string{"/v1/events", "/v1/events?instance=victim", "/v1/events"}[i], "")
		open[i].of("snapshot")
	}
	run(t, f, "A25", []attack{{"one stream too many", get("/v1/events"), 503}, {"one more of an instance", get("/v1/events?instance=victim"), 503}})
	othersWork(t, f)
	open[1].close()
	f.Eventually("a stream's place to be free", func() bool {
		c := dial(t, f)
		defer c.Close()
		io.WriteString(c, fill(f, get("/v1/events")))
		line, err := bufio.NewReader(c).ReadString('\n')
		return err == nil && strings.Contains(line, "200")
	})
	run(t, f, "A25", []attack{
		{"nine instances", get("/v1/events?instance=a" + strings.Repeat("&instance=victim", 8)), 400},
		{"too many positions", get("/v1/events?instance=victim&after=" + strings.Repeat("a:1,", 100) + "a:1"), 400},
	})
}

// A client that asks for much and takes nothing is let go.
func TestAbuseUnreadAnswer(t *testing.T) {
	f := victim(t, server.Limits{Answer: soon})
	big := f.Start("big", servertest.Chatter(1000, 4000, "")...)
	f.AwaitEvents(big.ID, 1000)
	for name, address := range map[string]string{"tcp": fill(f, "127.0.0.1:{P}"), "unix": f.Record.Socket} {
		t.Run(name, func(t *testing.T) {
			served := func() int { return running("net/http.(*conn).serve") }
			f.Eventually("all others to leave", func() bool { return served() == 0 })
			c := dialTo(t, address)
			io.WriteString(c, fill(f, get("/v1/instances/"+big.ID+"/history?limit=1000")))
			resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
			if err != nil || resp.ContentLength < 3_000_000 {
				t.Fatalf("the answer is too small for this test: %v, %v", resp, err)
			}
			f.Eventually("the door to give up", func() bool { return served() == 0 })
			othersWork(t, f)
			if n, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Errorf("the whole answer came: %d bytes", n)
			}
		})
	}
}

// Clients that vanish leave nothing.
func TestAbuseAbruptEnds(t *testing.T) {
	f := victim(t, usual)
	f.Await("victim", wire.Running)
	held := func() int { return len(f.Get("victim").Instance.Holds) }
	const ours = "castctl/internal/server."
	goroutines, descriptors, holds := running(ours), openFiles(t), held()
	for i := range 500 {
		path := []string{"/v1/events", "/v1/events?instance=victim"}[i%2]
		s := listen(t, f, path, "")
		s.of("snapshot")
		if i%3 == 0 {
			s.conn.(*net.TCPConn).SetLinger(0) // a reset, not an end
		}
		s.close()
	}
	f.Eventually("all goroutines of the streams to end", func() bool { return running(ours) <= goroutines })
	f.Eventually("all files of the streams to be closed", func() bool { return openFiles(t) <= descriptors })
	f.Eventually("nobody to follow the instance", func() bool { return held() <= holds })
}

// running counts the goroutines that have a function of that name on their
// stacks.
func running(function string) int {
	b := make([]byte, 8<<20)
	b = b[:runtime.Stack(b, true)]
	n := 0
	for _, stack := range strings.Split(string(b), "\n\n") {
		if strings.Contains(stack, function) {
			n++
		}
	}
	return n
}

func openFiles(t *testing.T) int {
	t.Helper()
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if all, err := os.ReadDir(dir); err == nil {
			return len(all)
		}
	}
	t.Skip("open files cannot be counted here")
	return 0
}

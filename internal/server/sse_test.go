package server_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/wire"
)

// pulse is a heartbeat that comes soon.
const pulse = 5 * time.Millisecond

// frame is one frame of a stream, or, without a name, a heartbeat.
type frame struct {
	id, name, data string
}

// eventSource reads a stream as the standard says.
type eventSource struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// askStream opens a stream on a connection.
func askStream(t *testing.T, f *servertest.Fleet, c net.Conn, raw string) *eventSource {
	t.Helper()
	if _, err := io.WriteString(c, fill(f, raw)); err != nil {
		t.Fatal(err)
	}
	s := &eventSource{t: t, conn: c}
	s.open(t)
	return s
}

// open reads the head of the answer.
func (s *eventSource) open(t *testing.T) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(s.conn), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("status %d: %s", resp.StatusCode, b)
	}
	s.r = bufio.NewReaderSize(resp.Body, 64<<10)
}

// listen opens a stream of its own, with a Last-Event-ID if there is one.
func listen(t *testing.T, f *servertest.Fleet, path, last string) *eventSource {
	t.Helper()
	headers := []string{home, token}
	if last != "" {
		headers = append(headers, "Last-Event-ID: "+last)
	}
	return askStream(t, f, dial(t, f), request("GET "+path, "", headers...))
}

// next returns the next frame, heartbeats included. At the end of the stream
// it returns an error.
func (s *eventSource) next() (frame, error) {
	var f frame
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return f, err
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" && f.name != "":
			return f, nil
		case line == ": hb":
			if blank, err := s.r.ReadString('\n'); err != nil || blank != "\n" {
				s.t.Errorf("something follows a heartbeat: %q, %v", blank, err)
			}
			return frame{}, nil
		}
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			s.t.Errorf("a line of the stream is %q", line)
		}
		switch name {
		case "id":
			f.id = value
		case "event":
			f.name = value
		case "data":
			f.data = value
		default:
			s.t.Errorf("a line of the stream is %q", line)
		}
	}
}

// must returns the next frame that is no heartbeat.
func (s *eventSource) must() frame {
	s.t.Helper()
	for {
		f, err := s.next()
		if err != nil {
			s.t.Fatalf("the stream ended: %v", err)
		}
		if f.name != "" {
			return f
		}
	}
}

// of returns the next frame, which must have the given name.
func (s *eventSource) of(name string) frame {
	s.t.Helper()
	f := s.must()
	if f.name != name {
		s.t.Fatalf("a frame %s came, not %s: %s", f.name, name, f.data)
	}
	return f
}

func (s *eventSource) close() { s.conn.Close() }

// event is the event in a frame, whose id must be the event's position.
func (f frame) event(t *testing.T) wire.Event {
	t.Helper()
	var e wire.Event
	if err := json.Unmarshal([]byte(f.data), &e); err != nil {
		t.Fatalf("%v: %s", err, f.data)
	}
	return e
}

func decode[T any](t *testing.T, data string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

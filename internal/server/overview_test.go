package server_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/wire"
)

// The overview begins with the whole fleet, as it is read by address too, and
// goes on with what changes.
func TestOverview(t *testing.T) {
	f := servertest.Open(t, usual)
	one := f.Start("one", "/bin/sh", "-c", "exec sleep 100000")
	f.Await("one", wire.Running)
	s := listen(t, f, "/v1/events", "")
	first := s.of("snapshot")
	if first.id != "" {
		t.Errorf("the snapshot has the id %q", first.id)
	}
	status := ask(t, f, get("/v1/instances")).body
	if diff := cmp.Diff(settled(t, []byte(status)), settled(t, []byte(first.data))); diff != "" {
		t.Errorf("the snapshot is not the status (-status +snapshot):\n%s", diff)
	}

	two := f.Start("two", "/bin/sh", "-c", "exec sleep 100000")
	s.until(t, "state", func(in wire.Instance) bool { return in.ID == two.ID && in.State == wire.Running })
	servertest.Must[wire.StopResult](f, wire.Stop{Instance: "two"})
	s.until(t, "state", func(in wire.Instance) bool { return in.ID == two.ID && in.State == wire.Stopped && in.HostPID == nil })
	servertest.Must[wire.RemoveResult](f, wire.Remove{Instance: "two"})
	s.until(t, "removed", func(r map[string]string) bool { return cmp.Equal(r, map[string]string{"id": two.ID}) })

	// Whoever comes again gets it whole again, whatever he says that he knows.
	for _, last := range []string{"", "ffff:1", "nonsense"} {
		again := listen(t, f, "/v1/events", last)
		st := decode[wire.Status](t, again.of("snapshot").data)
		if len(st.Instances) != 1 || st.Instances[0].ID != one.ID {
			t.Errorf("after Last-Event-ID %q: %+v", last, st.Instances)
		}
		again.close()
	}
}

// Whoever has an answer is not then shown the time before it.
func TestSnapshotIsNotBehindAnswers(t *testing.T) {
	f := servertest.Open(t, usual)
	one := f.Start("one", "/bin/sh", "-c", "exec sleep 100000")
	for range 40 {
		for _, state := range []wire.State{wire.Stopped, wire.Running} {
			if state == wire.Stopped {
				servertest.Must[wire.StopResult](f, wire.Stop{Instance: "one"})
			} else {
				f.StartSpec("one", wire.Spec{Argv: []string{"/bin/sh", "-c", "exec sleep 100000"}})
			}
			if v := f.Sup.Snapshot().Find(one.ID); v.State != state {
				t.Fatalf("it is %s, and is shown as %s", state, v.State)
			}
		}
	}
}

// until reads frames up to the one of that name that fits. Frames of other
// kinds than the overview's fail the test.
func (s *eventSource) until(t *testing.T, name string, fits any) {
	t.Helper()
	for {
		f := s.must()
		switch fits := fits.(type) {
		case func(wire.Instance) bool:
			if f.name == name && fits(decode[wire.Instance](t, f.data)) {
				return
			}
		case func(map[string]string) bool:
			if f.name == name && fits(decode[map[string]string](t, f.data)) {
				return
			}
		}
		if f.name != "state" && f.name != "removed" || f.id != "" {
			t.Fatalf("a frame %s with id %q came: %s", f.name, f.id, f.data)
		}
	}
}

// A quiet stream shows that it lives, so that no proxy cuts it and no client
// waits in vain.
func TestHeartbeat(t *testing.T) {
	f := victim(t, server.Limits{Heartbeat: pulse})
	in := f.Await("victim", wire.Running)
	f.AwaitEvents(in.ID, 2)
	for _, path := range []string{"/v1/events", "/v1/events?instance=victim"} {
		t.Run(path, func(t *testing.T) {
			s := listen(t, f, path, "")
			defer s.close()
			s.of("snapshot")
			for beats := 0; beats < 3; {
				f, err := s.next()
				if err != nil {
					t.Fatal(err)
				}
				if f.name == "" {
					beats++
				}
			}
		})
	}
}

// Whoever has seen all is connected at once, although there is nothing to send.
func TestStreamOpensAtOnce(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: time.Hour})
	_, last := f.Past("one", 1, 20)
	listen(t, f, "/v1/events?instance=one", last.String())
}

// A HEAD of a stream would be a stream that nobody reads.
func TestHeadOfStream(t *testing.T) {
	f := servertest.Open(t, server.Limits{Streams: 1})
	for range 3 {
		if got := ask(t, f, request("HEAD /v1/events", "", home, token)); got.StatusCode != http.StatusNotFound {
			t.Fatalf("status %d", got.StatusCode)
		}
	}
	listen(t, f, "/v1/events", "").of("snapshot")
}

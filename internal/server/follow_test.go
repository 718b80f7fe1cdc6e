package server_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/wire"
)

// snapshot is the data of a snapshot frame.
type snapshot struct {
	Instances []shown `json:"instances"`
}

// shown is one instance in a snapshot or a resync.
type shown struct {
	Instance wire.Instance  `json:"instance"`
	Sessions []wire.Session `json:"sessions"`
	At       *string        `json:"at"`
}

type resynced struct {
	Instance string `json:"instance"`
	Reason   string `json:"reason"`
	Snapshot shown  `json:"snapshot"`
}

// gate is a named pipe that an agent waits at.
type gate string

func newGate(t *testing.T) gate {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return gate(path)
}

func (g gate) open(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(string(g), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// pos writes the position of an event of the same epoch.
func pos(p wire.Pos, seq uint64) string { return wire.Pos{Epoch: p.Epoch, Seq: seq}.String() }

// events reads the events from one number to another: all of them, each once,
// in order, under their own ids. It returns their frames.
func (s *eventSource) events(epoch string, from, to uint64) []frame {
	s.t.Helper()
	var out []frame
	for seq := from; seq <= to; seq++ {
		f := s.of("event")
		if want := (wire.Pos{Epoch: epoch, Seq: seq}).String(); f.id != want {
			s.t.Fatalf("the frame has id %s, want %s", f.id, want)
		}
		if !strings.HasPrefix(f.data, fmt.Sprintf(`{"seq":%d,`, seq)) {
			s.t.Fatalf("the frame %s holds %.60s", f.id, f.data)
		}
		out = append(out, f)
	}
	return out
}

// quiet shows that nothing more comes but heartbeats.
func (s *eventSource) quiet() {
	s.t.Helper()
	for range 2 {
		if f, err := s.next(); err != nil || f.name != "" {
			s.t.Fatalf("more came: %+v, %v", f, err)
		}
	}
}

// One instance: where it stands, and from there every event once.
func TestFollow(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: pulse})
	g := newGate(t)
	in := f.Start("one", servertest.Chatter(200, 100, string(g))...)
	f.AwaitEvents(in.ID, 2)
	at := heed(t, f, in.ID)

	s := listen(t, f, "/v1/events?instance=one", "")
	first := s.of("snapshot")
	shows := decode[snapshot](t, first.data)
	got := f.Get("one")
	if len(shows.Instances) != 1 || shows.Instances[0].At == nil || *shows.Instances[0].At != at.String() || first.id != at.String() {
		t.Fatalf("at %s the snapshot has id %s: %+v", at, first.id, shows.Instances)
	}
	if diff := cmp.Diff(unheld(got.Instance), unheld(shows.Instances[0].Instance)); diff != "" {
		t.Errorf("(-get +snapshot):\n%s", diff)
	}
	byID := listen(t, f, "/v1/events?instance="+in.ID, "")
	byID.of("snapshot")
	g.open(t)
	frames := s.events(at.Epoch, at.Seq+1, at.Seq+199)
	if diff := cmp.Diff(frames, byID.events(at.Epoch, at.Seq+1, at.Seq+199), cmp.AllowUnexported(frame{})); diff != "" {
		t.Errorf("two clients see different things:\n%s", diff)
	}
	for i, fr := range frames {
		out := decode[wire.OutputData](t, string(fr.event(t).Data))
		if out.Text == nil || !strings.HasPrefix(*out.Text, fmt.Sprintf("%010d ", i+1)) {
			t.Fatalf("event %s is %s", fr.id, fr.data)
		}
	}
	s.quiet()
}

// heed follows an instance for the rest of the test, and waits until that has
// been written down: others who follow it then change nothing. It returns the
// position of the last event.
func heed(t *testing.T, f *servertest.Fleet, id string) wire.Pos {
	t.Helper()
	listen(t, f, "/v1/events?instance="+id, "").of("snapshot")
	f.Eventually("the instance to be held", func() bool {
		for _, h := range f.Get(id).Instance.Holds {
			if h.Kind == "listener" {
				return true
			}
		}
		return false
	})
	return f.AwaitEvents(id, 1)
}

// unheld leaves out what a look at an instance changes.
func unheld(in wire.Instance) wire.Instance {
	in.Holds, in.LastSeq = nil, 0
	in.RSSBytes, in.CPUSeconds, in.Processes, in.MeasuredAt = nil, nil, nil, nil
	return in
}

// Several instances on one stream, each from its own position.
func TestFollowSeveral(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: pulse})
	var lasts [3]wire.Pos
	var ids [3]string
	for i, name := range []string{"a", "b", "c"} {
		in, last := f.Past(name, 20, 60)
		ids[i], lasts[i] = in.ID, last
	}
	a, b, c := lasts[0], lasts[1], lasts[2] // of the same number
	const ab = "/v1/events?instance=a&instance=b"
	for _, row := range []struct {
		name   string
		path   string
		after  string
		resume map[string]uint64 // instance → position that it goes on from
		shown  []string          // in the snapshot
		resync map[string]string // instance → reason
	}{
		{name: "nothing known", path: ab, shown: ids[:2]},
		{name: "both known", path: ab, after: pos(a, 3) + "," + pos(b, 7), resume: map[string]uint64{ids[0]: 3, ids[1]: 7}},
		{name: "both known, the other way round", path: ab, after: pos(b, 7) + "," + pos(a, 3), resume: map[string]uint64{ids[0]: 3, ids[1]: 7}},
		{name: "the first known", path: ab, after: pos(a, 3), resume: map[string]uint64{ids[0]: 3}, shown: ids[1:2]},
		{name: "the second known", path: ab, after: pos(b, 7), resume: map[string]uint64{ids[1]: 7}, shown: ids[:1]},
		{name: "one that is not named", path: ab, after: pos(c, 5) + "," + pos(b, 7), resume: map[string]uint64{ids[1]: 7}, shown: ids[:1]},
		{name: "only one that is not named", path: ab, after: pos(c, 5), resync: map[string]string{ids[0]: "epoch", ids[1]: "epoch"}},
		{name: "the one of another", path: "/v1/events?instance=a", after: pos(b, 5), resync: map[string]string{ids[0]: "epoch"}},
		{name: "one in the future", path: ab, after: pos(a, 1000) + "," + pos(b, 7), resume: map[string]uint64{ids[1]: 7}, resync: map[string]string{ids[0]: "future"}},
		{name: "one in the future, one unknown", path: ab, after: pos(a, 1000), shown: ids[1:2], resync: map[string]string{ids[0]: "future"}},
		{name: "the same instance twice", path: "/v1/events?instance=a&instance=a", after: pos(a, 3), resume: map[string]uint64{ids[0]: 3}},
		{name: "the same instance by name and id", path: "/v1/events?instance=a&instance=" + ids[0], after: pos(a, 3), resume: map[string]uint64{ids[0]: 3}},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := streamed{shown: row.shown, resync: row.resync, events: map[string][]uint64{}}
			for id, from := range row.resume {
				for seq := from + 1; seq <= a.Seq; seq++ {
					want.events[id] = append(want.events[id], seq)
				}
			}
			got := listen(t, f, row.path, row.after).untilQuiet()
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(streamed{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// streamed is what came on a stream, for each instance.
type streamed struct {
	shown  []string
	resync map[string]string
	events map[string][]uint64
}

// untilQuiet reads up to the first heartbeat.
func (s *eventSource) untilQuiet() streamed {
	s.t.Helper()
	defer s.close()
	out := streamed{resync: map[string]string{}, events: map[string][]uint64{}}
	for {
		fr, err := s.next()
		if err != nil {
			s.t.Fatal(err)
		}
		switch fr.name {
		case "":
			return out
		case "snapshot":
			for _, in := range decode[snapshot](s.t, fr.data).Instances {
				out.shown = append(out.shown, in.Instance.ID)
			}
		case "resync":
			r := decode[resynced](s.t, fr.data)
			out.resync[r.Instance] = r.Reason
		case "event":
			e := fr.event(s.t)
			out.events[e.Instance] = append(out.events[e.Instance], e.Seq)
		default:
			s.t.Fatalf("a frame %s came", fr.name)
		}
	}
}

// An instance that has said a lot does not silence the others.
func TestFollowIsFair(t *testing.T) {
	f := servertest.Open(t, usual)
	loud, a := f.Past("loud", 1000, 4000)
	_, b := f.Past("low", 5, 60)
	s := listen(t, f, "/v1/events?instance=loud&instance=low", pos(a, 0)+","+pos(b, 0))
	heard := 0
	for seen := uint64(0); seen < b.Seq; {
		e := s.of("event").event(t)
		if e.Instance == loud.ID {
			heard++
		} else {
			seen++
		}
	}
	if heard > 500 {
		t.Errorf("the low one was heard only after %d events of the loud one", heard)
	}
}

// The journal can be ahead of what the host has told of itself. What a snapshot
// does not show yet must come as an event; what it could not show anyway must
// not come again.
func TestSnapshotIsNotAheadOfItself(t *testing.T) {
	f := servertest.Open(t, usual)
	g := newGate(t)
	in := f.Start("one", servertest.Chatter(100, 60, string(g))...)
	f.AwaitEvents(in.ID, 2)
	f.Eventually("the host's word to be heard", func() bool { return f.Get("one").Instance.LastSeq > 0 })
	g.open(t)
	last := f.AwaitEvents(in.ID, 101)
	in = f.Get("one").Instance
	if in.LastSeq == last.Seq {
		t.Fatal("the host's word is not behind: nothing is shown by this test")
	}
	host, err := os.FindProcess(*in.HostPID)
	if err != nil {
		t.Fatal(err)
	}
	// The host has written, and was stopped before it could tell.
	defer f.Await("one", wire.Failed)
	defer host.Kill()
	if err := host.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the host to stand still", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", host.Pid))
		if errors.Is(err, os.ErrNotExist) {
			t.Skip("there is no /proc here to see it in")
		}
		return strings.Contains(string(b), ") T ")
	})
	s := listen(t, f, "/v1/events?instance=one", "")
	if fr := s.of("snapshot"); fr.id != last.String() {
		t.Errorf("the snapshot stands at %s, although nothing before %s changes it", fr.id, last)
	}
	j, _, err := journal.Open(f.Home.Instance(in.ID).Journal(), journal.Config{Instance: in.ID, Boot: proc.BootID()})
	if err != nil {
		t.Fatal(err)
	}
	said := wire.NewEvent(wire.EventTurnStarted, wire.TurnStartedData{By: "agent"})
	if err := errors.Join(j.Append(true, &said), j.Close()); err != nil {
		t.Fatal(err)
	}
	s = listen(t, f, "/v1/events?instance=one", "")
	if fr := s.of("snapshot"); fr.id != last.String() {
		t.Fatalf("the snapshot stands at %s, and event %d is not in it: %s", fr.id, said.Seq, fr.data)
	}
	s.events(last.Epoch, said.Seq, said.Seq)
}

// A writer that begins a segment while the last one is being read to its end
// makes no gap.
func TestFollowFastWriter(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: time.Microsecond}) // which looks all the time
	in, last := f.Past("one", 1, 20)
	j, _, err := journal.Open(f.Home.Instance(in.ID).Journal(), journal.Config{Instance: in.ID, Boot: proc.BootID(), Segment: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	s := listen(t, f, "/v1/events?instance=one", last.String())
	line := []byte(strings.Repeat("x", 500) + "\n")
	const burst = 200 // more than a segment
	for range 80 {
		written := make(chan error, 1)
		go func() {
			var err error
			for range burst {
				err = errors.Join(err, j.AppendRaw(wire.EventOutput, line))
			}
			written <- err
		}()
		s.events(last.Epoch, last.Seq+1, last.Seq+burst)
		last.Seq += burst
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
}

// A host that is killed says nothing any more; what the supervisor writes down
// of its end reaches those who follow.
func TestFollowKilledHost(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: pulse})
	in := f.Start("one", servertest.Chatter(3, 60, "")...)
	f.AwaitEvents(in.ID, 4)
	s := listen(t, f, "/v1/events?instance=one", "")
	s.of("snapshot")
	if err := syscall.Kill(*f.Get("one").Instance.HostPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for {
		e := s.of("event").event(t)
		if e.Type == wire.EventState && decode[wire.StateData](t, string(e.Data)).State == wire.Failed {
			return
		}
	}
}

// An instance that is removed is told, and the stream of the last one ends.
func TestFollowRemoved(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: pulse})
	a := f.Start("a", "/bin/sh", "-c", "exec sleep 100000")
	b := f.Start("b", "/bin/sh", "-c", "exec sleep 100000")
	s := listen(t, f, "/v1/events?instance=a&instance=b", "")
	s.of("snapshot")
	for _, in := range []wire.Instance{a, b} {
		servertest.Must[wire.RemoveResult](f, wire.Remove{Instance: in.ID, Force: true})
		for {
			fr := s.must()
			if fr.name == "removed" {
				if got := decode[map[string]string](t, fr.data)["id"]; got != in.ID {
					t.Fatalf("%s was removed, not %s", got, in.ID)
				}
				break
			}
		}
	}
	if fr, err := s.next(); err == nil {
		t.Errorf("the stream goes on: %+v", fr)
	}
	if got := ask(t, f, get("/v1/events?instance=a")); got.StatusCode != 404 {
		t.Errorf("status %d", got.StatusCode)
	}
}

// A supervisor that leaves says where to go on, and the next one goes on there.
func TestFollowAcrossSupervisors(t *testing.T) {
	f := servertest.Open(t, usual)
	g := newGate(t)
	in := f.Start("one", servertest.Chatter(50, 60, string(g))...)
	at := f.AwaitEvents(in.ID, 2)
	s := listen(t, f, "/v1/events?instance=one", pos(at, 0))
	s.events(at.Epoch, 1, 2)
	f.End()
	var resume string
	for resume == "" {
		fr := s.must()
		if fr.name == "evicted" {
			e := decode[map[string]string](t, fr.data)
			if e["reason"] != "shutdown" || fr.id != "" {
				t.Fatalf("id %q: %s", fr.id, fr.data)
			}
			resume = e["resume"]
		}
	}
	if _, err := s.next(); err == nil {
		t.Error("the stream goes on")
	}
	g.open(t)
	f.AwaitEvents(in.ID, 51)
	next := servertest.OpenAt(t, f.Home, server.Config{Limits: server.Limits{Heartbeat: pulse}})
	again := listen(t, next, "/v1/events?instance=one", resume)
	p, werr := wire.ParsePos(resume)
	if werr != nil || p.Epoch != at.Epoch {
		t.Fatalf("to resume from %q: %v", resume, werr)
	}
	next.Await("one", wire.Running)
	last := next.AwaitEvents(in.ID, 51)
	again.events(at.Epoch, p.Seq+1, last.Seq)
}

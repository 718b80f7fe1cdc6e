package server_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/wire"
)

// Whatever the last thing was that a client saw, it gets exactly the rest.
func TestResumeEverywhere(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: pulse})
	_, last := f.Past("one", 300, 60)
	all := map[string]frame{}
	whole := listen(t, f, "/v1/events?instance=one", pos(last, 0))
	for _, fr := range whole.events(last.Epoch, 1, last.Seq) {
		all[fr.id] = fr
	}
	whole.quiet()
	for seq := range last.Seq + 1 {
		var s *eventSource
		switch seq % 3 {
		case 0:
			s = listen(t, f, "/v1/events?instance=one", pos(last, seq))
		case 1:
			s = listen(t, f, "/v1/events?instance=one&after="+pos(last, seq), "")
		case 2: // the header wins
			s = listen(t, f, "/v1/events?instance=one&after="+pos(last, last.Seq-seq), pos(last, seq))
		}
		for _, fr := range s.events(last.Epoch, seq+1, last.Seq) {
			if fr != all[fr.id] {
				t.Fatalf("after %d, event %s is another than before", seq, fr.id)
			}
		}
		if seq%50 == 0 || seq == last.Seq {
			s.quiet()
		}
		s.close()
	}
}

// What is not kept any more is replaced by where the instance stands.
func TestResumeExpired(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: pulse})
	in, last := f.PastSpec("one", wire.Spec{Argv: servertest.Speech(700, 4000), JournalMax: 1 << 20})
	bounds, err := journal.Find(f.Home.Instance(in.ID).Journal())
	if err != nil || bounds.First < 100 {
		t.Fatalf("nothing was dropped: %+v, %v", bounds, err)
	}
	for _, c := range []struct {
		name   string
		after  string
		reason string
	}{
		{"the beginning", pos(last, 0), "expired"},
		{"the first event", pos(last, 1), "expired"},
		{"one before the first that would do", pos(last, bounds.First-2), "expired"},
		{"the first that does", pos(last, bounds.First-1), ""},
		{"the last", pos(last, last.Seq), ""},
		{"one that is not there yet", pos(last, last.Seq+1), "future"},
		{"one that is far away", pos(last, 1<<62), "future"},
		{"an unknown epoch", "ffffffffffffffff:5", "epoch"},
		{"an unknown epoch without an event", "ffffffffffffffff:0", "epoch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := listen(t, f, "/v1/events?instance=one", c.after)
			defer s.close()
			if c.reason == "" {
				p, _ := wire.ParsePos(c.after)
				s.events(last.Epoch, p.Seq+1, last.Seq)
				s.quiet()
				return
			}
			fr := s.of("resync")
			r := decode[resynced](t, fr.data)
			if r.Instance != in.ID || r.Reason != c.reason || fr.id != last.String() || r.Snapshot.At == nil || *r.Snapshot.At != last.String() {
				t.Errorf("id %s: %s", fr.id, fr.data)
			}
			got := f.Get("one")
			if diff := cmp.Diff(unheld(got.Instance), unheld(r.Snapshot.Instance)); diff != "" {
				t.Errorf("(-get +resync):\n%s", diff)
			}
			if diff := cmp.Diff(got.Sessions, r.Snapshot.Sessions); diff != "" {
				t.Errorf("(-get +resync):\n%s", diff)
			}
			s.quiet()
		})
	}
	for _, after := range []string{"x", "a:", ":1", "a:-1", "a:1,", ",", "a:1;b:2"} {
		if got := ask(t, f, request("GET /v1/events?instance=one", "", home, token, "Last-Event-ID: "+after)); got.StatusCode != 400 {
			t.Errorf("Last-Event-ID %q: status %d", after, got.StatusCode)
		}
	}
}

// The numbers of another boot are others, even where they are the same.
func TestResumeAcrossBoots(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: pulse})
	in, old := f.Past("one", 2, 20)
	dir := f.Home.Instance(in.ID).Journal()
	j, _, err := journal.Open(dir, journal.Config{Instance: in.ID, Boot: "another"})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := j.AppendRaw(wire.EventOutput, []byte("new\n")); err != nil {
			t.Fatal(err)
		}
	}
	last := j.Last()
	if err := j.Close(); err != nil || last.Epoch == old.Epoch || last.Seq != old.Seq+5 {
		t.Fatalf("%v after %v: %v", last, old, err)
	}
	both := func(s *eventSource, from uint64) {
		if from <= old.Seq {
			s.events(old.Epoch, from, old.Seq)
			from = old.Seq + 1
		}
		s.events(last.Epoch, from, last.Seq)
		s.quiet()
	}
	for _, c := range []struct {
		name   string
		after  string
		from   uint64
		reason string
	}{
		{"before the boot", pos(old, 1), 2, ""},
		{"at the boot", old.String(), old.Seq + 1, ""},
		{"at the boot, in the new numbers", pos(last, old.Seq), old.Seq + 1, ""},
		{"after the boot", pos(last, old.Seq+2), old.Seq + 3, ""},
		{"old numbers beyond their end", pos(old, old.Seq+1), 0, "future"},
		{"new numbers before their beginning", pos(last, 1), 0, "expired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := listen(t, f, "/v1/events?instance=one", c.after)
			defer s.close()
			if c.reason == "" {
				both(s, c.from)
				return
			}
			if r := decode[resynced](t, s.of("resync").data); r.Reason != c.reason || *r.Snapshot.At != last.String() {
				t.Errorf("%+v", r)
			}
			s.quiet()
		})
	}
}

// A power cut can take the end of a segment whose successor was written
// already. What is left is told once, in order.
func TestFollowOverPowerCut(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: pulse})
	in, old := f.Past("one", 10, 60)
	dir := f.Home.Instance(in.ID).Journal()
	j, _, err := journal.Open(dir, journal.Config{Instance: in.ID, Boot: "another"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.AppendRaw(wire.EventOutput, []byte("new\n")), j.Close()); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, fmt.Sprintf("%020d.log", 1))
	b, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	b = b[:strings.LastIndex(string(b), `{"seq":`)] // the last event is lost
	if err := os.WriteFile(first, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, after := range []uint64{0, 5, old.Seq - 1} {
		s := listen(t, f, "/v1/events?instance=one", pos(old, after))
		s.events(old.Epoch, after+1, old.Seq-1)
		s.events(j.Last().Epoch, old.Seq+1, old.Seq+1)
		s.quiet()
		s.close()
	}
}

// A vector goes on exactly where the stream was, wherever it was cut.
func TestVectorEverywhere(t *testing.T) {
	f := servertest.Open(t, server.Limits{Heartbeat: pulse})
	var start []string
	total := 0
	for _, name := range []string{"a", "b", "c"} {
		_, last := f.Past(name, 10, 60)
		start, total = append(start, pos(last, 0)), total+int(last.Seq)
	}
	const path = "/v1/events?instance=a&instance=b&instance=c"
	read := func(after string, n int) (ids, data []string) {
		s := listen(t, f, path, after)
		defer s.close()
		for range n {
			fr := s.of("event")
			ids, data = append(ids, fr.id), append(data, fr.data)
		}
		s.quiet()
		return ids, data
	}
	ids, data := read(strings.Join(start, ","), total)
	for cut := range ids {
		_, rest := read(ids[cut], len(ids)-cut-1)
		if diff := cmp.Diff(data[cut+1:], rest, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("after %s (-before +now):\n%s", ids[cut], diff)
		}
	}
}

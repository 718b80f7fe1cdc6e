package server_test

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/wire"
)

// follows counts the streams that are under way.
func follows() int { return running("castctl/internal/server.(*Server).pump(") }

// One client takes nothing while an agent says 200 MB. It costs nobody
// anything, is let go, and misses nothing when it comes again.
func TestSlowClient(t *testing.T) {
	said := uint64(200_000)
	if raceEnabled {
		said = 40_000
	}
	f := servertest.Open(t, server.Limits{Stall: 3 * time.Second})
	g := newGate(t)
	in := f.Start("loud", servertest.Chatter(int(said), 1024, string(g))...)
	f.AwaitEvents(in.ID, 2)
	at := heed(t, f, in.ID)
	last := at.Seq + said - 1

	slow := listenSlowly(t, f, at)
	healthy := make(chan error)
	before := heap()
	var worst uint64
	for i := range 2 {
		s := listen(t, f, "/v1/events?instance=loud", at.String())
		go func() {
			healthy <- s.hear(at, last, func(seq uint64) {
				if i == 0 && (last-seq)%(said/10) == 0 {
					worst = max(worst, heap())
				}
			})
		}()
	}
	g.open(t)
	for range 2 {
		if err := <-healthy; err != nil {
			t.Fatalf("a healthy client: %v", err)
		}
	}
	if worst > before+16<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, worst)
	}
	f.Eventually("the slow client to be let go", func() bool { return follows() == 2 })

	resume := slow.remains(t)
	if resume.Seq >= last {
		t.Fatal("the slow client got everything: it was not slow")
	}
	t.Logf("the slow client goes on after %d of %d events; the heap grew by %d bytes", resume.Seq-at.Seq, said, int64(worst)-int64(before))
	again := listen(t, f, "/v1/events?instance=loud", resume.String())
	if err := again.hear(resume, last, func(uint64) {}); err != nil {
		t.Error(err)
	}
}

// listenSlowly opens a stream whose client takes nothing for now. The kernel
// keeps little for it.
func listenSlowly(t *testing.T, f *servertest.Fleet, at wire.Pos) *eventSource {
	t.Helper()
	d := net.Dialer{}
	c, err := d.DialContext(t.Context(), "tcp", fill(f, "127.0.0.1:{P}"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(servertest.Patience))
	c.(*net.TCPConn).SetReadBuffer(256 << 10)
	s := &eventSource{t: t, conn: c}
	before := follows()
	if _, err := io.WriteString(c, fill(f, request("GET /v1/events?instance=loud", "", home, token, "Last-Event-ID: "+at.String()))); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the stream to be under way", func() bool { return follows() > before })
	return s
}

// hear reads the agent's lines from one position to the last, all of them in
// order, and calls told with the number of each.
func (s *eventSource) hear(at wire.Pos, last uint64, told func(seq uint64)) error {
	for seq := at.Seq + 1; seq <= last; seq++ {
		f, err := s.next()
		if err != nil {
			return fmt.Errorf("after event %d: %w", seq-1, err)
		}
		if f.name == "" {
			seq--
			continue
		}
		if want := (wire.Pos{Epoch: at.Epoch, Seq: seq}).String(); f.id != want || !strings.HasPrefix(f.data, fmt.Sprintf(`{"seq":%d,`, seq)) {
			return fmt.Errorf("%s %s came, not event %s: %.80s", f.name, f.id, want, f.data)
		}
		told(seq)
	}
	return nil
}

// remains reads what a client that was let go can still read, and returns the
// position of the last whole event.
func (s *eventSource) remains(t *testing.T) wire.Pos {
	t.Helper()
	s.open(t)
	b, _ := io.ReadAll(s.r) // a reset is an end, too
	frames := strings.Split(string(b), "\n\n")
	var last wire.Pos
	for _, fr := range frames[:len(frames)-1] {
		if _, rest, ok := strings.Cut(fr, "id: "); ok {
			id, _, _ := strings.Cut(rest, "\n")
			p, err := wire.ParsePos(id)
			if err != nil || last.Seq != 0 && p.Seq != last.Seq+1 {
				t.Fatalf("after %v came %q", last, id)
			}
			last = p
		}
	}
	if last.Seq == 0 {
		t.Fatalf("nothing came: %.200s", b)
	}
	return last
}

// heap is what is alive on the heap now.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A client that falls behind what is kept is told so, and where it stands when
// it comes again.
func TestClientFallsBehind(t *testing.T) {
	f := servertest.Open(t, usual)
	g := newGate(t)
	const said = 12_000
	in := f.StartSpec("loud", wire.Spec{Argv: servertest.Chatter(said, 1000, string(g)), JournalMax: 1 << 20})
	f.AwaitEvents(in.ID, 2)
	at := heed(t, f, in.ID)
	slow := listenSlowly(t, f, at)
	g.open(t)
	last := f.AwaitEvents(in.ID, at.Seq+said-1)

	slow.open(t)
	seen := at
	for {
		fr := slow.must()
		if fr.name == "evicted" {
			if e := decode[map[string]string](t, fr.data); e["reason"] != "behind" || e["resume"] != seen.String() {
				t.Errorf("at %s: %s", seen, fr.data)
			}
			break
		}
		seen.Seq++
		if fr.name != "event" || fr.id != seen.String() {
			t.Fatalf("%s %s came, not event %s", fr.name, fr.id, seen)
		}
	}
	if fr, err := slow.next(); err == nil {
		t.Errorf("the stream goes on: %+v", fr)
	}
	again := listen(t, f, "/v1/events?instance=loud", seen.String())
	r := decode[resynced](t, again.of("resync").data)
	if r.Reason != "expired" || r.Snapshot.At == nil {
		t.Fatalf("%+v", r)
	}
	if p, err := wire.ParsePos(*r.Snapshot.At); err != nil || p.Epoch != last.Epoch || p.Seq < last.Seq {
		t.Errorf("it stands at %s, before %s: %v", p, last, err)
	}
}

package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/supervisor"
	"github.com/castctl/castctl/wire"
)

// follow checks what a client wants to follow, and from where, and returns the
// handler that streams the full events.
func (s *Server) follow(r *http.Request, names []string) (http.HandlerFunc, *wire.Error) {
	after := r.Header.Get("Last-Event-ID")
	if after == "" {
		after = r.URL.Query().Get("after")
	}
	positions, err := parseVector(after)
	if err != nil {
		return nil, err.At("after")
	}
	views, err := s.resolve(names)
	if err != nil {
		return nil, err
	}
	return func(w http.ResponseWriter, r *http.Request) { s.relay(w, r, views, positions) }, nil
}

// relay streams the events of instances from the positions on.
func (s *Server) relay(w http.ResponseWriter, r *http.Request, views []*supervisor.View, positions []wire.Pos) {
	hold, ok := s.sup.Hold("events")
	if !ok {
		writeError(w, wire.Errorf(wire.Unavailable, "the supervisor is leaving"))
		return
	}
	defer hold()
	woken := make(chan struct{}, 1)
	f := &follower{server: s, st: newStream(w, s.bound.Stall)}
	defer f.close()
	for _, v := range views {
		// First the wake-ups, then a look at the journal: nothing is missed.
		wake, stop := s.sup.Follow(v.ID)
		defer stop()
		ended := make(chan struct{})
		defer close(ended)
		go forward(wake, woken, ended)
		f.add(v.ID, positions)
	}
	f.greet(positions)
	s.pump(f.st, r, woken, f)
}

// resolve finds the instances of a stream. One that is named twice, or by name
// and by id, is one.
func (s *Server) resolve(names []string) ([]*supervisor.View, *wire.Error) {
	snap := s.sup.Snapshot()
	var views []*supervisor.View
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, err
		}
		v := snap.Find(name)
		if v == nil {
			return nil, wire.Errorf(wire.NotFound, "there is no instance %q", name)
		}
		if !slices.Contains(views, v) {
			views = append(views, v)
		}
	}
	return views, nil
}

// forward joins the wake-ups of several instances.
func forward(from <-chan struct{}, to chan<- struct{}, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-from:
			select {
			case to <- struct{}{}:
			default:
			}
		}
	}
}

// maxPositions is how many positions a client may bring: those of its
// instances, and some of others that it followed before.
const maxPositions = 64

// parseVector reads positions joined by commas.
func parseVector(s string) ([]wire.Pos, *wire.Error) {
	if s == "" {
		return nil, nil
	}
	parts := strings.Split(s, ",")
	if len(parts) > maxPositions {
		return nil, wire.Errorf(wire.InvalidRequest, "there are more than %d positions", maxPositions)
	}
	out := make([]wire.Pos, len(parts))
	for i, part := range parts {
		p, err := wire.ParsePos(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}

// followed is one instance of a stream.
type followed struct {
	id     string
	dir    string // of its journal
	reader *journal.Reader
	pos    wire.Pos // of the last event that was sent or is shown; zero before the first
	resume bool     // goes on from the client's position
	reason string   // why it cannot; empty if the client brought none
}

// follower reads the journals of a stream.
type follower struct {
	server *Server
	st     *stream
	list   []*followed
}

// add takes an instance into the stream, from the position given for it. A
// position of another instance or epoch never yields foreign events.
func (f *follower) add(id string, positions []wire.Pos) {
	dir := f.server.sup.Home().Instance(id).Journal()
	in := &followed{id: id, dir: dir, reader: journal.NewReader(dir)}
	f.list = append(f.list, in)
	bounds, err := journal.Find(dir)
	if err != nil { // nothing was written yet
		return
	}
	for _, p := range positions {
		switch err := journal.Locate(dir, p, bounds.Last.Seq); {
		case errors.Is(err, journal.ErrForeign):
		case errors.Is(err, journal.ErrFuture):
			in.reason = "future"
		case err == nil && in.reader.SeekAfter(p.Seq) == nil:
			in.pos, in.resume = p, true
			return
		default:
			in.reason = "expired"
		}
	}
}

// greet sends the snapshot of what is new to the client, and a resync for each
// position that could not be honoured. If none of the positions is of any of
// the instances, they are of epochs that are gone.
func (f *follower) greet(positions []wire.Pos) {
	strange := len(positions) > 0
	for _, in := range f.list {
		strange = strange && !in.resume && in.reason == ""
	}
	fresh := []picture{}
	var resyncs []resync
	for _, in := range slices.Clone(f.list) {
		if in.resume {
			continue
		}
		if strange {
			in.reason = "epoch"
		}
		p, ok := f.picture(in)
		switch {
		case !ok:
			f.drop(in)
		case in.reason == "":
			fresh = append(fresh, p)
		default:
			resyncs = append(resyncs, resync{Instance: in.id, Reason: in.reason, Snapshot: p})
		}
	}
	if len(fresh) > 0 {
		f.st.object(f.at(), "snapshot", map[string]any{"instances": fresh})
	}
	for _, r := range resyncs {
		f.st.object(f.at(), "resync", r)
	}
}

// picture is one instance with its sessions at a position: null if there is no
// event yet.
type picture struct {
	Instance wire.Instance  `json:"instance"`
	Sessions []wire.Session `json:"sessions"`
	At       *string        `json:"at"`
}

type resync struct {
	Instance string  `json:"instance"`
	Reason   string  `json:"reason"`
	Snapshot picture `json:"snapshot"`
}

// picture asks for an instance's picture and places the reader behind it.
func (f *follower) picture(in *followed) (picture, bool) {
	got, err := f.server.get(in.id)
	if err != nil {
		return picture{}, false
	}
	in.place(got.Instance.LastSeq)
	p := picture{Instance: got.Instance, Sessions: got.Sessions}
	if in.pos.Epoch != "" {
		p.At = wire.Ptr(in.pos.String())
	}
	return p, true
}

func (s *Server) get(id string) (wire.GetResult, *wire.Error) {
	got, err := s.sup.Call(context.Background(), wire.Request{Command: wire.Get{Instance: id}})
	if err != nil {
		return wire.GetResult{}, err
	}
	return got.(wire.GetResult), nil
}

// place puts the reader where a picture stands. Without a host's word the
// picture is what the journal ends with. A host's word is as old as its last
// event, shown, and the journal may be ahead of it: events that change the
// picture and are not in it yet are left to be sent.
func (in *followed) place(shown uint64) {
	for range seekTries {
		bounds, err := journal.Find(in.dir)
		if err != nil {
			return // no event yet
		}
		at := bounds.Last
		if shown > 0 && shown < at.Seq && in.reader.SeekAfter(shown) == nil {
			at = in.skipQuiet(wire.Pos{Epoch: at.Epoch, Seq: shown}, at.Seq)
		}
		if in.reader.SeekAfter(at.Seq) == nil {
			in.pos = at
			return
		}
	}
	in.reader = journal.NewReader(in.dir) // from the first that is kept
}

// seekTries is how often a writer may overtake a look at the journal.
const seekTries = 3

// quiet events change nothing that a picture shows.
var quiet = map[wire.EventType]bool{
	wire.EventOutput: true, wire.EventStderr: true, wire.EventToken: true, wire.EventThinking: true, wire.EventMessage: true,
}

// skipQuiet returns the position behind the quiet events that follow at, as far
// as last.
func (in *followed) skipQuiet(at wire.Pos, last uint64) wire.Pos {
	for at.Seq < last {
		e, err := in.reader.Next()
		if err != nil || !quiet[e.Type] {
			break
		}
		at = wire.Pos{Epoch: in.reader.Epoch(), Seq: e.Seq}
	}
	return at
}

func (f *follower) close() {
	for _, in := range f.list {
		in.reader.Close()
	}
}

// at is the stream's position: one position an instance.
func (f *follower) at() string {
	var parts []string
	for _, in := range f.list {
		if in.pos.Epoch != "" {
			parts = append(parts, in.pos.String())
		}
	}
	return strings.Join(parts, ",")
}

// send writes a burst of events of each instance, so that one that says a lot
// does not silence the others.
func (f *follower) send() (more bool, err error) {
	if len(f.list) == 0 {
		return false, errOver
	}
	for _, in := range f.list {
		m, err := f.burst(in)
		if err != nil {
			return false, err
		}
		more = more || m
	}
	return more, f.st.flush()
}

func (f *follower) burst(in *followed) (more bool, err error) {
	for !f.st.full() {
		e, err := in.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, journal.ErrNoJournal):
			return false, nil
		case errors.Is(err, journal.ErrExpired):
			return false, errBehind
		case err != nil:
			f.server.cfg.Log.Error("a journal cannot be read", "id", in.id, "err", err)
			return false, errBehind
		}
		in.pos = wire.Pos{Epoch: in.reader.Epoch(), Seq: e.Seq}
		f.st.event(f.at(), "event", e.AppendJSON(nil))
	}
	return true, f.st.flush()
}

// next returns the next event. A reader that stands at the end of a segment
// while the writer goes on, closes it and perhaps drops it can come out behind
// what it has not read: it is sent back then. Events that a power cut took are
// not there the next time either.
func (in *followed) next() (journal.Entry, error) {
	for try := 0; ; try++ {
		e, err := in.reader.Next()
		if err != nil || in.pos.Epoch == "" || e.Seq == in.pos.Seq+1 || try == seekTries {
			return e, err
		}
		if err := in.reader.SeekAfter(in.pos.Seq); err != nil {
			return e, err
		}
	}
}

// look drops the instances that were removed.
func (f *follower) look() error {
	for _, in := range slices.Clone(f.list) {
		if _, err := f.server.get(in.id); err == nil || err.Code != wire.NotFound {
			continue
		}
		for more := true; more; { // its last words
			var err error
			if more, err = f.burst(in); err != nil {
				return err
			}
		}
		f.drop(in)
	}
	return nil
}

// drop tells that an instance is not there any more. When none is left the
// stream ends.
func (f *follower) drop(in *followed) {
	in.reader.Close()
	f.list = slices.DeleteFunc(f.list, func(x *followed) bool { return x == in })
	f.st.object(f.at(), "removed", map[string]string{"id": in.id})
}

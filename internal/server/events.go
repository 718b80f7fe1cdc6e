package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/supervisor"
	"github.com/castctl/castctl/wire"
)

// maxFollowed is how many instances one stream carries: browsers allow few
// connections, so one must do for a page.
const maxFollowed = 8

// events streams: the overview of the fleet, or the full events of the named
// instances.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if !known(w, r, "instance", "after") {
		return
	}
	names := r.URL.Query()["instance"]
	if len(names) > maxFollowed {
		writeError(w, wire.Errorf(wire.InvalidRequest, "one stream carries at most %d instances", maxFollowed))
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		writeError(w, wire.Errorf(wire.Unavailable, "%d streams are open already", maxStreams))
		return
	}
	if len(names) == 0 {
		s.overview(w, r)
		return
	}
	s.follow(w, r, names)
}

// overview sends the fleet, then what changes.
func (s *Server) overview(w http.ResponseWriter, r *http.Request) {
	changed, stop := s.sup.Watch()
	defer stop()
	hold, ok := s.sup.Hold("overview")
	if !ok {
		writeError(w, wire.Errorf(wire.Unavailable, "the supervisor is leaving"))
		return
	}
	defer hold()
	st := newStream(w)
	snap := s.sup.Snapshot()
	seen := map[string]uint64{}
	st.event("", "snapshot", snap.JSON())
	for _, v := range snap.Views {
		seen[v.ID] = v.Version
	}
	s.pump(st, r, changed, func() error {
		snap := s.sup.Snapshot()
		now := map[string]uint64{}
		for _, v := range snap.Views {
			now[v.ID] = v.Version
			if seen[v.ID] != v.Version {
				st.event("", "state", v.JSON)
			}
		}
		for id := range seen {
			if _, there := now[id]; !there {
				st.object("", "removed", map[string]string{"id": id})
			}
		}
		seen = now
		return st.flush()
	}, func() string { return "" })
}

// pump runs a stream until its client or the supervisor ends.
func (s *Server) pump(st *stream, r *http.Request, changed <-chan struct{}, send func() error, at func() string) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	if st.flush() != nil {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.sup.Done():
			st.evict("shutdown", at())
			return
		case <-beat.C:
			if st.beat() != nil {
				return
			}
		case <-changed:
			if err := send(); err != nil {
				st.evict("slow", at())
				return
			}
		}
	}
}

// followed is one instance of a stream.
type followed struct {
	id     string
	reader *journal.Reader
	pos    wire.Pos
}

// follow streams the full events of the named instances.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, names []string) {
	after := r.Header.Get("Last-Event-ID")
	if after == "" {
		after = r.URL.Query().Get("after")
	}
	positions, werr := parseVector(after)
	if werr != nil {
		writeError(w, werr.At("after"))
		return
	}
	views := make([]*supervisor.View, len(names))
	for i, name := range names {
		if views[i] = s.sup.Snapshot().Find(name); views[i] == nil {
			writeError(w, wire.Errorf(wire.NotFound, "there is no instance %q", name))
			return
		}
	}
	woken := make(chan struct{}, 1)
	f := &follower{server: s, st: newStream(w)}
	defer f.close()
	for _, v := range views {
		wake, stop := s.sup.Follow(v.ID)
		defer stop()
		ended := make(chan struct{})
		defer close(ended)
		go forward(wake, woken, ended)
		f.add(v, positions)
	}
	f.greet()
	s.pump(f.st, r, woken, f.send, f.vector)
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

// parseVector reads positions joined by commas.
func parseVector(s string) ([]wire.Pos, *wire.Error) {
	if s == "" {
		return nil, nil
	}
	var out []wire.Pos
	for _, part := range strings.Split(s, ",") {
		p, err := wire.ParsePos(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// follower reads the journals of a stream.
type follower struct {
	server *Server
	st     *stream
	list   []*followed
	fresh  []*followed // without a position: they get a snapshot
	resync []resync
}

type resync struct {
	*followed
	reason string
}

// add takes an instance into the stream, from the position given for it. A
// position of another instance or epoch never yields foreign events.
func (f *follower) add(v *supervisor.View, positions []wire.Pos) {
	dir := f.server.sup.Home().Instance(v.ID).Journal()
	in := &followed{id: v.ID, reader: journal.NewReader(dir)}
	f.list = append(f.list, in)
	bounds, err := journal.Find(dir)
	if err != nil { // nothing was written yet
		f.fresh = append(f.fresh, in)
		return
	}
	reason := ""
	for _, p := range positions {
		switch err := journal.Locate(dir, p, bounds.Last.Seq); {
		case errors.Is(err, journal.ErrForeign):
			continue
		case errors.Is(err, journal.ErrExpired):
			reason = "expired"
		case errors.Is(err, journal.ErrFuture):
			reason = "future"
		case err == nil && in.reader.SeekAfter(p.Seq) == nil:
			in.pos = p
			return
		default:
			reason = "expired"
		}
	}
	in.pos = bounds.Last
	in.reader.SeekAfter(bounds.Last.Seq)
	switch {
	case reason != "":
		f.resync = append(f.resync, resync{in, reason})
	case len(positions) > 0 && len(f.server.foreign(positions, f.list)) == len(positions):
		f.resync = append(f.resync, resync{in, "epoch"})
	default:
		f.fresh = append(f.fresh, in)
	}
}

// foreign lists the positions that none of the followed journals gave out.
func (s *Server) foreign(positions []wire.Pos, list []*followed) []wire.Pos {
	var out []wire.Pos
	for _, p := range positions {
		ours := false
		for _, in := range list {
			dir := s.sup.Home().Instance(in.id).Journal()
			ours = ours || !errors.Is(journal.Locate(dir, p, 0), journal.ErrForeign)
		}
		if !ours {
			out = append(out, p)
		}
	}
	return out
}

func (f *follower) close() {
	for _, in := range f.list {
		in.reader.Close()
	}
}

// vector is the stream's position: one position an instance.
func (f *follower) vector() string {
	var parts []string
	for _, in := range f.list {
		if in.pos.Epoch != "" {
			parts = append(parts, in.pos.String())
		}
	}
	return strings.Join(parts, ",")
}

// picture is one instance with its sessions at a position.
type picture struct {
	Instance wire.Instance  `json:"instance"`
	Sessions []wire.Session `json:"sessions"`
	At       string         `json:"at"`
}

func (f *follower) picture(in *followed) (picture, bool) {
	got, err := f.server.sup.Call(context.Background(), wire.Request{Command: wire.Get{Instance: in.id}})
	if err != nil {
		return picture{}, false
	}
	g := got.(wire.GetResult)
	return picture{Instance: g.Instance, Sessions: g.Sessions, At: in.pos.String()}, true
}

// greet sends the snapshot of what is new to the client, and a resync for each
// position that could not be honoured.
func (f *follower) greet() {
	fresh := []picture{}
	for _, in := range f.fresh {
		if p, ok := f.picture(in); ok {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) > 0 {
		f.st.object(f.vector(), "snapshot", map[string]any{"instances": fresh})
	}
	for _, r := range f.resync {
		if p, ok := f.picture(r.followed); ok {
			f.st.object(f.vector(), "resync", map[string]any{"instance": r.id, "reason": r.reason, "snapshot": p})
		}
	}
}

// send writes every event that there is now.
func (f *follower) send() error {
	for _, in := range f.list {
		for {
			e, err := in.reader.Next()
			if errors.Is(err, io.EOF) || errors.Is(err, journal.ErrNoJournal) {
				break
			}
			if errors.Is(err, journal.ErrExpired) {
				f.behind(in)
				break
			}
			if err != nil {
				return err
			}
			in.pos = wire.Pos{Epoch: in.reader.Epoch(), Seq: e.Seq}
			f.st.event(f.vector(), "event", e.AppendJSON(nil))
			if f.st.full() {
				if err := f.st.flush(); err != nil {
					return err
				}
			}
		}
	}
	return f.st.flush()
}

// behind resyncs a client that fell behind the first event kept.
func (f *follower) behind(in *followed) {
	dir := f.server.sup.Home().Instance(in.id).Journal()
	if bounds, err := journal.Find(dir); err == nil {
		in.pos = bounds.Last
		in.reader.SeekAfter(bounds.Last.Seq)
	}
	if p, ok := f.picture(in); ok {
		f.st.object(f.vector(), "resync", map[string]any{"instance": in.id, "reason": "expired", "snapshot": p})
	}
}

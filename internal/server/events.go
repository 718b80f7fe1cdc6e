package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/castctl/castctl/wire"
)

// maxFollowed is how many instances one stream carries: browsers allow few
// connections, so one must do for a page.
const maxFollowed = 8

// events streams: the overview of the fleet, or the full events of the named
// instances.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // a HEAD would hold a stream that says nothing
		absent(w, r)
		return
	}
	if !known(w, r, "instance", "after") {
		return
	}
	names := r.URL.Query()["instance"]
	if len(names) > maxFollowed {
		writeError(w, wire.Errorf(wire.InvalidRequest, "one stream carries at most %d instances", maxFollowed))
		return
	}
	stream, bad := s.overview, (*wire.Error)(nil)
	if len(names) > 0 {
		stream, bad = s.follow(r, names)
	}
	if bad != nil {
		writeError(w, bad)
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		stream(w, r)
	default:
		writeError(w, wire.Errorf(wire.Unavailable, "%d streams are open already", cap(s.slots)))
	}
}

// source is what a stream carries.
type source interface {
	// send writes what there is now, or a part of it, and reports whether there
	// is more.
	send() (more bool, err error)
	// look is called at each heartbeat: for what nobody is woken by.
	look() error
	// at is the position from which a client can go on.
	at() string
}

var (
	errBehind = errors.New("the client fell behind the first event that is kept")
	errOver   = errors.New("there is nothing more to follow")
)

// pump runs a stream until its client, its source or the supervisor ends.
func (s *Server) pump(st *stream, r *http.Request, changed <-chan struct{}, src source) {
	beat := time.NewTicker(s.bound.Heartbeat)
	defer beat.Stop()
	always := make(chan struct{})
	close(always)
	for more := true; ; {
		ready := changed
		if more {
			ready = always
		}
		var err error
		select {
		case <-r.Context().Done():
			return
		case <-s.sup.Done():
			st.evict("shutdown", src.at())
			return
		case <-beat.C:
			st.beat()
			err = src.look()
		case <-ready:
		}
		if err == nil {
			more, err = src.send()
		}
		switch {
		case err == nil:
		case errors.Is(err, errOver):
			st.flush()
			return
		case errors.Is(err, errBehind):
			st.evict("behind", src.at())
			return
		default:
			st.evict("slow", src.at())
			return
		}
	}
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
	o := &overview{server: s, st: newStream(w, s.bound.Stall), seen: map[string]uint64{}}
	snap := s.sup.Snapshot()
	o.st.event("", "snapshot", snap.JSON())
	for _, v := range snap.Views {
		o.seen[v.ID] = v.Version
	}
	s.pump(o.st, r, changed, o)
}

// overview is the fleet as one client knows it.
type overview struct {
	server *Server
	st     *stream
	seen   map[string]uint64 // id → version of the view that was sent
}

func (o *overview) send() (more bool, err error) {
	snap := o.server.sup.Snapshot()
	now := make(map[string]uint64, len(snap.Views))
	for _, v := range snap.Views {
		now[v.ID] = v.Version
		if o.seen[v.ID] != v.Version {
			o.st.event("", "state", v.JSON)
		}
	}
	for id := range o.seen {
		if _, there := now[id]; !there {
			o.st.object("", "removed", map[string]string{"id": id})
		}
	}
	o.seen = now
	return false, o.st.flush()
}

func (o *overview) look() error { return nil }

// at is empty: a client that comes again gets a snapshot again.
func (o *overview) at() string { return "" }

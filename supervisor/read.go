package supervisor

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/internal/dialect"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// Product is the name under which a Cast process introduces itself.
const Product = "castctl"

// read answers what changes nothing.
func (s *Supervisor) read(c wire.Command) (any, *wire.Error) {
	switch c := c.(type) {
	case wire.GetVersion:
		return s.version()
	case wire.GetStatus:
		snap := s.Snapshot()
		if c.Instance == "" {
			return jsontext.Value(snap.JSON()), nil
		}
		v := snap.Find(c.Instance)
		if v == nil {
			return nil, noInstance(c.Instance)
		}
		return v.JSON, nil
	case wire.Get:
		return s.get(c)
	case wire.History:
		return s.history(c)
	}
	return nil, wire.Errorf(wire.UnsupportedMethod, "the operation %q is not known here", c.Op())
}

// ask runs fn on the owner and returns what it returns.
func ask[T any](s *Supervisor, fn func() T) (T, *wire.Error) {
	got := make(chan T, 1)
	var none T
	if !s.post(func() { got <- fn() }) {
		return none, wire.Errorf(wire.Unavailable, "the supervisor is leaving")
	}
	select {
	case v := <-got:
		return v, nil
	case <-s.done:
		return none, wire.Errorf(wire.Unavailable, "the supervisor is leaving")
	}
}

func (s *Supervisor) version() (any, *wire.Error) {
	hosts, err := ask(s, func() []wire.HostBuild {
		out := []wire.HostBuild{}
		for _, v := range s.views.latest.Load().Views {
			in := s.fleet.byID[v.ID]
			if in == nil || in.link == nil {
				continue
			}
			out = append(out, wire.HostBuild{Name: in.rec.Name, BuildID: in.link.hello.BuildID, Protocol: in.link.hello.Protocol})
		}
		return out
	})
	if err != nil {
		return nil, err
	}
	return wire.VersionResult{
		Product: Product, Version: s.cfg.Version, BuildID: s.cfg.BuildID,
		Protocol: wire.Versions{Min: wire.Protocol, Max: wire.Protocol}, Registry: s.db.UUID(), Hosts: hosts,
	}, nil
}

func (s *Supervisor) get(c wire.Get) (any, *wire.Error) {
	type answer struct {
		result wire.GetResult
		err    *wire.Error
	}
	a, err := ask(s, func() (a answer) {
		in, err := s.need(c.Instance)
		if err != nil {
			return answer{err: err}
		}
		a.result = wire.GetResult{Instance: s.describe(in), Spec: in.rec.Spec, Revision: in.rec.Revision, Sessions: []wire.Session{}}
		if in.status != nil {
			a.result.Sessions = in.status.Sessions
		}
		return a
	})
	if err != nil || a.err != nil {
		if a.err != nil {
			err = a.err
		}
		return nil, err
	}
	if c.Session == "" {
		return a.result, nil
	}
	for _, sess := range a.result.Sessions {
		if sess.ID == c.Session {
			a.result.Sessions = []wire.Session{sess}
			return a.result, nil
		}
	}
	e := wire.Errorf(wire.NotFound, "there is no session %q", c.Session).At("/command/session")
	e.Details.Session = c.Session
	return nil, e
}

const defaultHistory = 100

func (s *Supervisor) history(c wire.History) (any, *wire.Error) {
	limit := c.Limit
	if limit == 0 {
		limit = defaultHistory
	}
	if c.Instance == "" {
		return s.facts(c, limit)
	}
	v := s.Snapshot().Find(c.Instance)
	if v == nil {
		return nil, noInstance(c.Instance)
	}
	return ReadHistory(s.cfg.Home.Instance(v.ID), c, limit, v.LastSeq)
}

// facts is the fleet's history. Its positions are the registry's own.
func (s *Supervisor) facts(c wire.History, limit int) (any, *wire.Error) {
	after := uint64(0)
	if c.After != "" {
		p, err := wire.ParsePos(c.After)
		if err != nil || p.Epoch != s.db.UUID() {
			return nil, wire.Errorf(wire.NotFound, "the position %q is not of this history", c.After).At("/command/after")
		}
		after = p.Seq
	}
	out := wire.HistoryResult{Events: []wire.Event{}}
	err := s.db.View(func(tx *registry.Tx) error {
		events, err := tx.Facts(after, limit)
		if err != nil {
			return err
		}
		out.Events = filter(events, c.Types)
		first, last := tx.FactBounds()
		if last > 0 {
			out.First = wire.Ptr(wire.Pos{Epoch: s.db.UUID(), Seq: first}.String())
			out.Last = wire.Ptr(wire.Pos{Epoch: s.db.UUID(), Seq: last}.String())
		}
		if n := len(events); n > 0 && events[n-1].Seq < last {
			out.Next = wire.Ptr(wire.Pos{Epoch: s.db.UUID(), Seq: events[n-1].Seq}.String())
		}
		return nil
	})
	if err != nil {
		return nil, wire.Errorf(wire.Internal, "the history cannot be read: %v", err)
	}
	return out, nil
}

func filter(events []wire.Event, types []wire.EventType) []wire.Event {
	out := []wire.Event{}
	for _, e := range events {
		if wanted(e.Type, types) {
			out = append(out, e)
		}
	}
	return out
}

func wanted(t wire.EventType, types []wire.EventType) bool {
	if len(types) == 0 {
		return true
	}
	for _, w := range types {
		if w == t {
			return true
		}
	}
	return false
}

func dialectOf(spec wire.Spec) wire.Dialect { return dialect.Recognise(spec.Dialect, spec.Argv) }

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// unmarshal reads a host's result.
func unmarshal(b jsontext.Value, v any) *wire.Error {
	if err := json.Unmarshal(b, v); err != nil {
		return wire.Unknownf(wire.Internal, "the host's answer cannot be read: %v", err)
	}
	return nil
}

package supervisor

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// View is one instance as clients see it, encoded once.
type View struct {
	wire.Instance
	JSON    jsontext.Value
	Version uint64 // grows with every change of any view
}

// Snapshot is the whole fleet at one moment. It never changes.
type Snapshot struct {
	Home       string
	Supervisor *wire.SupervisorInfo
	Views      []*View // by name
	Orphans    []wire.Orphan
	Version    uint64

	once    sync.Once
	encoded []byte
}

// JSON is the snapshot as a [wire.Status], encoded at the first call.
func (s *Snapshot) JSON() []byte {
	s.once.Do(func() {
		list := make([]jsontext.Value, len(s.Views))
		for i, v := range s.Views {
			list[i] = v.JSON
		}
		s.encoded, _ = json.Marshal(struct {
			Home       string               `json:"home"`
			Supervisor *wire.SupervisorInfo `json:"supervisor"`
			Instances  rawList              `json:"instances"`
			Orphans    []wire.Orphan        `json:"orphans"`
		}{s.Home, s.Supervisor, list, s.Orphans})
	})
	return s.encoded
}

// rawList is values that are known to be JSON, so that a large fleet is joined
// without being parsed again.
type rawList []jsontext.Value

// MarshalJSONTo writes the values as they are.
func (l rawList) MarshalJSONTo(e *jsontext.Encoder) error {
	b := append(make([]byte, 0, 2+len(l)*600), '[')
	b = append(b, bytes.Join(asBytes(l), []byte{','})...)
	return e.WriteValue(append(b, ']'))
}

func asBytes(l rawList) [][]byte {
	out := make([][]byte, len(l))
	for i, v := range l {
		out[i] = v
	}
	return out
}

// Find looks an instance up by name or id.
func (s *Snapshot) Find(ref string) *View {
	i, ok := slices.BinarySearchFunc(s.Views, ref, func(v *View, ref string) int { return strings.Compare(v.Name, ref) })
	if ok {
		return s.Views[i]
	}
	for _, v := range s.Views {
		if v.ID == ref {
			return v
		}
	}
	return nil
}

// views keeps the snapshot current. All but latest belongs to the owner.
type views struct {
	latest  atomic.Pointer[Snapshot]
	byID    map[string]*View
	dirty   map[*instance]bool
	orphans bool // changed
	server  *wire.SupervisorInfo
	version uint64
	watch   tails
	waiting []chan struct{} // closed after the next publication; the owner's
}

func (v *views) init() {
	v.byID = map[string]*View{}
	v.dirty = map[*instance]bool{}
	v.orphans = true
}

// touch has an instance's view made anew before the step ends.
func (v *views) touch(in *instance) { v.dirty[in] = true }

func (v *views) touchOrphans() { v.orphans = true }

func (v *views) remove(in *instance) {
	delete(v.dirty, in)
	delete(v.byID, in.rec.ID)
	v.orphans = true // the list changes
}

func (v *views) setServer(r lease.Server) {
	v.server = &wire.SupervisorInfo{
		PID: r.PID, InstanceID: r.InstanceID, Version: r.Version, BuildID: r.BuildID,
		Protocol: wire.Versions{Min: r.Protocol.Min, Max: r.Protocol.Max}, StartedAt: r.StartedAt, Foreground: r.Foreground,
		URL: r.URL(),
	}
	v.orphans = true
}

// release lets those go who wait for what was just published.
func (v *views) release() {
	for _, shown := range v.waiting {
		close(shown)
	}
	v.waiting = nil
}

// publishViews makes a new snapshot if anything changed.
func (s *Supervisor) publishViews() {
	v := &s.views
	if len(v.dirty) == 0 && !v.orphans && v.latest.Load() != nil {
		return
	}
	v.version++
	for in := range v.dirty {
		if s.fleet.byID[in.rec.ID] != in {
			continue
		}
		instance := s.describe(in)
		b, err := json.Marshal(instance)
		if err != nil {
			s.cfg.Log.Error("an instance cannot be described", "instance", in.rec.Name, "err", err)
			continue
		}
		if old := v.byID[in.rec.ID]; old != nil && bytes.Equal(old.JSON, b) {
			continue
		}
		v.byID[in.rec.ID] = &View{Instance: instance, JSON: b, Version: v.version}
	}
	clear(v.dirty)
	v.orphans = false
	snap := &Snapshot{Home: s.cfg.Home.Dir(), Supervisor: v.server, Version: v.version, Orphans: s.describeOrphans()}
	snap.Views = make([]*View, 0, len(v.byID))
	for _, view := range v.byID {
		snap.Views = append(snap.Views, view)
	}
	slices.SortFunc(snap.Views, func(a, b *View) int { return strings.Compare(a.Name, b.Name) })
	v.latest.Store(snap)
	v.watch.wake()
}

// Snapshot returns the fleet as it is now. Who asks for it looks at the fleet,
// so measurements are kept fresh for a while.
func (s *Supervisor) Snapshot() *Snapshot {
	s.look.noticed(s)
	return s.views.latest.Load()
}

// describe is one instance for clients.
func (s *Supervisor) describe(in *instance) wire.Instance {
	out := wire.Instance{
		Name: in.rec.Name, ID: in.rec.ID, State: in.state(), Dialect: dialectOf(in.rec.Spec), Wanted: in.rec.Wanted,
		HostPID: in.hostPID(), Holds: []wire.Hold{}, EnvNames: in.rec.EnvNames, Restarts: in.restartCount(),
	}
	if out.EnvNames == nil {
		out.EnvNames = []string{}
	}
	if in.rec.Incarnation != "" {
		out.Incarnation = wire.Ptr(in.rec.Incarnation)
	}
	if in.record != nil && in.living() {
		out.BuildID = &in.record.BuildID
	}
	if in.exit != nil {
		out.Exit, out.Run = &in.exit.Exit, in.exit.Run
	}
	if st := in.status; st != nil {
		out.Activity, out.PID, out.Run, out.StartedAt = st.Activity, st.PID, st.Run, st.Since
		out.Holds, out.Sessions = st.Holds, len(st.Sessions)
		if st.Exit != nil {
			out.Exit = st.Exit
		}
		if p, err := wire.ParsePos(st.At); err == nil {
			out.LastSeq = p.Seq
		}
		out.Reason = st.Reason
	}
	if why := in.reason(); why != "" {
		out.Reason = &why
	}
	in.usage.fill(&out)
	return out
}

// restartCount counts the starts that nobody asked for.
func (in *instance) restartCount() int {
	if in.status != nil {
		in.counts = in.status.Restarts
	}
	return in.counts
}

// reason says why an instance is as it is, where its host does not.
func (in *instance) reason() string {
	switch in.state() {
	case wire.Unknown, wire.Foreign, wire.Lost:
		return in.why
	case wire.Finished, wire.Failed:
		return in.rec.Reason
	case wire.BackingUp:
		if in.status == nil {
			return in.why
		}
	case wire.Starting:
		if in.rec.Parked {
			return in.why
		}
	}
	return ""
}

func (s *Supervisor) describeOrphans() []wire.Orphan {
	out := []wire.Orphan{}
	for _, o := range s.fleet.orphans {
		w := wire.Orphan{ID: o.record.ID, Name: o.record.Name, HostPID: o.record.PID, Since: o.since, Holds: []wire.Hold{}}
		if o.status != nil {
			w.PID, w.Holds = o.status.PID, o.status.Holds
		}
		w.RSSBytes = o.usage.rss()
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b wire.Orphan) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Watch returns a channel that tells, coalesced, that the fleet has changed,
// and a function that ends the watch.
func (s *Supervisor) Watch() (<-chan struct{}, func()) { return s.views.watch.add() }

// Hold keeps the supervisor from leaving for want of clients. It reports false
// if it is leaving already.
func (s *Supervisor) Hold(label string) (release func(), ok bool) {
	hold, err := s.holds.Take(lease.Listener, label, 0)
	if err != nil {
		return nil, false
	}
	return hold.Release, true
}

// Follow returns a channel that tells, coalesced, that an instance's journal may
// have grown, and a function that ends it. The instance is held as long as it
// is followed.
func (s *Supervisor) Follow(id string) (<-chan struct{}, func()) {
	// The channel is made here, so that nothing is missed while the owner is
	// told.
	ch := make(chan struct{}, 1)
	ch <- struct{}{}
	s.post(func() {
		if in := s.fleet.byID[id]; in != nil {
			in.tails.join(ch)
			in.tail()
		}
	})
	return ch, func() {
		s.post(func() {
			if in := s.fleet.byID[id]; in != nil {
				in.tails.quit(ch)
				in.tail()
			}
		})
	}
}

// tails is who wants to be woken.
type tails struct {
	mu sync.Mutex // guards to
	to map[chan struct{}]bool
}

func (t *tails) add() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	t.join(ch)
	return ch, func() { t.quit(ch) }
}

func (t *tails) join(ch chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.to == nil {
		t.to = map[chan struct{}]bool{}
	}
	t.to[ch] = true
}

func (t *tails) quit(ch chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.to, ch)
}

func (t *tails) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.to) > 0
}

func (t *tails) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ch := range t.to {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// tail tells the host whether somebody follows its journal.
func (in *instance) tail() {
	on := in.tails.any()
	if in.link == nil || in.asked.tail == on {
		return
	}
	in.asked.tail = on
	l := in.link
	go func() {
		ctx, cancel := contextFor(dialBound)
		defer cancel()
		l.call(ctx, wire.HostTail{On: on})
	}()
}

package host

import (
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// visitWrite bounds a write to a visitor: one that does not read is cut off.
const visitWrite = 10 * time.Second

// visit serves one connection until it ends.
func (h *Host) visit(v *visitor) {
	defer close(v.gone)
	defer h.door.exit(v)
	defer v.conn.Close()
	hello, err := json.Marshal(h.hello())
	if err != nil {
		return
	}
	v.conn.SetWriteDeadline(time.Now().Add(visitWrite))
	if _, err := v.conn.Write(append(hello, '\n')); err != nil {
		return
	}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		h.listen(v)
	}()
	h.speak(v, reading)
	v.conn.Close()
	<-reading
	h.post(func() { h.departed(v) })
}

func (h *Host) hello() wire.HostHello {
	return wire.HostHello{
		Type:        "hello",
		Protocol:    wire.Versions{Min: wire.Protocol, Max: wire.Protocol},
		Version:     h.cfg.Version,
		BuildID:     h.cfg.BuildID(),
		Instance:    wire.Ref{ID: h.cfg.ID, Name: h.leasing.name()},
		Incarnation: h.cfg.Incarnation,
		Registry:    h.leasing.registry(),
		StartedAt:   h.leasing.started,
		Foreground:  h.cfg.Foreground,
		Methods:     wire.HostOps.Names(),
		At:          h.journal.Last().String(),
	}
}

// speak writes answers first, then the latest status, then how far the journal
// has grown.
func (h *Host) speak(v *visitor, reading <-chan struct{}) {
	var shown []byte
	for {
		var b []byte
		select {
		case answer, ok := <-v.out:
			if !ok {
				h.lastWords(v, shown)
				return
			}
			b = answer
		case <-reading:
			return
		case <-v.wake:
			if latest := h.door.latest(); v.watching.Load() && newer(latest, shown) {
				shown, b = latest, latest
				break
			}
			if v.tailing.Load() {
				b, _ = json.Marshal(wire.HostFrame{Type: "tail", At: h.journal.Last().String()})
				b = append(b, '\n')
			}
		}
		v.conn.SetWriteDeadline(time.Now().Add(visitWrite))
		if _, err := v.conn.Write(b); err != nil {
			return
		}
	}
}

// lastWords shows a watcher the final status before the host leaves.
func (h *Host) lastWords(v *visitor, shown []byte) {
	if latest := h.door.latest(); v.watching.Load() && newer(latest, shown) {
		v.conn.SetWriteDeadline(time.Now().Add(time.Second))
		v.conn.Write(latest)
	}
}

// newer reports whether a frame is another than the one last shown: each is
// encoded once, for all.
func newer(latest, shown []byte) bool {
	return len(latest) > 0 && (len(shown) == 0 || &latest[0] != &shown[0])
}

// listen reads requests until the connection ends or speaks nonsense.
func (h *Host) listen(v *visitor) {
	lines := wire.NewLines(v.conn, wire.MaxBody)
	for {
		line, err := lines.Next()
		if err != nil {
			return
		}
		r, bad := wire.HostOps.Decode(line)
		if bad != nil {
			v.answer(wire.Fail(r.ID, bad).Encode())
			continue
		}
		h.post(func() { h.handle(v, r) })
	}
}

// handle carries one request out. It belongs to the owner.
func (h *Host) handle(v *visitor, r wire.Request) {
	succeed := func(result any) { v.answer(wire.Succeed(r.ID, result).Encode()) }
	switch c := r.Command.(type) {
	case wire.HostGetStatus:
		succeed(h.status())
	case wire.HostWatch:
		v.watching.Store(true)
		succeed(struct{}{})
		h.door.publish(h.status)
	case wire.HostTail:
		h.follow(v, c.On)
		succeed(struct{}{})
	case wire.HostLease:
		h.leased(v, c)
		succeed(struct{}{})
	case wire.HostTrim:
		h.journal.Trim(c.Max)
		succeed(struct{}{})
	case wire.HostConfigure:
		h.configure(c)
		succeed(h.status())
	case wire.HostStop:
		h.idleThen(c.WhenIdle, func() {
			h.stopAgent(time.Duration(c.TimeoutMS)*time.Millisecond, false, func(done wire.StopDone) { succeed(done) })
		})
	case wire.HostRestart:
		h.idleThen(c.WhenIdle, func() {
			h.stopAgent(0, true, func(wire.StopDone) { succeed(h.status()) })
		})
	case wire.HostSubmit:
		h.submit(c, func(done wire.HostSubmitted, err *wire.Error) {
			if err != nil {
				v.answer(wire.Fail(r.ID, err).Encode())
				return
			}
			succeed(done)
		})
	}
}

// follow turns tail frames on or off. Who follows is a listener and holds the
// instance.
func (h *Host) follow(v *visitor, on bool) {
	h.door.tail(v, on)
	if !on && v.follows != nil {
		v.follows()
		v.follows = nil
	}
	if on && v.follows == nil {
		if hold, err := h.holds.Take(lease.Listener, "a client follows", 0); err == nil {
			v.follows = hold.Release
		}
	}
	h.steps.dirty.Store(true)
}

// departed cleans up after a connection.
func (h *Host) departed(v *visitor) {
	if v.follows != nil {
		v.follows()
		v.follows = nil
	}
	if v.leasing {
		v.leasing = false
		h.leaseLost()
	}
	h.steps.dirty.Store(true)
}

// configure takes a new spec, used from the next start on.
func (h *Host) configure(c wire.HostConfigure) {
	h.file.Spec, h.file.Revision, h.file.Name = c.Spec, c.Revision, c.Name
	h.leasing.rename(c.Name)
	h.journal.SetMax(c.Spec.JournalCap())
	h.steps.dirty.Store(true)
}

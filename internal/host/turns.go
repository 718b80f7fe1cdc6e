package host

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/internal/dialect"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/transport"
	"github.com/castctl/castctl/wire"
)

// turns is what the agent was asked to do. One turn runs at a time; the others
// wait in their order. They outlive a crash of the agent, except the one that
// was with it.
type turns struct {
	current *turn
	queue   []*turn
}

type turn struct {
	id, request string
	session     string
	submit      wire.Submit
	by          string // client, or queue if it had to wait
	started     time.Time
	run         *run // that it was written to; nil before
	hold        *lease.Hold
	durable     bool         // its id is; only then may it be written
	born        map[int]bool // descendants that lived before it began
}

func turnNumber(id string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "t"))
	if err != nil {
		return 0
	}
	return n
}

// submit takes a committed request. It answers once the request's id is durable
// in the journal; only then is anything written to the agent.
func (h *Host) submit(s wire.HostSubmit, answer func(wire.HostSubmitted, *wire.Error)) {
	session := h.life.session(h.file.Spec)
	if done, answered := h.repeated(s, session); answered {
		answer(done, nil)
		return
	}
	if err := h.refuse(s); err != nil {
		answer(wire.HostSubmitted{}, err)
		return
	}
	busy := h.turns.current != nil || len(h.turns.queue) > 0
	if busy && s.Submit.IfBusy == wire.IfBusyReject {
		answer(wire.HostSubmitted{Disposition: wire.TurnRejected, Session: session}, nil)
		return
	}
	hold, err := h.holds.Take(lease.Turn, "request "+s.Request, 0)
	if err != nil {
		answer(wire.HostSubmitted{}, wire.Errorf(wire.Unavailable, "the instance is stopping"))
		return
	}
	t := &turn{id: fmt.Sprintf("t%d", h.memory.NextTurn()), request: s.Request, session: session, submit: s.Submit, by: "client", hold: hold}
	wait := busy || h.life.current == nil
	if wait {
		t.by = "queue"
		h.turns.queue = append(h.turns.queue, t)
	} else {
		h.turns.current = t
	}
	h.accept(t, wait, answer)
}

// repeated answers a request that the host had before, or may have had.
func (h *Host) repeated(s wire.HostSubmit, session string) (wire.HostSubmitted, bool) {
	r, known, covered := h.memory.Known(s.Request, s.CommittedAt)
	if !known && covered {
		return wire.HostSubmitted{}, false
	}
	done := wire.HostSubmitted{Disposition: wire.TurnStarted, Session: session, Outcome: cmp.Or(r.Outcome, wire.TurnUnknown)}
	if known {
		done.Turn = &r.Turn
	}
	for i, q := range h.turns.queue {
		if q.request == s.Request {
			done.Disposition, done.Position = wire.TurnQueued, wire.Ptr(i+1)
		}
	}
	if known && r.Outcome == "" {
		done.Outcome = "" // it is open: the events will tell
	}
	return done, true
}

// refuse says why a request cannot be taken at all.
func (h *Host) refuse(s wire.HostSubmit) *wire.Error {
	name := h.life.dialectName(h.file.Spec)
	d := dialect.For(name)
	if s.Submit.Session != "" && s.Submit.Session != d.Traits().Session {
		err := wire.Errorf(wire.NotFound, "there is no session %q", s.Submit.Session).At("/command/session")
		err.Details.Session = s.Submit.Session
		return err
	}
	if s.Submit.IfBusy == wire.IfBusySteer {
		err := wire.Errorf(wire.UnsupportedMethod, "an agent of dialect %s cannot be steered", name)
		err.Details.Method = wire.Submit{}.Op()
		return err
	}
	// A trial on a dialect of its own: what it refuses must not be queued.
	_, err := d.Begin(dialect.Turn{ID: "t0", Request: s.Request, Submit: s.Submit})
	return err
}

// accept makes the request durable, away from the owner, and answers.
func (h *Host) accept(t *turn, wait bool, answer func(wire.HostSubmitted, *wire.Error)) {
	h.memory.Accept(t.request, t.id, wire.Now())
	done := wire.HostSubmitted{Disposition: wire.TurnStarted, Turn: &t.id, Session: t.session}
	ev := t.startedEvent()
	if wait {
		done.Disposition, done.Position = wire.TurnQueued, wire.Ptr(len(h.turns.queue))
		ev = h.queueEvent()
	}
	h.steps.dirty.Store(true)
	fail := func(err error) {
		h.memory.Forget(t.request)
		h.withdraw(t)
		answer(wire.HostSubmitted{}, wire.Errorf(wire.Unavailable, "the request could not be journaled: %v", err))
	}
	// Here, so that events stand in the order of what they tell.
	crashpoint.At("host.submit.journal")
	if err := h.journal.Append(false, &ev); err != nil {
		fail(err)
		return
	}
	go func() {
		err := h.journal.Sync()
		crashpoint.At("host.submit.journaled")
		h.post(func() {
			if err != nil {
				fail(err)
				return
			}
			t.durable = true
			answer(done, nil)
			if !wait {
				h.write(t)
			}
			h.steps.dirty.Store(true)
		})
	}()
}

func (t *turn) startedEvent() wire.Event {
	t.started = wire.Now()
	return wire.NewEvent(wire.EventTurnStarted, wire.TurnStartedData{RequestID: &t.request, By: t.by}).In(t.session, t.id)
}

func (h *Host) queueEvent() wire.Event {
	session := ""
	if len(h.turns.queue) > 0 {
		session = h.turns.queue[0].session
	}
	return wire.NewEvent(wire.EventQueue, wire.QueueData{Turns: h.queued()}).In(session, "")
}

func (h *Host) queued() []wire.Queued {
	out := make([]wire.Queued, len(h.turns.queue))
	for i, t := range h.turns.queue {
		out[i] = wire.Queued{Turn: t.id, RequestID: t.request, Text: t.text()}
	}
	return out
}

// text shows a turn to a person.
func (t *turn) text() string {
	if t.submit.Command != nil {
		return string(t.submit.Command)
	}
	return t.submit.Text
}

func (h *Host) withdraw(t *turn) {
	if h.turns.current == t {
		h.turns.current = nil
	}
	for i, q := range h.turns.queue {
		if q == t {
			h.turns.queue = append(h.turns.queue[:i:i], h.turns.queue[i+1:]...)
			break
		}
	}
	t.hold.Release()
	h.steps.dirty.Store(true)
}

// dispatch begins the next turn of the queue when the agent is free.
func (h *Host) dispatch() {
	if h.turns.current != nil || len(h.turns.queue) == 0 || h.life.current == nil || h.life.stopping != nil {
		return
	}
	t := h.turns.queue[0]
	if !t.durable {
		return
	}
	h.turns.queue = h.turns.queue[1:]
	h.turns.current = t
	h.emit(h.queueEvent())
	h.emit(t.startedEvent())
	h.write(t)
}

// write hands the turn to the agent. The write itself may block on an agent
// that does not read, so the owner does not wait for it.
func (h *Host) write(t *turn) {
	r := h.life.current
	if r == nil {
		h.endTurn(t, wire.TurnEndedData{Outcome: wire.TurnFailed, Error: &wire.ErrorData{
			Code: wire.Unavailable, Message: "the agent ended before it was given the request; nothing was sent",
		}})
		return
	}
	line, err := r.dialect.Begin(dialect.Turn{ID: t.id, Request: t.request, Submit: t.submit})
	if err != nil {
		h.endTurn(t, wire.TurnEndedData{Outcome: wire.TurnFailed, Error: &wire.ErrorData{Code: err.Code, Message: err.Message}})
		return
	}
	t.run = r
	t.born = descendants()
	go func() {
		if err := r.sub.Write(line); err != nil {
			h.post(func() { h.writeFailed(t, err) })
		}
	}()
}

func (h *Host) writeFailed(t *turn, err error) {
	if we, ok := err.(*transport.WriteError); ok && !we.Sent && h.turns.current == t {
		h.endTurn(t, wire.TurnEndedData{Outcome: wire.TurnFailed, Error: &wire.ErrorData{
			Code: wire.Unavailable, Message: "the agent takes no input; nothing was sent",
		}})
	}
	// What may have been sent is settled by the agent's answer or its death.
}

// read takes a line from the agent.
func (h *Host) read(r *run, line []byte) {
	for _, f := range r.dialect.Read(line) {
		switch f := f.(type) {
		case dialect.TurnEnded:
			if t := h.turns.current; t != nil && t.id == f.Turn {
				h.endTurn(t, f.Data)
			}
		case dialect.Said:
			turn := ""
			if t := h.turns.current; t != nil && t.run == r {
				turn = t.id
			}
			h.emit(f.Event.In(r.dialect.Traits().Session, turn))
		}
	}
}

// endTurn ends the running turn. What it started and left running keeps the
// instance busy from now on.
func (h *Host) endTurn(t *turn, data wire.TurnEndedData) {
	h.turns.current = nil
	h.memory.Settle(t.id, data.Outcome)
	h.emit(wire.NewEvent(wire.EventTurnEnded, data).In(t.session, t.id))
	h.holdTasks(t)
	t.hold.Release()
	h.steps.dirty.Store(true)
}

// refuseQueue ends the turns that wait when the host leaves: the agent never got
// them.
func (h *Host) refuseQueue() {
	queue := h.turns.queue
	h.turns.queue = nil
	for _, t := range queue {
		h.endTurn(t, wire.TurnEndedData{Outcome: wire.TurnFailed, Error: &wire.ErrorData{
			Code: wire.Unavailable, Message: "the instance ended before the agent was given the request; nothing was sent",
		}})
	}
}

// failTurns settles the turn that was with a run that has ended.
func (h *Host) failTurns(r *run) {
	t := h.turns.current
	if t == nil || t.run != r {
		return
	}
	h.endTurn(t, wire.TurnEndedData{Outcome: wire.TurnUnknown, Error: &wire.ErrorData{
		Code: wire.Unavailable, Message: "the agent ended before it answered; it may have acted on the request",
	}})
}

// session is the agent's only session, if it has one.
func (l *life) session(s wire.Spec) string { return dialect.For(l.dialectName(s)).Traits().Session }

// activity is what the agent does; nil where that cannot be known.
func (h *Host) activity() *wire.Activity {
	if h.life.current == nil || h.life.current.dialect.Traits().Bytes {
		return nil
	}
	if h.turns.current != nil {
		return wire.Ptr(wire.Busy)
	}
	return wire.Ptr(wire.Idle)
}

// sessions describes the conversations.
func (h *Host) sessions() []wire.Session {
	id := h.life.session(h.file.Spec)
	if id == "" {
		return []wire.Session{}
	}
	s := wire.Session{ID: id, State: wire.SessionIdle, Queue: h.queued(), Permissions: []wire.PermissionRequest{}, LastSeq: h.journal.Last().Seq}
	if t := h.turns.current; t != nil {
		s.State = wire.SessionRunning
		s.Turn = &wire.TurnInfo{ID: t.id, RequestID: &t.request, StartedAt: t.started}
	}
	if h.life.current == nil {
		s.State = wire.SessionUnloaded
	}
	return []wire.Session{s}
}

// descendants lists what lives beneath the host now.
func descendants() map[int]bool {
	out := map[int]bool{}
	for _, pid := range proc.Tree(os.Getpid(), nil) {
		out[pid] = true
	}
	return out
}

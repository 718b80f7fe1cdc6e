package supervisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// call is one mutation on its way.
type call struct {
	req     wire.Request
	op      operation
	hash    [sha256.Size]byte
	receipt wire.Receipt
	reply   chan outcome // takes one
}

type outcome struct {
	result any
	err    *wire.Error
}

func (c *call) succeed(result any)   { c.reply <- outcome{result: result} }
func (c *call) fail(err *wire.Error) { c.reply <- outcome{err: err} }

// operation is how one kind of mutation is carried out.
type operation interface {
	// prepare does what takes time, away from the owner, and refuses what can be
	// refused before anything has changed.
	prepare(ctx context.Context, s *Supervisor) *wire.Error
	// plan decides on the owner's state what to commit. The receipt's instance
	// must be set before it returns.
	plan(s *Supervisor, c *call) (change, *wire.Error)
	// answer replies once, now or at the goal. It is called after the commit,
	// and for a retry with the original receipt.
	answer(s *Supervisor, c *call)
	// discard cleans up after prepare when nothing was committed.
	discard(s *Supervisor)
}

// Call carries out one request and returns its result, or an error that says
// whether anything may have been changed. When the context ends first the work
// goes on.
func (s *Supervisor) Call(ctx context.Context, req wire.Request) (any, *wire.Error) {
	if op := s.operation(req.Command); op != nil {
		return s.mutate(ctx, req, op)
	}
	return s.read(req.Command)
}

func (s *Supervisor) operation(c wire.Command) operation {
	switch c := c.(type) {
	case wire.Start:
		return &startOp{cmd: c}
	case wire.Stop:
		return &stopOp{cmd: c}
	case wire.RestartInstance:
		return &restartOp{cmd: c}
	case wire.Remove:
		return &removeOp{cmd: c}
	case wire.Configure:
		return &configureOp{cmd: c}
	case wire.Apply:
		return &applyOp{cmd: c}
	case wire.Sweep:
		return &sweepOp{}
	case wire.Adopt:
		return &adoptOp{cmd: c}
	case wire.Reap:
		return &reapOp{cmd: c}
	case wire.Submit:
		return &submitOp{cmd: c}
	}
	return nil
}

func (s *Supervisor) mutate(ctx context.Context, req wire.Request, op operation) (any, *wire.Error) {
	hash, err := wire.Hash(req.Command)
	if err != nil {
		return nil, wire.Errorf(wire.InvalidRequest, "%v", err)
	}
	hold, err := s.holds.Take(lease.Listener, req.Command.Op(), 0)
	if err != nil {
		return nil, wire.Errorf(wire.Unavailable, "the supervisor is leaving")
	}
	defer hold.Release()
	c := &call{req: req, op: op, hash: hash, reply: make(chan outcome, 1)}
	if known, werr := s.lookup(c); known || werr != nil {
		if werr != nil {
			return nil, werr
		}
		return s.await(ctx, c, func() { op.answer(s, c) })
	}
	if werr := op.prepare(ctx, s); werr != nil {
		return nil, werr
	}
	return s.await(ctx, c, func() { s.begin(c) })
}

// lookup finds the receipt of an earlier request with the same id. It reports
// true if there is one for the same command.
func (s *Supervisor) lookup(c *call) (known bool, werr *wire.Error) {
	err := s.db.View(func(tx *registry.Tx) error {
		stored, ok, err := tx.Receipt(c.req.ID)
		if err != nil || !ok {
			return err
		}
		known, werr = c.recognise(stored)
		return nil
	})
	if err != nil {
		return false, wire.Errorf(wire.Internal, "the registry cannot be read: %v", err)
	}
	return known, werr
}

// recognise takes a stored receipt as the call's own, if the command is the
// same.
func (c *call) recognise(stored registry.Stored) (bool, *wire.Error) {
	if !bytes.Equal(stored.Hash, c.hash[:]) {
		return false, wire.Errorf(wire.Conflict, "the id %q was used for another command", c.req.ID).At("/id")
	}
	if stored.Failure != nil {
		return false, stored.Failure
	}
	if err := json.Unmarshal(stored.Receipt, &c.receipt); err != nil {
		return false, wire.Errorf(wire.Internal, "the receipt cannot be read: %v", err)
	}
	if sub, ok := c.op.(*submitOp); ok {
		sub.answered, sub.retry = stored.Answered, true
	}
	return true, nil
}

// await posts a step and waits for the reply.
func (s *Supervisor) await(ctx context.Context, c *call, step func()) (any, *wire.Error) {
	if !s.post(step) {
		return nil, wire.Errorf(wire.Unavailable, "the supervisor is leaving")
	}
	select {
	case o := <-c.reply:
		s.awaitViews()
		return o.result, o.err
	case <-ctx.Done():
		return nil, wire.Unknownf(wire.Unavailable, "the request was given up while it was carried out")
	case <-s.done:
		select {
		case o := <-c.reply:
			return o.result, o.err
		default:
			return nil, wire.Unknownf(wire.Unavailable, "the supervisor ended while the request was carried out")
		}
	}
}

// awaitViews returns when the snapshot shows all that the owner has done so far:
// whoever has an answer must not then be shown the time before it.
func (s *Supervisor) awaitViews() {
	shown := make(chan struct{})
	if !s.post(func() { s.views.waiting = append(s.views.waiting, shown) }) {
		return
	}
	select {
	case <-shown:
	case <-s.done:
	}
}

// begin plans a mutation on settled state and puts it into the batch.
func (s *Supervisor) begin(c *call) {
	id := "request " + c.req.ID
	if s.batch.clashes([]string{id}) {
		s.commit()
	}
	// Its twin may have been committed since the first look: while this one was
	// prepared, or waited here.
	if known, err := s.lookup(c); err != nil || known {
		c.op.discard(s)
		if err != nil {
			c.fail(err)
			return
		}
		c.op.answer(s, c)
		return
	}
	c.receipt = wire.Receipt{ID: c.req.ID, Op: c.req.Command.Op(), CommittedAt: wire.Now()}
	ch, err := c.op.plan(s, c)
	if err == nil && s.batch.clashes(ch.keys) {
		s.commit()
		ch, err = c.op.plan(s, c)
	}
	if err == dryRun {
		c.succeed(c.op.(*applyOp).result)
		return
	}
	if err != nil {
		c.op.discard(s)
		c.fail(err)
		return
	}
	s.enlist(c, ch, id)
}

// enlist adds the receipt to a planned change and puts both into the batch.
func (s *Supervisor) enlist(c *call, ch change, id string) {
	write, apply := ch.write, ch.apply
	ch.keys = append(ch.keys, id)
	ch.write = func(tx *registry.Tx) error {
		if write != nil {
			if err := write(tx); err != nil {
				return err
			}
		}
		return putReceipt(tx, c)
	}
	ch.apply = func() {
		if apply != nil {
			apply()
		}
		c.op.answer(s, c)
	}
	ch.fail = func(err *wire.Error) {
		c.op.discard(s)
		c.fail(err)
	}
	s.change(ch)
}

func putReceipt(tx *registry.Tx, c *call) error {
	b, err := json.Marshal(c.receipt)
	if err != nil {
		return err
	}
	return tx.PutReceipt(c.req.ID, registry.Stored{Hash: c.hash[:], Receipt: b, At: c.receipt.CommittedAt})
}

// waiter is a caller who waits until an instance has reached a goal.
type waiter struct {
	done  func(in *instance) bool
	reply func(in *instance)
	timer *time.Timer
}

// waitFor replies as soon as done says so, or after the given time.
func (s *Supervisor) waitFor(in *instance, ms int64, done func(*instance) bool, reply func(*instance)) {
	if done(in) {
		reply(in)
		return
	}
	if ms == 0 {
		ms = wire.DefaultWaitMS
	}
	w := &waiter{done: done, reply: reply}
	w.timer = time.AfterFunc(time.Duration(ms)*time.Millisecond, func() {
		s.post(func() {
			if in.forget(w) {
				w.reply(in)
			}
		})
	})
	in.waiters = append(in.waiters, w)
}

func (in *instance) forget(w *waiter) bool {
	for i, x := range in.waiters {
		if x == w {
			in.waiters = append(in.waiters[:i:i], in.waiters[i+1:]...)
			return true
		}
	}
	return false
}

// wake answers the waiters whose goal is reached.
func (in *instance) wake() {
	for _, w := range in.waiters[:len(in.waiters):len(in.waiters)] {
		if w.done(in) && in.forget(w) {
			w.timer.Stop()
			w.reply(in)
		}
	}
}

// need finds the instance that a command names.
func (s *Supervisor) need(ref string) (*instance, *wire.Error) {
	in := s.fleet.find(ref)
	if in == nil {
		return nil, noInstance(ref)
	}
	return in, nil
}

func noInstance(ref string) *wire.Error {
	return wire.Errorf(wire.NotFound, "there is no instance %q", ref).At("/command/instance")
}

// keysOf is what a change to an instance touches.
func keysOf(in *instance) []string { return []string{"id " + in.rec.ID, "name " + in.rec.Name} }

// fact is an event of the supervisor's own history.
func fact(in *instance, state wire.State, reason string) wire.Event {
	return factOf(in.rec.ID, state, reason)
}

func factOf(id string, state wire.State, reason string) wire.Event {
	ev := wire.NewEvent(wire.EventState, wire.StateData{State: state, Reason: &reason, Holds: []wire.Hold{}})
	ev.Instance, ev.Time = id, wire.Now()
	return ev
}

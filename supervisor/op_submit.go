package supervisor

import (
	"context"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// submitOp hands a request to an agent, at most once.
type submitOp struct {
	cmd      wire.Submit
	retry    bool
	answered *wire.HostSubmitted // what the host said when it took the request
}

func (*submitOp) prepare(context.Context, *Supervisor) *wire.Error { return nil }
func (*submitOp) discard(*Supervisor)                              {}

func (o *submitOp) plan(s *Supervisor, c *call) (change, *wire.Error) {
	in, err := s.need(o.cmd.Instance)
	if err != nil {
		return change{}, err
	}
	c.receipt.Instance = in.ref()
	switch state := in.state(); {
	case in.rec.Wanted == wire.WantStopped, state.Over():
		return change{}, wire.Errorf(wire.InvalidState, "instance %s is %s: start it first", in.rec.Name, state)
	case in.link == nil:
		return change{}, wire.Errorf(wire.Unavailable, "instance %s is %s and cannot be reached now", in.rec.Name, state)
	}
	return change{}, nil
}

// answer forwards the request whose receipt is committed. A retry is forwarded
// again only if it is not known that the host took it; the host, too, knows
// what it had.
func (o *submitOp) answer(s *Supervisor, c *call) {
	in := s.fleet.byID[c.receipt.Instance.ID]
	switch {
	case o.answered != nil:
		c.succeed(o.result(c, *o.answered))
		return
	case in == nil:
		c.fail(wire.Errorf(wire.NotFound, "instance %s was removed meanwhile", c.receipt.Instance.Name))
		return
	case in.link == nil:
		c.fail(wire.Unknownf(wire.Unavailable, "instance %s cannot be reached now; whether it has the request is not known yet", in.rec.Name))
		return
	}
	l := in.link
	go func() {
		crashpoint.At("submit.forward")
		b, err := l.call(context.Background(), wire.HostSubmit{Request: c.req.ID, CommittedAt: c.receipt.CommittedAt, Submit: o.cmd})
		var done wire.HostSubmitted
		if err == nil {
			err = unmarshal(b, &done)
		}
		if !s.post(func() { o.settle(s, c, done, err) }) {
			c.fail(wire.Unknownf(wire.Unavailable, "the supervisor ended before the request was answered"))
		}
	}()
}

// settle stores what became of a forwarded request, and answers. A refusal
// takes the receipt back; an unknown delivery is stored and stands.
func (o *submitOp) settle(s *Supervisor, c *call, done wire.HostSubmitted, err *wire.Error) {
	switch {
	case err == nil && done.Outcome == wire.TurnUnknown:
		failure := wire.Unknownf(wire.Unavailable, "the agent may have acted on the request before it or its host ended")
		failure.Details.Session = done.Session
		o.store(s, c, func(st *registry.Stored) { st.Failure = failure }, func() { c.fail(failure) })
	case err == nil && done.Disposition == wire.TurnRejected:
		o.withdraw(s, c, func() { c.succeed(wire.SubmitResult{Disposition: wire.TurnRejected, Session: done.Session}) })
	case err == nil:
		// Nobody waits for this: if it is lost, the host answers a retry.
		o.store(s, c, func(st *registry.Stored) { st.Answered = &done }, func() {})
		c.succeed(o.result(c, done))
	case err.Delivery == wire.NotSent && !o.retry:
		o.withdraw(s, c, func() { c.fail(err) })
	default:
		// The host died on it. Whether it has the request is asked again at the
		// next retry, so it is not stored as unknown for ever.
		c.fail(err)
	}
}

func (o *submitOp) result(c *call, done wire.HostSubmitted) wire.SubmitResult {
	return wire.SubmitResult{
		Receipt: &c.receipt, Disposition: done.Disposition, Turn: done.Turn, Position: done.Position, Session: done.Session,
	}
}

func (o *submitOp) store(s *Supervisor, c *call, mark func(*registry.Stored), then func()) {
	s.change(change{
		keys: []string{"request " + c.req.ID},
		write: func(tx *registry.Tx) error {
			st, ok, err := tx.Receipt(c.req.ID)
			if err != nil || !ok {
				return err
			}
			mark(&st)
			return tx.PutReceipt(c.req.ID, st)
		},
		apply: then,
		fail: func(err *wire.Error) {
			s.cfg.Log.Error("a submit's answer could not be stored", "err", err.Message)
			then()
		},
	})
}

func (o *submitOp) withdraw(s *Supervisor, c *call, then func()) {
	s.change(change{
		keys:  []string{"request " + c.req.ID},
		write: func(tx *registry.Tx) error { return tx.DeleteReceipt(c.req.ID) },
		apply: then,
		fail: func(err *wire.Error) {
			s.cfg.Log.Error("a refused submit's receipt could not be taken back", "err", err.Message)
			then()
		},
	})
}

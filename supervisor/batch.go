package supervisor

import (
	"errors"

	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// change is one planned mutation: what to write, what to do once it stands in
// the registry, and what to do if it does not.
type change struct {
	keys  []string // what it touches; two changes of one commit share none
	write func(*registry.Tx) error
	apply func()
	fail  func(*wire.Error)
}

// batch is the changes that wait for the next commit.
type batch struct {
	changes []change
	touched map[string]bool
}

// clashes reports whether a change to these keys must wait for the commit: it
// would be planned on a state that is about to change.
func (b *batch) clashes(keys []string) bool {
	for _, k := range keys {
		if b.touched[k] {
			return true
		}
	}
	return false
}

func (b *batch) add(c change) {
	if b.touched == nil {
		b.touched = map[string]bool{}
	}
	for _, k := range c.keys {
		b.touched[k] = true
	}
	b.changes = append(b.changes, c)
}

func (b *batch) take() []change {
	c := b.changes
	b.changes, b.touched = nil, nil
	return c
}

// refuse fails what waits: the supervisor leaves.
func (b *batch) refuse() {
	for _, c := range b.take() {
		c.fail(wire.Errorf(wire.Unavailable, "the supervisor is leaving"))
	}
}

// change plans a mutation's effect for the next commit.
func (s *Supervisor) change(c change) {
	if c.fail == nil {
		c.fail = func(err *wire.Error) { s.cfg.Log.Error("a change could not be committed", "err", err.Message) }
	}
	s.batch.add(c)
}

// amend changes an instance's record by itself, without a request. Others of the
// same commit may change the record too, and they are planned on the memory, so
// edit gets it as it stands when it is written. It returns false if nothing is to
// be changed any more; then follows either way.
func (s *Supervisor) amend(in *instance, edit func(rec *registry.Instance) bool, facts []wire.Event, then func(done bool), fail func(*wire.Error)) {
	var rec registry.Instance
	var done bool
	s.change(change{
		keys: keysOf(in),
		write: func(tx *registry.Tx) error {
			now, known, err := tx.Instance(in.rec.ID)
			if done = err == nil && known && edit(&now); !done {
				return err
			}
			rec = now
			for _, ev := range facts {
				if err := tx.AppendFact(ev); err != nil {
					return err
				}
			}
			return tx.PutInstance(rec)
		},
		apply: func() {
			if done {
				in.rec = rec
			}
			then(done)
		},
		fail: fail,
	})
}

// commit writes all waiting changes in one transaction and applies them. If
// the transaction fails, each is tried alone, so that one bad change does not
// take the others with it.
func (s *Supervisor) commit() {
	for len(s.batch.changes) > 0 {
		changes := s.batch.take()
		if !s.tenure.lock.Current() {
			s.leave("the home was removed or replaced")
			failAll(changes, wire.Errorf(wire.Unavailable, "the home was removed or replaced under the supervisor"))
			return
		}
		if err := s.write(changes...); err == nil {
			for _, c := range changes {
				c.apply()
			}
			continue
		} else if len(changes) == 1 {
			changes[0].fail(commitError(err))
			continue
		}
		for _, c := range changes {
			if err := s.write(c); err != nil {
				c.fail(commitError(err))
				continue
			}
			c.apply()
		}
	}
}

func failAll(changes []change, err *wire.Error) {
	for _, c := range changes {
		c.fail(err)
	}
}

func (s *Supervisor) write(changes ...change) error {
	return s.db.Update(func(tx *registry.Tx) error {
		for _, c := range changes {
			if err := c.write(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

func commitError(err error) *wire.Error {
	if errors.Is(err, registry.ErrFull) {
		return wire.Errorf(wire.Unavailable, "the disk is full: nothing was changed; make room and try again")
	}
	return wire.Unknownf(wire.Internal, "the registry could not be written: %v", err)
}

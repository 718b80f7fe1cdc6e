package registry

import (
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/castctl/castctl/wire"
)

// Tx is one transaction. What it returns is a copy.
type Tx struct{ tx *bolt.Tx }

// Instances lists all instances, by id.
func (t *Tx) Instances() ([]Instance, error) {
	var out []Instance
	err := t.tx.Bucket(bInstances).ForEach(func(k, v []byte) error {
		var in Instance
		if err := decode(v, &in); err != nil {
			return fmt.Errorf("%w: instance %s: %w", ErrDamaged, k, err)
		}
		out = append(out, in)
		return nil
	})
	return out, err
}

// Instance returns one instance as it stands in this transaction; ok is false if
// there is none.
func (t *Tx) Instance(id string) (in Instance, ok bool, err error) {
	v := t.tx.Bucket(bInstances).Get([]byte(id))
	if v == nil {
		return Instance{}, false, nil
	}
	if err := decode(v, &in); err != nil {
		return Instance{}, false, fmt.Errorf("%w: instance %s: %w", ErrDamaged, id, err)
	}
	return in, true, nil
}

// Filled notes that the registry holds all that it was to begin with.
func (t *Tx) Filled() error { return t.tx.Bucket(bMeta).Delete(kEmpty) }

// PutInstance stores an instance and its name.
func (t *Tx) PutInstance(in Instance) error {
	b, err := encode(in)
	if err != nil {
		return err
	}
	names := t.tx.Bucket(bNames)
	if id := names.Get([]byte(in.Name)); id != nil && string(id) != in.ID {
		return fmt.Errorf("the name %s belongs to %s", in.Name, id)
	}
	if err := names.Put([]byte(in.Name), []byte(in.ID)); err != nil {
		return err
	}
	return t.tx.Bucket(bInstances).Put([]byte(in.ID), b)
}

// DeleteInstance forgets an instance if its host is still that incarnation, and
// frees its name.
func (t *Tx) DeleteInstance(id, incarnation string) error {
	b := t.tx.Bucket(bInstances)
	v := b.Get([]byte(id))
	if v == nil {
		return nil
	}
	var in Instance
	if err := decode(v, &in); err != nil {
		return err
	}
	if in.Incarnation != incarnation {
		return fmt.Errorf("instance %s was started anew meanwhile", in.Name)
	}
	names := t.tx.Bucket(bNames)
	if string(names.Get([]byte(in.Name))) == id {
		if err := names.Delete([]byte(in.Name)); err != nil {
			return err
		}
	}
	return b.Delete([]byte(id))
}

// keptFacts bounds the history.
const keptFacts = 10_000

// AppendFact numbers a lifecycle fact and stores it; the oldest is dropped
// beyond the bound.
func (t *Tx) AppendFact(ev wire.Event) error {
	b := t.tx.Bucket(bHistory)
	n, err := b.NextSequence()
	if err != nil {
		return err
	}
	ev.Seq = n
	v, err := encode(ev)
	if err != nil {
		return err
	}
	if n > keptFacts {
		if err := b.Delete(number(n - keptFacts)); err != nil {
			return err
		}
	}
	return b.Put(number(n), v)
}

// Facts lists at most limit facts after the given number, oldest first.
func (t *Tx) Facts(after uint64, limit int) ([]wire.Event, error) {
	var out []wire.Event
	c := t.tx.Bucket(bHistory).Cursor()
	for k, v := c.Seek(number(after + 1)); k != nil && len(out) < limit; k, v = c.Next() {
		var ev wire.Event
		if err := decode(v, &ev); err != nil {
			return nil, err
		}
		out = append(out, ev)
	}
	return out, nil
}

// FactBounds is the number of the first and the last fact kept; 0 if there is
// none.
func (t *Tx) FactBounds() (first, last uint64) {
	k, _ := t.tx.Bucket(bHistory).Cursor().First()
	return parse(k), t.tx.Bucket(bHistory).Sequence()
}

package supervisor

import (
	"path/filepath"
	"testing"

	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// TestAmendKeepsWhatOthersCommit: a change of the supervisor's own that shares a
// commit with a request's does not undo it, whichever was planned first.
func TestAmendKeepsWhatOthersCommit(t *testing.T) {
	db, err := registry.Open(filepath.Join(t.TempDir(), "registry.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	in := &instance{rec: registry.Instance{ID: "i1", Name: "a", Wanted: wire.WantRunning, Incarnation: "one"}}
	if err := db.Update(func(tx *registry.Tx) error { return tx.PutInstance(in.rec) }); err != nil {
		t.Fatal(err)
	}
	s := &Supervisor{db: db}

	stopped := in.rec // as a stop plans it
	stopped.Wanted = wire.WantStopped
	s.change(change{
		keys:  keysOf(in),
		write: func(tx *registry.Tx) error { return tx.PutInstance(stopped) },
		apply: func() { in.rec = stopped },
	})
	launched := true
	s.amend(in, func(rec *registry.Instance) bool { // as a launch
		rec.Incarnation = "two"
		return rec.Wanted == wire.WantRunning
	}, nil, func(done bool) { launched = done }, nil)
	s.amend(in, func(rec *registry.Instance) bool { // as an end
		rec.Over = wire.Finished
		return true
	}, nil, func(bool) {}, nil)
	changes := s.batch.take()
	if err := s.write(changes...); err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		c.apply()
	}

	if launched {
		t.Error("it was launched although it was stopped")
	}
	var kept registry.Instance
	db.View(func(tx *registry.Tx) error { kept, _, err = tx.Instance("i1"); return err })
	for where, rec := range map[string]registry.Instance{"registry": kept, "memory": in.rec} {
		if rec.Wanted != wire.WantStopped || rec.Incarnation != "one" || rec.Over != wire.Finished {
			t.Errorf("%s: %+v", where, rec)
		}
	}
}

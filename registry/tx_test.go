package registry

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/castctl/castctl/wire"
)

func openFresh(t *testing.T) *DB {
	t.Helper()
	db, err := Open(filepath.Join(t.TempDir(), "registry.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestReceipts (10.3): receipts come back as they were stored, and pruning takes
// those that are too old, the oldest first, and no other, against a map.
func TestReceipts(t *testing.T) {
	db := openFresh(t)
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		model := map[string]Stored{}
		clear := func(tx *Tx) error { return tx.PruneReceipts(day.Add(1000*time.Hour), 1<<20) }
		if err := db.Update(clear); err != nil {
			rt.Fatal(err)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				id := fmt.Sprint("r", rapid.IntRange(0, 20).Draw(rt, "id"))
				s := Stored{Hash: []byte(id), Receipt: []byte(`{"id":"` + id + `"}`), At: day.Add(time.Duration(rapid.IntRange(0, 9).Draw(rt, "hour")) * time.Hour)}
				if old, ok := model[id]; ok {
					s.At = old.At
					s.Failure = wire.Unknownf(wire.Unavailable, "later")
				}
				model[id] = s
				if err := db.Update(func(tx *Tx) error { return tx.PutReceipt(id, s) }); err != nil {
					rt.Fatal(err)
				}
			},
			"delete": func(rt *rapid.T) {
				id := fmt.Sprint("r", rapid.IntRange(0, 20).Draw(rt, "id"))
				delete(model, id)
				if err := db.Update(func(tx *Tx) error { return tx.DeleteReceipt(id) }); err != nil {
					rt.Fatal(err)
				}
			},
			"prune": func(rt *rapid.T) {
				before := day.Add(time.Duration(rapid.IntRange(0, 10).Draw(rt, "hour")) * time.Hour)
				if err := db.Update(func(tx *Tx) error { return tx.PruneReceipts(before, 100) }); err != nil {
					rt.Fatal(err)
				}
				for id, s := range model {
					if s.At.Before(before) {
						delete(model, id)
					}
				}
			},
			"": func(rt *rapid.T) { sameReceipts(rt, db, model, day) },
		})
	})
}

func sameReceipts(rt *rapid.T, db *DB, model map[string]Stored, day time.Time) {
	oldest := day.Add(1000 * time.Hour)
	for _, s := range model {
		if s.At.Before(oldest) {
			oldest = s.At
		}
	}
	db.View(func(tx *Tx) error {
		for i := range 21 {
			id := fmt.Sprint("r", i)
			got, ok, err := tx.Receipt(id)
			want, there := model[id]
			if err != nil || ok != there || !cmp.Equal(got, want) {
				rt.Fatalf("%s is %+v %v %v, want %+v %v", id, got, ok, err, want, there)
			}
		}
		if tx.HasReceiptBefore(oldest) {
			rt.Fatalf("a receipt older than %s is left", oldest)
		}
		if len(model) > 0 && !tx.HasReceiptBefore(oldest.Add(time.Hour)) {
			rt.Fatalf("the receipt of %s cannot be found by its time", oldest)
		}
		return nil
	})
}

// TestPruneInParts takes no more than it is asked to, and the oldest first.
func TestPruneInParts(t *testing.T) {
	db := openFresh(t)
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	err := db.Update(func(tx *Tx) error {
		for i := range 10 {
			if err := tx.PutReceipt(fmt.Sprint(9-i), Stored{At: day.Add(time.Duration(i) * time.Hour)}); err != nil {
				return err
			}
		}
		return tx.PruneReceipts(day.Add(100*time.Hour), 4)
	})
	if err != nil {
		t.Fatal(err)
	}
	db.View(func(tx *Tx) error {
		for i := range 10 {
			if _, ok, _ := tx.Receipt(fmt.Sprint(9 - i)); ok != (i >= 4) {
				t.Errorf("the receipt of hour %d is there: %v", i, ok)
			}
		}
		return nil
	})
}

// TestNames: a name belongs to one instance, and is free once it is deleted; a
// deletion that names another incarnation is refused.
func TestNames(t *testing.T) {
	db := openFresh(t)
	a := Instance{ID: "a1", Name: "a", Incarnation: "i1"}
	put := func(in Instance) error { return db.Update(func(tx *Tx) error { return tx.PutInstance(in) }) }
	if err := put(a); err != nil {
		t.Fatal(err)
	}
	if err := put(Instance{ID: "a2", Name: "a"}); err == nil {
		t.Error("two instances have one name")
	}
	if err := db.Update(func(tx *Tx) error { return tx.DeleteInstance("a1", "i0") }); err == nil {
		t.Error("an instance was deleted for an old incarnation")
	}
	if err := db.Update(func(tx *Tx) error { return tx.DeleteInstance("a1", "i1") }); err != nil {
		t.Error(err)
	}
	if err := put(Instance{ID: "a2", Name: "a"}); err != nil {
		t.Errorf("the name is not free: %v", err)
	}
	db.View(func(tx *Tx) error {
		if all, err := tx.Instances(); err != nil || len(all) != 1 || all[0].ID != "a2" {
			t.Errorf("the instances are %+v, %v", all, err)
		}
		return nil
	})
}

// TestFacts: the history is numbered without gaps over reopenings, bounded, and
// loses its oldest.
func TestFacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	total := uint64(0)
	for range 2 {
		db, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *Tx) error {
			for range keptFacts/2 + 10 {
				total++
				if err := tx.AppendFact(wire.NewEvent(wire.EventNotice, wire.NoticeData{Kind: wire.NoticeGap, Message: fmt.Sprint(total)})); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	db, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.View(func(tx *Tx) error {
		first, last := tx.FactBounds()
		if last != total || first != total-keptFacts+1 {
			t.Errorf("facts %d to %d, want %d to %d", first, last, total-keptFacts+1, total)
		}
		facts, err := tx.Facts(first+2, 5)
		if err != nil || len(facts) != 5 || facts[0].Seq != first+3 {
			t.Errorf("after %d: %+v %v", first+2, facts, err)
		}
		return nil
	})
}

// TestOpen: a file that is not this registry's is never used, and one that is
// missing although the side file knows it is not silently made anew.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one", "registry.db"), filepath.Join(dir, "two", "registry.db")
	uuid := map[string]string{}
	for _, path := range []string{one, two} {
		mkdir(t, filepath.Dir(path))
		db, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		uuid[path] = db.UUID()
		if _, err := Open(path, nil); !errors.Is(err, ErrLocked) {
			t.Errorf("a second opening: %v, want %v", err, ErrLocked)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if uuid[one] == uuid[two] {
		t.Error("two registries have one identity")
	}
	move(t, two, one)
	if _, err := Open(one, nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("another registry's file: %v, want %v", err, ErrDamaged)
	}
	if _, err := Open(two, nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("a missing file: %v, want %v", err, ErrDamaged)
	}
}

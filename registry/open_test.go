package registry

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A registry that was made and not filled is still to be filled, whoever made it
// and however that ended.
func TestFreshUntilFilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	for range 3 {
		db, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !db.Fresh() {
			t.Fatal("it counts as filled")
		}
		db.Close()
	}
	db, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update((*Tx).Filled); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if db, err = Open(path, nil); err != nil || db.Fresh() {
		t.Fatalf("filled: %v, fresh %v", err, err == nil && db.Fresh())
	}
	db.Close()
}

// Only the file's own fault is damage: a good registry is never set aside
// because it could not be looked at.
func TestDamageIsTheFilesOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	db, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(path); !errors.Is(err, ErrLocked) || errors.Is(err, ErrDamaged) {
		t.Errorf("one that is open: %v", err)
	}
	db.Close()
	if err := Check(path); err != nil {
		t.Errorf("a good one: %v", err)
	}
	unclean := errors.New("the check was interrupted")
	os.Remove(sidePath(path)) // as after a kill
	if _, err := Open(path, func(string) error { return unclean }); !errors.Is(err, unclean) || errors.Is(err, ErrDamaged) {
		t.Errorf("a check that did not end: %v", err)
	}
	for _, size := range []int64{1, 100, 4096} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := Check(path); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d bytes: %v", size, err)
		}
	}
}

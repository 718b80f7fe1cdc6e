package forecast

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/wire"
)

// LockWait is how long a command waits for a ledger that another process uses.
const LockWait = 5 * time.Second

// Why a ledger cannot be used.
var (
	ErrEmpty   = errors.New("the file is empty, which no ledger ever is: restore it, or remove it to begin a new one")
	ErrDamaged = errors.New("the file is damaged: restore it, or move it away to begin a new one")
	ErrForeign = errors.New("the file is not a ledger of this program's")
	ErrLocked  = errors.New("another process holds its lock")
)

// Ledger is where events, forecasts and receipts are kept.
type Ledger struct {
	path string
	wait time.Duration

	memory *bbolt.DB // of an ephemeral ledger; a durable one is opened per command
	file   *os.File  // under memory

	mu     sync.Mutex  // guards the fields below, and memory against a fault's clean-up
	damage error       // what went wrong inside the store
	bytes  os.FileInfo // the file as it was then
}

// Open makes sure that there is a usable ledger at path: a missing one is
// created, whoever may be doing the same. The file is not kept open.
func Open(path string) (*Ledger, error) {
	l := &Ledger{path: path}
	if err := l.prepare(); err != nil {
		return nil, &LedgerError{Path: path, Err: err}
	}
	l.wait = LockWait
	return l, nil
}

// LedgerError says that a ledger cannot be used at all.
type LedgerError struct {
	Path string
	Err  error
}

func (e *LedgerError) Error() string { return fmt.Sprintf("ledger %s: %v", e.Path, e.Err) }
func (e *LedgerError) Unwrap() error { return e.Err }

func (l *Ledger) prepare() error {
	if _, err := os.Stat(l.path); errors.Is(err, os.ErrNotExist) {
		if err := create(l.path); err != nil {
			return err
		}
	}
	if err := usable(l.path); err != nil {
		return err
	}
	err := l.with(context.Background(), unix.LOCK_SH, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error { return isLedger(tx) })
	})
	if errors.Is(err, ErrLocked) {
		return nil // in use, so it was fit for use; every command looks again
	}
	return err
}

// Memory makes a ledger that ends with the process, however it ends.
func Memory() (*Ledger, error) {
	l := &Ledger{path: "memory"}
	db, err := bbolt.Open(l.path, 0o600, options(false, func(string, int, os.FileMode) (f *os.File, err error) {
		l.file, err = anonymous()
		return l.file, err
	}))
	if err == nil {
		l.memory, err = db, db.Update(layOut)
	}
	if err != nil {
		return nil, &LedgerError{Path: l.path, Err: err}
	}
	return l, nil
}

// Close gives the memory back. A durable ledger has nothing open.
func (l *Ledger) Close() error {
	if l.memory == nil {
		return nil
	}
	return l.memory.Close()
}

func options(readOnly bool, open func(string, int, os.FileMode) (*os.File, error)) *bbolt.Options {
	return &bbolt.Options{ReadOnly: readOnly, OpenFile: open, Timeout: time.Millisecond, NoStatistics: true}
}

// view runs fn on the book as it is.
func (l *Ledger) view(ctx context.Context, fn func(*book) error) error {
	err := l.with(ctx, unix.LOCK_SH, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			if err := isLedger(tx); err != nil {
				return err
			}
			return fn(&book{tx})
		})
	})
	return refusal(err)
}

// update runs fn in a transaction, and commits it unless fn fails or says that
// all was done before. id is the request whose receipt fn writes.
func (l *Ledger) update(ctx context.Context, id string, fn func(*book) (done bool, err error)) error {
	committing := false
	err := l.with(ctx, unix.LOCK_EX, func(db *bbolt.DB) error {
		tx, err := db.Begin(true)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after a commit it does nothing
		if err := isLedger(tx); err != nil {
			return err
		}
		if done, err := fn(&book{tx}); done || err != nil {
			return err
		}
		crashpoint.At("ledger.commit")
		committing = true
		if err := tx.Commit(); err != nil {
			committing = committed(db, id)
			return fmt.Errorf("the change cannot be written: %w", err)
		}
		crashpoint.At("ledger.answer")
		return nil
	})
	if failure := refusal(err); failure != nil {
		if e := wire.AsError(failure); committing {
			e.Delivery = wire.DeliveryUnknown
		}
		return failure
	}
	return nil
}

// committed looks, after a commit that failed, whether the receipt is there all
// the same: it is if only the last fsync failed. The lock is still held, so if
// it is not there it never will be.
func committed(db *bbolt.DB, id string) bool {
	there := true
	err := db.View(func(tx *bbolt.Tx) error {
		there = tx.Bucket(receipts).Get([]byte(id)) != nil
		return nil
	})
	return there || err != nil
}

// refusal turns what is wrong with the ledger into an answer. Errors of the
// request are answers already.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	return wire.Errorf(wire.Unavailable, "ledger: %v", err)
}

// with opens the ledger under its lock, of the given kind, for one call of fn.
func (l *Ledger) with(ctx context.Context, kind int, fn func(*bbolt.DB) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.memory != nil {
		if l.damage != nil {
			return l.damage
		}
		return l.guard(l.file, func() error { return fn(l.memory) })
	}
	f, err := l.hold(ctx, kind)
	if err != nil {
		return err
	}
	return l.guard(f, func() error {
		db, err := bbolt.Open(l.path, 0, options(kind == unix.LOCK_SH, func(string, int, os.FileMode) (*os.File, error) { return f, nil }))
		if err != nil {
			return err // bbolt has closed the file
		}
		// Not deferred: after a panic bbolt may hold the locks that Close takes.
		return errors.Join(fn(db), db.Close())
	})
}

// guard runs fn, which uses the store on f. bbolt trusts its file: damage shows
// as a fault in mapped memory or as a panic, and then the database still has its
// own locks and cannot be closed. So the file's lock is given back here, and the
// mapping, which is lost, is not made again for the same bytes.
func (l *Ledger) guard(f *os.File, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			l.damage = fmt.Errorf("%w (%v)", ErrDamaged, r)
			l.bytes, _ = f.Stat()
			unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing is not enough: the mapping holds the file
			f.Close()
			err = l.damage
		}
	}()
	return fn()
}

// knownDamage returns the damage found in f before, if f has not changed since.
func (l *Ledger) knownDamage(now os.FileInfo) error {
	if l.damage == nil || l.bytes == nil || !os.SameFile(l.bytes, now) {
		return nil
	}
	if l.bytes.Size() != now.Size() || !l.bytes.ModTime().Equal(now.ModTime()) {
		return nil
	}
	return l.damage
}

package registry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/wire"
)

// Schema is the version of the file's layout.
const Schema = 1

var (
	bMeta         = []byte("meta")
	bInstances    = []byte("instances")
	bNames        = []byte("names")
	bReceipts     = []byte("receipts")
	bReceiptTimes = []byte("receipt_times") // time and id of each receipt, for the oldest
	bHistory      = []byte("history")

	kSchema = []byte("schema")
	kUUID   = []byte("uuid")
	kEpoch  = []byte("epoch")
	kEmpty  = []byte("empty") // it was made and not filled yet
)

// lockTimeout bounds the wait for the file's own lock: the daemon lock is held
// already, so whoever has the file is no supervisor.
const lockTimeout = 500 * time.Millisecond

// DB is the open registry.
type DB struct {
	bolt  *bolt.DB
	path  string
	uuid  string
	epoch uint64
	fresh bool
}

// Open opens the registry, or makes a new one if there is none and the side
// file knows of none. check judges the file in a process of its own after an
// unclean end, with an error that matches [ErrDamaged] only if it is; nil skips
// that. A DB must be closed.
func Open(path string, check func(path string) error) (*DB, error) {
	if kind := NetworkFS(filepath.Dir(path)); kind != "" {
		return nil, fmt.Errorf("%w (%s)", ErrNetwork, kind)
	}
	side := readSide(path)
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && side.UUID != "":
		return nil, fmt.Errorf("%w: the file is missing", ErrDamaged)
	case errors.Is(err, os.ErrNotExist):
		return create(path)
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular() || st.Size() == 0:
		return nil, fmt.Errorf("%w: the file is empty", ErrDamaged)
	}
	if !side.Clean && check != nil {
		if err := check(path); err != nil {
			return nil, err
		}
	}
	return open(path, side.UUID)
}

// create makes a new registry. The side file comes last: without it, what a
// killed creation left is empty or damaged, and nothing was promised yet.
func create(path string) (*DB, error) {
	db, err := openBolt(path)
	if err != nil {
		return nil, err
	}
	r := &DB{bolt: db, path: path, uuid: wire.NewID(), fresh: true}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, b := range [][]byte{bInstances, bNames, bReceipts, bReceiptTimes, bHistory} {
			if _, err := tx.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		meta, err := tx.CreateBucketIfNotExists(bMeta)
		if err != nil {
			return err
		}
		return errors.Join(meta.Put(kSchema, number(Schema)), meta.Put(kUUID, []byte(r.uuid)), meta.Put(kEpoch, number(0)), meta.Put(kEmpty, number(1)))
	})
	if err != nil {
		db.Close()
		return nil, wrap(err)
	}
	return r, r.begin()
}

func open(path, uuid string) (*DB, error) {
	db, err := openBolt(path)
	if err != nil {
		return nil, err
	}
	r := &DB{bolt: db, path: path}
	err = db.View(func(tx *bolt.Tx) error {
		meta := tx.Bucket(bMeta)
		if meta == nil || len(meta.Get(kUUID)) == 0 {
			return fmt.Errorf("%w: it has no identity", ErrDamaged)
		}
		if v := parse(meta.Get(kSchema)); v > Schema {
			return fmt.Errorf("%w: schema %d, this one knows %d", ErrNewer, v, Schema)
		}
		r.uuid, r.epoch = string(meta.Get(kUUID)), parse(meta.Get(kEpoch))
		r.fresh = meta.Get(kEmpty) != nil
		return nil
	})
	if err == nil && uuid != "" && uuid != r.uuid {
		err = fmt.Errorf("%w: it is another registry's file", ErrDamaged)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return r, r.begin()
}

// begin counts the opening and marks the file as in use.
func (r *DB) begin() error {
	err := writeSide(r.path, sideFile{UUID: r.uuid})
	if err == nil {
		r.epoch++
		err = r.bolt.Update(func(tx *bolt.Tx) error { return tx.Bucket(bMeta).Put(kEpoch, number(r.epoch)) })
	}
	if err != nil {
		r.bolt.Close()
		return wrap(err)
	}
	return nil
}

func openBolt(path string) (*bolt.DB, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	return db, kindOf(err)
}

// kindOf tells what is wrong with a file that bbolt does not open: what the
// system does not refuse is the file's own fault.
func kindOf(err error) error {
	_, system := errors.AsType[syscall.Errno](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, berrors.ErrTimeout):
		return ErrLocked
	case !system:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return wrap(err)
}

// wrap names the one failure that a person can mend.
func wrap(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// UUID names the registry for ever.
func (r *DB) UUID() string { return r.uuid }

// Fresh reports whether the registry was made and nobody has filled it yet, with
// [Tx.Filled]: whoever made it may have been killed before.
func (r *DB) Fresh() bool { return r.fresh }

// Close closes the registry and marks its end as clean.
func (r *DB) Close() error {
	if err := r.bolt.Close(); err != nil {
		return err
	}
	return writeSide(r.path, sideFile{UUID: r.uuid, Clean: true})
}

// Update runs one transaction. If fn or the commit fails nothing is changed.
func (r *DB) Update(fn func(*Tx) error) error {
	err := r.bolt.Update(func(tx *bolt.Tx) error {
		if err := fn(&Tx{tx: tx}); err != nil {
			return err
		}
		crashpoint.At("registry.commit")
		return nil
	})
	crashpoint.At("registry.committed")
	return wrap(err)
}

// View runs fn on a consistent state. It must not call Update.
func (r *DB) View(fn func(*Tx) error) error {
	return r.bolt.View(func(tx *bolt.Tx) error { return fn(&Tx{tx: tx}) })
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func parse(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func encode(v any) ([]byte, error) { return json.Marshal(v) }

func decode(b []byte, v any) error { return json.Unmarshal(b, v) }

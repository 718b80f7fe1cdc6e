package registry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Check reads a whole registry file and returns why it cannot be used: an error
// that matches [ErrDamaged], or another if it could not be read at all. It may
// fault the process and keep the file's lock, so it runs in one of its own.
func Check(path string) (err error) {
	debug.SetPanicOnFault(true)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if err != nil {
		return kindOf(err)
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error {
		for bad := range tx.Check() {
			err = errors.Join(err, bad)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		for _, b := range [][]byte{bMeta, bInstances, bNames, bReceipts, bReceiptTimes, bHistory} {
			if tx.Bucket(b) == nil {
				return fmt.Errorf("%w: it has no %s", ErrDamaged, b)
			}
		}
		_, err := (&Tx{tx: tx}).Instances()
		return err
	})
}

// SetAside moves a damaged file out of the way, named after the moment, and
// forgets its side file. It returns the new path, empty if there was no file.
func SetAside(path string, now time.Time) (string, error) {
	aside := fmt.Sprintf("%s.damaged-%s", path, now.UTC().Format("20060102T150405.000Z"))
	err := os.Rename(path, aside)
	switch {
	case errors.Is(err, os.ErrNotExist):
		aside = ""
	case err != nil:
		return "", err
	}
	if err := os.Remove(sidePath(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return aside, err
	}
	return aside, syncDir(filepath.Dir(path))
}

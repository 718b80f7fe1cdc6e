package forecast

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/castctl/castctl/wire"
)

// create makes a new ledger at path unless one appears there meanwhile. It is
// made whole under another name and linked, so that nobody ever sees half of it
// and an empty file at path is always somebody's accident.
func create(path string) error {
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("there is no folder %s", dir)
	}
	draft := path + "." + wire.NewInstanceID() + ".new"
	defer os.Remove(draft)
	db, err := bbolt.Open(draft, 0o600, options(false, func(string, int, os.FileMode) (*os.File, error) {
		return os.OpenFile(draft, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}))
	if err != nil {
		return cause(err)
	}
	if err := errors.Join(db.Update(layOut), db.Close()); err != nil {
		return err
	}
	if err := os.Link(draft, path); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("it cannot be put in place: %w", cause(err))
	}
	return syncFolder(dir)
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// cause takes the path off an error that will be told with it.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// usable reports whether path is a file that can be written.
func usable(path string) error {
	if info, err := os.Stat(path); err != nil {
		return cause(err)
	} else if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return cause(err)
	}
	return f.Close()
}

// hold opens the ledger's file and waits for its lock.
func (l *Ledger) hold(ctx context.Context, kind int) (*os.File, error) {
	flag := os.O_RDONLY
	if kind == unix.LOCK_EX {
		flag = os.O_RDWR
	}
	until := time.Now().Add(l.wait)
	for {
		f, err := os.OpenFile(l.path, flag, 0)
		if err != nil {
			return nil, cause(err)
		}
		same, err := l.lock(ctx, f, kind, until)
		if err == nil && same {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// lock takes the lock of f and judges the file under it. same is false if
// another file has come to the path meanwhile: what would be committed to this
// one would be lost.
func (l *Ledger) lock(ctx context.Context, f *os.File, kind int, until time.Time) (same bool, err error) {
	if err := flock(ctx, f, kind, until); err != nil {
		return false, err
	}
	held, err := f.Stat()
	if err != nil {
		return false, cause(err)
	}
	named, err := os.Stat(l.path)
	if err != nil {
		return false, cause(err)
	}
	if !os.SameFile(held, named) {
		return false, nil
	}
	if err := l.knownDamage(held); err != nil {
		return false, err
	}
	return true, inspect(f)
}

// pollEvery is short because whoever is busy with the ledger gives the lock back
// for some microseconds only between two commands: bbolt's own wait, which looks
// every 50 ms, would starve.
const pollEvery = 2 * time.Millisecond

func flock(ctx context.Context, f *os.File, kind int, until time.Time) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), kind|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("its lock cannot be taken: %w", err)
		case !time.Now().Before(until):
			return ErrLocked
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("this process is ending")
		}
	}
}

// What bbolt writes at the head of a page, in a machine's own byte order, which
// is little-endian on all that this program is built for (bbolt's
// internal/common/page.go and meta.go).
const (
	pageHeader   = 16 // id uint64, flags uint16, count uint16, overflow uint32
	metaLen      = 64
	metaSum      = 56 // the checksum is over what stands before it
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	freelistFlag = 0x10
	noFreelist   = 1<<64 - 1
)

// meta is what a bbolt file says about itself.
type meta struct {
	pageSize, freelist, pages, txid uint64
}

// inspect judges a bbolt file before it is mapped: its meta pages, whether it is
// as long as they say, and the list of free pages, which bbolt reads on trust.
// The file must be locked: without it pages change under the reader.
func inspect(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return cause(err)
	}
	if info.Size() == 0 {
		return ErrEmpty
	}
	m, err := readMetas(f)
	if err != nil {
		return err
	}
	whole := uint64(info.Size()) / m.pageSize
	if m.pages > whole {
		return fmt.Errorf("%w (%d bytes are left of %d)", ErrDamaged, info.Size(), m.pages*m.pageSize)
	}
	if m.freelist == noFreelist {
		return nil
	}
	return m.inspectFreelist(f)
}

// readMetas returns the newer of the valid meta pages. Where the second stands
// depends on the page size, which may be known from the first.
func readMetas(f *os.File) (meta, error) {
	if m, ok := readMeta(f, 0); ok {
		if second, ok := readMeta(f, int64(m.pageSize)); ok && second.txid > m.txid {
			m = second
		}
		return m, nil
	}
	for at := int64(1 << 10); at <= 1<<24; at *= 2 {
		if m, ok := readMeta(f, at); ok && m.pageSize == uint64(at) {
			return m, nil
		}
	}
	var magic [4]byte
	if _, err := f.ReadAt(magic[:], pageHeader); err == nil && binary.LittleEndian.Uint32(magic[:]) == boltMagic {
		return meta{}, ErrDamaged
	}
	return meta{}, ErrForeign
}

func readMeta(f *os.File, at int64) (meta, bool) {
	var b [metaLen]byte
	if _, err := f.ReadAt(b[:], at+pageHeader); err != nil {
		return meta{}, false
	}
	le := binary.LittleEndian
	sum := fnv.New64a()
	sum.Write(b[:metaSum])
	m := meta{pageSize: uint64(le.Uint32(b[8:])), freelist: le.Uint64(b[32:]), pages: le.Uint64(b[40:]), txid: le.Uint64(b[48:])}
	valid := le.Uint32(b[0:]) == boltMagic && le.Uint32(b[4:]) == boltVersion && le.Uint64(b[metaSum:]) == sum.Sum64()
	return m, valid && m.pageSize >= 1<<9 && m.pageSize <= 1<<24 && m.pages < 1<<40
}

// inspectFreelist checks that the list of free pages is no longer than its
// pages: bbolt makes room for as many as it claims.
func (m meta) inspectFreelist(f *os.File) error {
	var b [pageHeader + 8]byte
	if m.freelist >= m.pages {
		return ErrDamaged
	}
	if _, err := f.ReadAt(b[:], int64(m.freelist*m.pageSize)); err != nil {
		return cause(err)
	}
	le := binary.LittleEndian
	id, flags, count, overflow := le.Uint64(b[0:]), le.Uint16(b[8:]), uint64(le.Uint16(b[10:])), uint64(le.Uint32(b[12:]))
	if count == 0xFFFF {
		count = le.Uint64(b[pageHeader:]) // more than the header has room for
	}
	room := (overflow + 1) * m.pageSize / 8
	if id != m.freelist || flags != freelistFlag || m.freelist+overflow >= m.pages || count > room {
		return fmt.Errorf("%w (its list of free pages is not one)", ErrDamaged)
	}
	return nil
}

package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/castctl/castctl/internal/proc"
)

// ErrHeld says that another process holds the lock.
var ErrHeld = errors.New("the lock is held")

// Lock is a kernel lock on a file, held until it is released or every process
// that inherited its descriptor is dead. The kernel drops it, nobody has to.
type Lock struct {
	file  *os.File
	path  string
	inode uint64
}

// Acquire takes the lock, or returns an error matching [ErrHeld] at once.
func Acquire(path string) (*Lock, error) {
	for {
		l, err := openLock(path)
		if err != nil {
			return nil, err
		}
		if err := control(l.file, tryLock); err != nil {
			l.file.Close()
			if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
				return nil, fmt.Errorf("%w: %s", ErrHeld, path)
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if l.Current() {
			return l, nil
		}
		l.Release() // the file was replaced between open and lock
	}
}

// Inherit takes over a lock that the parent process acquired at path and handed
// down as an open file. The descriptor is closed in children from then on.
func Inherit(f *os.File, path string) (*Lock, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := control(f, func(fd int) error { syscall.CloseOnExec(fd); return nil }); err != nil {
		return nil, err
	}
	l := &Lock{file: f, path: path, inode: inode(st)}
	state, err := Probe(path)
	switch {
	case err != nil:
		return nil, err
	case state.Inode != l.inode || !state.Held:
		return nil, fmt.Errorf("the lock that was handed down is not %s", path)
	}
	return l, nil
}

// AcquireWait waits for the lock. The wait itself cannot be interrupted: when
// the context ends first, it goes on in the background and the lock, once got,
// is released.
func AcquireWait(ctx context.Context, path string) (*Lock, error) {
	if l, err := Acquire(path); !errors.Is(err, ErrHeld) {
		return l, err
	}
	type result struct {
		lock *Lock
		err  error
	}
	got := make(chan result, 1)
	go func() {
		l, err := waitFor(path)
		got <- result{l, err}
	}()
	select {
	case r := <-got:
		return r.lock, r.err
	case <-ctx.Done():
		go func() {
			if r := <-got; r.lock != nil {
				r.lock.Release()
			}
		}()
		return nil, ctx.Err()
	}
}

func waitFor(path string) (*Lock, error) {
	for {
		l, err := openLock(path)
		if err != nil {
			return nil, err
		}
		err = control(l.file, waitLock)
		if err == nil && l.Current() {
			return l, nil
		}
		l.Release()
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

func openLock(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if st.Mode().Perm() != 0o600 {
		if err := f.Chmod(0o600); err != nil {
			f.Close()
			return nil, err
		}
	}
	return &Lock{file: f, path: path, inode: inode(st)}, nil
}

// control runs fn on the descriptor without making it blocking, as File.Fd
// would.
func control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// Inode is the lock file's inode, which the holder's record names.
func (l *Lock) Inode() uint64 { return l.inode }

// Current reports whether the lock's file still stands at its path. If not, the
// lock excludes nobody any more: the home was removed or replaced.
func (l *Lock) Current() bool {
	now, err := inodeOf(l.path)
	return err == nil && now == l.inode
}

// File is the descriptor, for a child to inherit: the lock then lasts as long
// as either lives.
func (l *Lock) File() *os.File { return l.file }

// Release gives the lock up, unless a child still has the descriptor.
func (l *Lock) Release() error { return l.file.Close() }

// Mark returns the proof of the caller's life to publish in a record: its
// identity and this lock.
func (l *Lock) Mark() (Mark, error) {
	id, err := proc.Self()
	if err != nil {
		return Mark{}, err
	}
	return Mark{Identity: id, LockInode: l.inode}, nil
}

// LockState is what a look at a lock shows.
type LockState struct {
	Exists bool
	Held   bool
	Inode  uint64
}

// Probe looks at a lock without taking it, so that probers never disturb each
// other or a process that wants it.
func Probe(path string) (LockState, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return LockState{}, nil
	}
	if err != nil {
		return LockState{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return LockState{}, err
	}
	s := LockState{Exists: true, Inode: inode(st)}
	err = control(f, func(fd int) error {
		held, err := probeLock(fd)
		s.Held = held
		return err
	})
	if err != nil {
		return LockState{}, fmt.Errorf("probe %s: %w", path, err)
	}
	return s, nil
}

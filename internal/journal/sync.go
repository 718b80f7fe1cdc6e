package journal

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"
)

// syncer makes segments durable in the background, at most every syncEvery,
// so that no event waits for the disk. What comes after a pause is synced at
// once: a process that wakes a second time for it costs more than the sync. Its
// goroutine lives only while something is dirty: an idle host has no timer.
type syncer struct {
	dir string

	mu      sync.Mutex           // guards the fields below
	sync    func(*os.File) error // datasync
	files   []*os.File           // written, not yet synced
	retired []*os.File           // finished segments, closed once synced
	made    int                  // segments so far
	shown   int                  // of these, how many the folder shows for sure
	running bool
	last    time.Time     // of the sync before; of the opening at first
	quit    chan struct{} // closed to end the goroutine at once; made with it
	stopped bool
	idle    sync.WaitGroup
}

// dirty notes that a segment was written.
func (s *syncer) dirty(f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.files); n == 0 || s.files[n-1] != f {
		s.files = append(s.files, f)
	}
	s.wake()
}

// begun notes that a segment was made: a power cut must not take it out of its
// folder.
func (s *syncer) begun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	s.wake()
}

// retire hands over a finished segment.
func (s *syncer) retire(f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = append(s.retired, f)
	s.wake()
}

func (s *syncer) wake() {
	if s.running || s.stopped {
		return
	}
	s.running = true
	if s.quit == nil {
		s.quit = make(chan struct{})
	}
	quit := s.quit
	s.idle.Go(func() { s.run(quit) })
}

func (s *syncer) run(quit <-chan struct{}) {
	for {
		s.mu.Lock()
		wait := time.Until(s.last.Add(syncEvery))
		s.mu.Unlock()
		select {
		case <-quit:
			return
		case <-time.After(max(wait, 0)):
		}
		s.mu.Lock()
		files := s.files
		s.files, s.last = nil, time.Now()
		s.mu.Unlock()
		s.flush(files...)
		s.mu.Lock()
		if len(s.files)+len(s.retired) == 0 && s.shown == s.made {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// now syncs at once whatever is not durable up to and including f.
func (s *syncer) now(f *os.File) error { return s.flush(f) }

// flush syncs what was retired, then the files, then the folder if segments
// were made. Several may flush at once: what another one is still syncing is
// synced again, so that nobody returns before it is durable.
func (s *syncer) flush(files ...*os.File) error {
	s.mu.Lock()
	retired := slices.Clone(s.retired)
	made, folder := s.made, s.shown < s.made
	sync := s.sync
	s.mu.Unlock()
	var errs []error
	for _, f := range append(retired, files...) {
		// A segment that was closed meanwhile was synced before that.
		if err := sync(f); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if folder {
		if err := syncDir(s.dir, sync); err != nil {
			errs = append(errs, err)
			made = 0
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = max(s.shown, made)
	for _, f := range retired {
		if i := slices.Index(s.retired, f); i >= 0 {
			s.retired = slices.Delete(s.retired, i, i+1)
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// settled reports whether a finished segment is durable. Of those found at the
// opening, the old ones are (nil).
func (s *syncer) settled(f *os.File) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.Contains(s.retired, f)
}

// syncDir makes a folder's list of files durable.
func syncDir(dir string, sync func(*os.File) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return sync(d)
}

// close syncs and closes everything, f last.
func (s *syncer) close(f *os.File) error {
	s.mu.Lock()
	s.stopped = true
	s.files = nil
	if s.quit != nil {
		close(s.quit)
	}
	s.mu.Unlock()
	s.idle.Wait()
	return errors.Join(s.flush(f), f.Close())
}

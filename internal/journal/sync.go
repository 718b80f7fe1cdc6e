package journal

import (
	"errors"
	"os"
	"sync"
	"time"
)

// syncer makes segments durable in the background, at most every syncEvery,
// so that no event waits for the disk. Its goroutine lives only while something
// is dirty: an idle host has no timer.
type syncer struct {
	mu      sync.Mutex // guards the fields below
	files   []*os.File // written, not yet synced
	retired []*os.File // finished segments, closed once synced
	running bool
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
		select {
		case <-quit:
			return
		case <-time.After(syncEvery):
		}
		s.mu.Lock()
		files, retired := s.files, s.retired
		s.files, s.retired = nil, nil
		if len(files)+len(retired) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		flush(files, retired)
	}
}

func flush(files, retired []*os.File) error {
	var errs []error
	for _, f := range files {
		// A retired segment that was closed meanwhile was synced before that.
		if err := datasync(f); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, f := range retired {
		errs = append(errs, datasync(f), f.Close())
	}
	return errors.Join(errs...)
}

// now syncs at once whatever is not durable up to and including f.
func (s *syncer) now(f *os.File) error {
	s.mu.Lock()
	retired := s.retired
	s.retired = nil
	s.mu.Unlock()
	return flush([]*os.File{f}, retired)
}

// close syncs and closes everything, f last.
func (s *syncer) close(f *os.File) error {
	s.mu.Lock()
	s.stopped = true
	retired := s.retired
	s.files, s.retired = nil, nil
	if s.quit != nil {
		close(s.quit)
	}
	s.mu.Unlock()
	s.idle.Wait()
	return flush(nil, append(retired, f))
}

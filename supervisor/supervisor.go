package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// Config is what a supervisor is started with.
type Config struct {
	Home       lease.Home
	Version    string
	BuildID    string
	Foreground bool // somebody watches it: it never leaves by itself
	NoResume   bool // do not start what ran before the last boot
	// JournalsMax is how many bytes all journals may take together; 0 is
	// [DefaultJournalsMax].
	JournalsMax int64
	Log         *slog.Logger
}

// ErrRunning says that another supervisor holds the daemon lock.
var ErrRunning = errors.New("a supervisor runs already")

// ErrReplaced says that the home was removed or replaced under the supervisor.
var ErrReplaced = errors.New("the home was removed or replaced")

const (
	sweepEvery = 30 * time.Second
	idleLeave  = 30 * time.Minute
)

// Supervisor is one running supervisor. Its fields belong to the goroutine of
// Run, except where a type guards itself.
type Supervisor struct {
	cfg     Config
	tenure  tenure
	db      *registry.DB
	fleet   fleet
	batch   batch
	record  recordKeeper
	views   views
	look    looker
	reaper  reaper
	holds   lease.Holds // clients, for the idle end
	files   fileWork
	opening opening

	inbox   chan func()
	done    chan struct{} // closed when Run has returned
	leaving atomic.Pointer[string]
}

// tenure is the claim on the home: this start's incarnation and the lock.
type tenure struct {
	id   string // called instance_id in the record
	lock *lease.Lock
	mark lease.Mark
}

// opening is what the start left to tell.
type opening struct {
	once    sync.Once
	ready   chan struct{} // closed when the first sweep is done
	rebuilt string        // what was done about a damaged registry
}

// Open takes the home over: the daemon lock, then the registry, which is
// rebuilt from the instance folders if it is damaged. Nothing is served or
// published yet. It returns an error matching [ErrRunning] if another
// supervisor lives.
func Open(ctx context.Context, cfg Config) (*Supervisor, error) {
	lock, err := lease.Acquire(cfg.Home.DaemonLock())
	if errors.Is(err, lease.ErrHeld) {
		return nil, fmt.Errorf("%w: %s", ErrRunning, holder(cfg.Home))
	}
	if err != nil {
		return nil, err
	}
	s := &Supervisor{
		cfg: cfg, tenure: tenure{id: wire.NewID(), lock: lock}, opening: opening{ready: make(chan struct{})},
		inbox: make(chan func(), 64), done: make(chan struct{}),
	}
	s.fleet.init()
	s.views.init()
	if err := s.open(ctx); err != nil {
		lock.Release()
		return nil, err
	}
	return s, nil
}

func (s *Supervisor) open(ctx context.Context) error {
	var err error
	if s.tenure.mark, err = s.tenure.lock.Mark(); err != nil {
		return err
	}
	if err := proc.BecomeSubreaper(); err != nil {
		return err
	}
	for _, dir := range []string{s.cfg.Home.Instances(), s.cfg.Home.LogDir()} {
		if err := lease.MakeDir(dir); err != nil {
			return err
		}
	}
	lease.SweepTemp(s.cfg.Home.Dir())
	if err := s.openRegistry(ctx); err != nil {
		return err
	}
	return s.load()
}

// holder says who holds the daemon lock, for the message to a person.
func holder(home lease.Home) string {
	rec, err := home.ReadServer()
	if err != nil {
		return "process unknown, it has not published itself yet"
	}
	return fmt.Sprintf("process %d, started %s", rec.PID, rec.StartedAt.Format(time.RFC3339))
}

// ID is this start's incarnation.
func (s *Supervisor) ID() string { return s.tenure.id }

// Home is the home that is supervised.
func (s *Supervisor) Home() lease.Home { return s.cfg.Home }

// post hands a step to the owner. It reports false when the owner has ended.
func (s *Supervisor) post(step func()) bool {
	select {
	case s.inbox <- step:
		return true
	case <-s.done:
		return false
	}
}

// Run owns the fleet until the context ends or the supervisor has to leave. It
// leaves every agent running.
func (s *Supervisor) Run(ctx context.Context) error {
	defer close(s.done)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGHUP, syscall.SIGPIPE)
	defer signal.Stop(signals)
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	s.adopt()
	for {
		select {
		case step := <-s.inbox:
			step()
			s.drain()
		case <-sweep.C:
			s.sweep(nil)
		case sig := <-signals:
			if sig == syscall.SIGCHLD {
				s.collectSoon()
			}
		case <-ctx.Done():
			return s.close()
		}
		s.commit()
		s.publishViews()
		s.views.release()
		if why := s.leaving.Load(); why != nil {
			s.cfg.Log.Info("leaving", "why", *why)
			return s.close()
		}
	}
}

// drain takes the steps that have gathered, so that their mutations share one
// commit.
func (s *Supervisor) drain() {
	for range cap(s.inbox) {
		select {
		case step := <-s.inbox:
			step()
		default:
			return
		}
	}
}

// leave ends the supervisor after the current step.
func (s *Supervisor) leave(why string) { s.leaving.CompareAndSwap(nil, &why) }

// close gives everything up in order. A home that was replaced is not ours any
// more and is left as it is.
func (s *Supervisor) close() error {
	s.batch.refuse()
	for _, in := range s.fleet.byID {
		in.disconnect()
	}
	for _, o := range s.fleet.orphans {
		o.link.close()
	}
	current := s.tenure.lock.Current()
	if current {
		if err := s.cfg.Home.RemoveServer(s.tenure.id); err != nil {
			s.cfg.Log.Error("the record could not be removed", "err", err)
		}
	}
	s.files.wait()
	err := s.db.Close()
	s.tenure.lock.Release()
	if !current {
		return ErrReplaced
	}
	return err
}

// Ready is closed when the fleet has been looked over once after the start.
func (s *Supervisor) Ready() <-chan struct{} { return s.opening.ready }

// Done is closed when the supervisor has ended.
func (s *Supervisor) Done() <-chan struct{} { return s.done }

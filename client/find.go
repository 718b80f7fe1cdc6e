package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// Config says which supervisor is meant and what to do if none lives.
type Config struct {
	Home lease.Home
	// Start starts a supervisor and returns when it has published itself. Nil
	// means that none is started.
	Start func(ctx context.Context, home lease.Home) error
	// Proof is how long a supervisor that was found may take to prove itself.
	// Zero is 3 s.
	Proof time.Duration
}

func (c Config) proof() time.Duration {
	if c.Proof == 0 {
		return 3 * time.Second
	}
	return c.Proof
}

// startBound is how long a starting supervisor may take to publish itself.
const startBound = 10 * time.Second

// Mismatch says that a process of another version is in charge. It was not
// touched.
type Mismatch struct {
	Theirs  lease.Versions
	Version string
}

func (e *Mismatch) Error() string {
	return fmt.Sprintf("the supervisor (version %s) speaks protocol %d to %d, this castctl speaks %d",
		e.Version, e.Theirs.Min, e.Theirs.Max, wire.Protocol)
}

// Hint is the one command that fixes it, and that works across versions.
func (e *Mismatch) Hint() string {
	return "castctl down   ends the supervisor and leaves the agents running; the next command starts this version's"
}

// ErrInside refuses to start a supervisor from within one of its own agents: it
// would be a part of that agent's tree, and end with it.
var ErrInside = errors.New("no supervisor runs, and none is started from inside one of its own instances")

// Connect finds the home's supervisor, starts one if none lives and the
// configuration says how, and connects to it. One that leaves just then is not
// taken for the one that is meant: Connect looks again.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	for looks := 1; ; looks++ {
		server, err := cfg.Home.Living()
		if errors.Is(err, lease.ErrNoServer) && cfg.Start != nil {
			server, err = start(ctx, cfg)
		}
		if err != nil {
			return nil, err
		}
		if server.Protocol.Min > wire.Protocol || server.Protocol.Max < wire.Protocol {
			return nil, &Mismatch{Theirs: server.Protocol, Version: server.Version}
		}
		c, err := dial(ctx, server, cfg.proof())
		if err == nil || looks == maxLooks || ctx.Err() != nil || !replaced(cfg.Home, server) {
			return c, err
		}
	}
}

// maxLooks is how many supervisors may leave while they are connected to.
const maxLooks = 3

// replaced reports whether a supervisor's record is not its own any more.
func replaced(home lease.Home, server lease.Server) bool {
	now, err := home.Living()
	return errors.Is(err, lease.ErrNoServer) || err == nil && now.InstanceID != server.InstanceID
}

// start starts a supervisor, alone: whoever comes second waits for the first
// one's and finds it.
func start(ctx context.Context, cfg Config) (lease.Server, error) {
	if inside(cfg.Home) {
		return lease.Server{}, ErrInside
	}
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	lock, err := lease.AcquireWait(ctx, cfg.Home.StartLock())
	if err != nil {
		return lease.Server{}, fmt.Errorf("another command is starting the supervisor and does not finish: %w", err)
	}
	defer lock.Release()
	if server, err := cfg.Home.Living(); !errors.Is(err, lease.ErrNoServer) {
		return server, err
	}
	if err := awaitRecord(ctx, cfg); err != nil {
		return lease.Server{}, err
	}
	return cfg.Home.Living()
}

// awaitRecord starts the supervisor; if one lives already that has not
// published itself yet, it waits for that one.
func awaitRecord(ctx context.Context, cfg Config) error {
	state, err := lease.Probe(cfg.Home.DaemonLock())
	if err != nil {
		return err
	}
	if !state.Held {
		return cfg.Start(ctx, cfg.Home)
	}
	changed, err := lease.WatchFile(ctx, cfg.Home.ServerFile())
	if err != nil {
		return err
	}
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := cfg.Home.Living(); !errors.Is(err, lease.ErrNoServer) {
			return err
		}
		if state, err := lease.Probe(cfg.Home.DaemonLock()); err == nil && !state.Held {
			return cfg.Start(ctx, cfg.Home)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("a supervisor holds %s but does not publish itself", cfg.Home.DaemonLock())
		case <-changed:
		case <-look.C:
		}
	}
}

// inside reports whether the caller runs in one of this home's own instances.
func inside(home lease.Home) bool {
	id := os.Getenv("CAST_INSTANCE")
	if id == "" {
		return false
	}
	_, err := os.Lstat(home.Instance(id).Path())
	return err == nil
}

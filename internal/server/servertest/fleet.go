package servertest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/supervisor"
	"github.com/castctl/castctl/updater"
	"github.com/castctl/castctl/wire"
)

// Patience bounds what must happen, against a test that hangs. Nothing is
// measured with it.
const Patience = 60 * time.Second

// Fleet is a running, published supervisor on a home of its own.
type Fleet struct {
	Home   lease.Home
	Sup    *supervisor.Supervisor
	Server *server.Server
	Record lease.Server
	Log    *Log

	t     testing.TB
	end   context.CancelFunc
	ended chan error
	over  bool
}

// Open starts a supervisor. At the end of the test its instances are stopped, it
// is ended, and what is left of either fails the test.
func Open(t testing.TB, limits server.Limits) *Fleet {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	home, err := lease.OpenHome(filepath.Join(t.TempDir(), "h"))
	if err != nil {
		t.Fatal(err)
	}
	return OpenAt(t, home, server.Config{Limits: limits})
}

// OpenAt starts a supervisor on a home that the caller has made.
func OpenAt(t testing.TB, home lease.Home, cfg server.Config) *Fleet {
	t.Helper()
	f := &Fleet{Home: home, Log: new(Log), t: t, ended: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(f.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	f.Sup, err = supervisor.Open(t.Context(), supervisor.Config{
		Home: home, Version: updater.Version, BuildID: "test", Foreground: true, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.end = cancel
	go func() { f.ended <- f.Sup.Run(ctx) }()
	t.Cleanup(f.close)
	cfg.Log = log
	if f.Server, err = server.Listen(f.Sup, cfg); err != nil {
		t.Fatal(err)
	}
	<-f.Sup.Ready()
	f.Record = f.Server.Record()
	f.Record.Protocol = lease.Versions{Min: wire.Protocol, Max: wire.Protocol}
	f.Record.Version, f.Record.StartedAt = updater.Version, wire.Now()
	if err := f.Sup.Publish(ctx, f.Record); err != nil {
		t.Fatal(err)
	}
	if f.Record, err = home.ReadServer(); err != nil {
		t.Fatal(err)
	}
	f.Eventually("a first view of the fleet", func() bool { return f.Sup.Snapshot() != nil })
	return f
}

// close stops the instances and ends the supervisor, if that has not happened.
func (f *Fleet) close() {
	if f.over {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	req := wire.Request{ID: wire.NewID(), Command: wire.Apply{Instances: []wire.Declared{}, Prune: true, Wait: wire.Wait{WaitMS: Patience.Milliseconds()}}}
	if _, err := f.Sup.Call(ctx, req); err != nil {
		f.t.Errorf("the instances could not be stopped: %v", err)
	}
	f.End()
	f.Eventually("all processes of the home to end", func() bool { return len(Commands(f.Home)) == 0 })
	f.noRaces()
}

// noRaces looks for what the race detector found in the hosts.
func (f *Fleet) noRaces() {
	ids, _ := f.Home.InstanceIDs()
	for _, id := range ids {
		log, _ := os.ReadFile(f.Home.Instance(id).HostLog())
		if strings.Contains(string(log), "DATA RACE") {
			f.t.Errorf("a race in a host:\n%s", log)
		}
	}
}

// End ends the supervisor and leaves the agents, as a signal does.
func (f *Fleet) End() {
	f.over = true
	f.end()
	if err := <-f.ended; err != nil {
		f.t.Errorf("the supervisor ended with: %v", err)
	}
	if f.Server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	f.Server.Close(ctx)
}

// Must carries a command out and returns its result.
func Must[T any](f *Fleet, c wire.Command) T {
	f.t.Helper()
	got, err := f.Sup.Call(f.t.Context(), wire.Request{ID: wire.NewID(), Command: c})
	if err != nil {
		f.t.Fatalf("%s: %v", c.Op(), err)
	}
	result, ok := got.(T)
	if !ok {
		f.t.Fatalf("%s answered with a %T", c.Op(), got)
	}
	return result
}

// Start starts an instance that is not restarted, and waits until it runs.
func (f *Fleet) Start(name string, argv ...string) wire.Instance {
	f.t.Helper()
	return f.StartSpec(name, wire.Spec{Argv: argv})
}

// StartSpec starts an instance. Where the spec says nothing, it runs in the root
// directory and is never restarted.
func (f *Fleet) StartSpec(name string, spec wire.Spec) wire.Instance {
	f.t.Helper()
	if spec.Cwd == "" {
		spec.Cwd = "/"
	}
	if spec.Restart == nil {
		spec.Restart = &wire.Restart{Policy: wire.Never}
	}
	env := map[string]string{"PATH": os.Getenv("PATH")}
	return Must[wire.InstanceResult](f, wire.Start{Name: name, Spec: &spec, Env: env}).Instance
}

// Get is an instance as the supervisor knows it.
func (f *Fleet) Get(name string) wire.GetResult {
	f.t.Helper()
	return Must[wire.GetResult](f, wire.Get{Instance: name})
}

// Await waits until an instance is in a state.
func (f *Fleet) Await(name string, state wire.State) wire.Instance {
	f.t.Helper()
	changed, stop := f.Sup.Watch()
	defer stop()
	late := time.After(Patience)
	for {
		in := f.Get(name).Instance
		if in.State == state && (!state.Over() || in.HostPID == nil) {
			return in
		}
		select {
		case <-changed:
		case <-late:
			f.t.Fatalf("%s is %s and does not become %s", name, in.State, state)
		}
	}
}

// Past starts an instance whose agent says n lines and ends, and returns the
// position of its last event. Nothing is added to its journal any more, and
// nobody who follows it changes that.
func (f *Fleet) Past(name string, n, length int) (wire.Instance, wire.Pos) {
	f.t.Helper()
	return f.PastSpec(name, wire.Spec{Argv: Speech(n, length)})
}

// PastSpec is Past for a spec whose agent ends.
func (f *Fleet) PastSpec(name string, spec wire.Spec) (wire.Instance, wire.Pos) {
	f.t.Helper()
	f.StartSpec(name, spec)
	in := f.Await(name, wire.Finished)
	return in, f.AwaitEvents(in.ID, 1)
}

// AwaitEvents waits until an instance's journal holds at least n events, and
// returns the position of its last.
func (f *Fleet) AwaitEvents(id string, n uint64) wire.Pos {
	f.t.Helper()
	var b journal.Bounds
	f.Eventually("events in the journal", func() bool {
		var err error
		b, err = journal.Find(f.Home.Instance(id).Journal())
		return err == nil && b.Last.Seq >= n
	})
	return b.Last
}

// Eventually looks again and again until something has come true. It is for
// what tells nobody that it happened.
func (f *Fleet) Eventually(what string, true func() bool) { Eventually(f.t, what, true) }

// Eventually looks again and again until something has come true.
func Eventually(t testing.TB, what string, true func() bool) {
	t.Helper()
	late := time.After(Patience)
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !true() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Commands lists the processes of a home, each with its number and command line:
// hosts are found by that line and agents by the mark in their environment. It is
// empty where there is no /proc.
func Commands(home lease.Home) []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		dir := filepath.Join("/proc", e.Name())
		cmd, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(cmd) == 0 || e.Name() == "self" || e.Name() == "thread-self" {
			continue
		}
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if strings.Contains(string(cmd), "host\x00"+home.Dir()+"\x00") || strings.Contains(string(env), "CAST_HOME="+home.Dir()+"\x00") {
			out = append(out, e.Name()+": "+strings.ReplaceAll(string(cmd), "\x00", " "))
		}
	}
	return out
}

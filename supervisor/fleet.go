package supervisor

import (
	"time"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// fleet is all instances and all orphans.
type fleet struct {
	byID    map[string]*instance
	byName  map[string]string
	orphans map[string]*orphan // by id and incarnation
}

func (f *fleet) init() {
	f.byID = map[string]*instance{}
	f.byName = map[string]string{}
	f.orphans = map[string]*orphan{}
}

// find looks an instance up by name or id.
func (f *fleet) find(ref string) *instance {
	if id, ok := f.byName[ref]; ok {
		return f.byID[id]
	}
	return f.byID[ref]
}

func (f *fleet) put(in *instance) {
	f.byID[in.rec.ID] = in
	f.byName[in.rec.Name] = in.rec.ID
}

func (f *fleet) drop(in *instance) {
	delete(f.byID, in.rec.ID)
	if f.byName[in.rec.Name] == in.rec.ID {
		delete(f.byName, in.rec.Name)
	}
}

// instance is what the supervisor knows of one: its record, which is durable,
// the reality, which is looked at, and what is under way between the two.
type instance struct {
	rec registry.Instance
	reality
	underWay

	waiters []*waiter
	tails   tails // who follows its journal
}

// reality is what is known of an instance's host and agent.
type reality struct {
	host   hostState
	why    string // of an unknown, foreign or lost host
	link   *link
	record *lease.Host // of the host, once it has published
	status *wire.HostStatus
	exit   *host.ExitFile // of the last run, from the file
	usage  usage
	counts int // restarts, as last heard
	// watched is the incarnation whose end the kernel will tell of, if it is no
	// child of ours.
	watched string
	dead    bool // the kernel reported the host's end; its last words are still read
}

// underWay is what the supervisor is doing about an instance.
type underWay struct {
	spawned   time.Time     // when the host was last started
	restarts  host.Restarts // of lost hosts
	automatic bool          // the next host takes the place of a lost one
	timer     *time.Timer   // until the next spawn
	judging   bool          // a look at its host is under way
	patience  time.Duration // until the next look at a host that cannot be judged
	expected  bool          // a host in the foreground may start: its files stand
	follow    bool          // another host follows the one that was told to end
	asked     asked
	stopIn    time.Duration  // bound of the next stop's ladder; 0 is the spec's
	stopDone  *wire.StopDone // how the last stop went
	stale     bool           // its spec changed in a way that only a start carries out
}

// asked is what a host was told already, so that it is told once.
type asked struct{ stop, restart, tail bool }

// hostState is what is known of an instance's host.
type hostState string

const (
	noHost       hostState = ""
	hostSpawning hostState = "spawning" // ours is on its way, or a person's in the foreground
	hostAlive    hostState = "alive"
	hostUnknown  hostState = "unknown"
	hostForeign  hostState = "foreign"
	hostLost     hostState = "lost" // dead; what it left is being ended
)

// facts is all that an instance's state depends on.
type facts struct {
	host    hostState
	told    wire.State // what the host last said; empty before it said anything
	fresh   bool       // this supervisor spawned the host
	wanted  wire.Wanted
	over    wire.State // finished or failed: it ended by itself
	waiting bool       // for the next spawn
}

// next is the state as a function of the facts. The order of the cases is the
// precedence.
func next(f facts) wire.State {
	switch {
	case f.host == hostForeign:
		return wire.Foreign
	case f.host == hostUnknown:
		return wire.Unknown
	case f.host == hostLost:
		return wire.Lost
	case f.host == hostSpawning || f.host == hostAlive && f.told == "" && f.fresh:
		return wire.Starting
	case f.host == hostAlive && f.told == "":
		return wire.Unknown
	case f.host == hostAlive && f.told == wire.Stopped && f.wanted == wire.WantRunning:
		return wire.Stopping // it leaves, although nobody wants that
	case f.host == hostAlive:
		return f.told
	case f.over != "":
		return f.over
	case f.wanted == wire.WantStopped:
		return wire.Stopped
	case f.waiting:
		return wire.BackingUp
	default:
		return wire.Starting
	}
}

func (in *instance) facts() facts {
	f := facts{host: in.host, wanted: in.rec.Wanted, over: in.rec.Over, fresh: !in.spawned.IsZero(), waiting: in.timer != nil}
	if in.status != nil {
		f.told = in.status.State
	}
	return f
}

func (in *instance) state() wire.State { return next(in.facts()) }

// living reports whether a host lives, or may.
func (in *instance) living() bool { return in.host != noHost }

// hosted reports whether a host lives that knows the spec, or is on its way with
// the spec as it was.
func (in *instance) hosted() bool { return in.host == hostAlive || in.host == hostSpawning }

func (in *instance) ref() *wire.Ref { return &wire.Ref{ID: in.rec.ID, Name: in.rec.Name} }

// byHand forgets the failures so far: a person wants it to run now.
func (in *instance) byHand() {
	in.restarts.Clear()
	in.automatic = false
	in.stopTimer()
}

func (in *instance) stopTimer() {
	if in.timer != nil {
		in.timer.Stop()
		in.timer = nil
	}
}

func (in *instance) disconnect() {
	if in.link != nil {
		in.link.close()
	}
}

// hostPID is the host's process, if one lives.
func (in *instance) hostPID() *int {
	if in.record == nil || !in.living() {
		return nil
	}
	return &in.record.PID
}

// agent is the agent's recorded identity, if one lived at the last look.
func (in *instance) agent() *proc.Identity {
	if in.record == nil {
		return nil
	}
	return in.record.Agent
}

// orphan is a living host that the registry does not name.
type orphan struct {
	record lease.Host
	link   *link
	status *wire.HostStatus
	since  time.Time
	usage  usage
}

func (o *orphan) key() string { return orphanKey(o.record.ID, o.record.Incarnation) }

func orphanKey(id, incarnation string) string { return id + "/" + incarnation }

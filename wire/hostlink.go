package wire

import "time"

// The protocol between supervisor and host, on the host's unix socket: lines of
// JSON. The host speaks first, with a [HostHello]. Requests and responses are
// those of the control protocol, with the operations of [HostOps]. A watching
// connection also gets [HostFrame] lines.

// HostHello is the first line on a host's socket.
type HostHello struct {
	Type        string    `json:"type"` // hello
	Protocol    Versions  `json:"protocol"`
	Version     string    `json:"version"`
	BuildID     string    `json:"build_id"`
	Instance    Ref       `json:"instance"`
	Incarnation string    `json:"incarnation"`
	Registry    string    `json:"registry"` // uuid of the registry that named the host
	StartedAt   time.Time `json:"started_at"`
	Foreground  bool      `json:"foreground"`
	Methods     []string  `json:"methods"`
	At          string    `json:"at"` // position of the last event
}

// HostFrame is a line that the host sends unasked: its whole status after a
// change, or just how far the journal has grown.
type HostFrame struct {
	Type   string      `json:"type"` // status, tail
	Status *HostStatus `json:"status,omitzero"`
	At     string      `json:"at,omitzero"`
}

// HostStatus is everything that a host knows of its instance.
type HostStatus struct {
	N         uint64     `json:"n"` // counts the statuses of this host; a greater one is newer
	State     State      `json:"state"`
	Activity  *Activity  `json:"activity"`
	Reason    *string    `json:"reason"`
	Run       int        `json:"run"`
	PID       *int       `json:"pid"`
	Since     *time.Time `json:"started_at"`
	Restarts  int        `json:"restarts"`
	Exit      *Exit      `json:"exit"`
	Holds     []Hold     `json:"holds"`
	Sessions  []Session  `json:"sessions"`
	At        string     `json:"at"`
	Dialect   Dialect    `json:"dialect"`
	Stop      *StopDone  `json:"stop"`  // how the last stop went, once the state is over
	Lease     string     `json:"lease"` // where the host sees its own lease
	Revision  int        `json:"revision"`
	EnvNames  []string   `json:"env_names"`
	StderrEnd []string   `json:"stderr_tail"`
}

// StopDone is how a stop went.
type StopDone struct {
	Rung    Rung      `json:"rung"`
	Ended   int       `json:"ended"`
	Escaped []Escaped `json:"escaped"`
}

// HostOps is the set of operations of a host's socket.
var HostOps = NewSet(
	Operation{Command: HostGetStatus{}, Result: HostStatus{}},
	Operation{Command: HostWatch{}, Result: struct{}{}},
	Operation{Command: HostTail{}, Result: struct{}{}},
	Operation{Command: HostStop{}, Result: StopDone{}, Mutation: true},
	Operation{Command: HostRestart{}, Result: HostStatus{}, Mutation: true},
	Operation{Command: HostConfigure{}, Result: HostStatus{}, Mutation: true},
	Operation{Command: HostSubmit{}, Result: HostSubmitted{}, Mutation: true},
	Operation{Command: HostLease{}, Result: struct{}{}, Mutation: true},
	Operation{Command: HostTrim{}, Result: struct{}{}, Mutation: true},
)

// HostGetStatus asks for the status once.
type HostGetStatus struct{}

// HostWatch asks for frames of type status: one now, and one after every change.
type HostWatch struct{}

// HostTail turns frames of type tail on or off: they cost the host something,
// so it sends them only while somebody follows.
type HostTail struct {
	On bool `json:"on"`
}

// HostStop ends the agent's tree; the host leaves after it has answered.
type HostStop struct {
	WhenIdle  bool  `json:"when_idle,omitzero"`
	TimeoutMS int64 `json:"timeout_ms,omitzero" wire:"min=1,max=600000"`
}

// HostRestart ends the agent and starts it again. The supervisor has written
// the new environment before.
type HostRestart struct {
	WhenIdle bool `json:"when_idle,omitzero"`
}

// HostConfigure gives the host a new spec, used from the next start on.
type HostConfigure struct {
	Name     string `json:"name" wire:"name"`
	Spec     Spec   `json:"spec"`
	Revision int    `json:"revision" wire:"min=1"`
}

// HostSubmit hands a committed submit to the host.
type HostSubmit struct {
	Request     string    `json:"request" wire:"nonblank"` // the id, which is the agent's envelope id too
	CommittedAt time.Time `json:"committed_at"`
	Submit      Submit    `json:"submit"`
}

// HostSubmitted answers [HostSubmit].
type HostSubmitted struct {
	Disposition Disposition `json:"disposition"`
	Turn        *string     `json:"turn"`
	Position    *int        `json:"position"`
	Session     string      `json:"session"`
	// Outcome is set when the host had the request before: how its turn ended,
	// or unknown.
	Outcome Outcome `json:"outcome,omitzero"`
}

// HostLease tells a host which registry names it, and as what.
type HostLease struct {
	Registry string `json:"registry" wire:"nonblank"`
	Name     string `json:"name" wire:"name"`
}

// HostTrim makes a host drop its journal's oldest segments, once: all journals
// of the home together take too much.
type HostTrim struct {
	Max int64 `json:"max" wire:"min=1"` // bytes
}

// Op names the operation. Those called hello, status and stop are the same in
// all versions to come.
func (HostGetStatus) Op() string { return "status" }
func (HostWatch) Op() string     { return "watch" }
func (HostTail) Op() string      { return "tail" }
func (HostStop) Op() string      { return "stop" }
func (HostRestart) Op() string   { return "restart" }
func (HostConfigure) Op() string { return "configure" }
func (HostSubmit) Op() string    { return "submit" }
func (HostLease) Op() string     { return "lease" }
func (HostTrim) Op() string      { return "trim" }

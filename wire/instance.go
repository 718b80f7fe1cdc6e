package wire

import "time"

// State is where an instance stands.
type State string

const (
	Starting  State = "starting"
	Running   State = "running"
	Unloaded  State = "unloaded" // idle; the agent is started by the next message
	BackingUp State = "backoff"  // waits to restart its agent
	Stopping  State = "stopping"
	Stopped   State = "stopped"  // by a person
	Finished  State = "finished" // ended by itself, and its policy is satisfied
	Failed    State = "failed"   // start limit, bad command
	Lost      State = "lost"     // its host died; being cleaned up
	Unknown   State = "unknown"  // cannot be judged
	Foreign   State = "foreign"  // of another machine or PID namespace
)

// Enum lists the states.
func (State) Enum() []string {
	return []string{
		string(Starting), string(Running), string(Unloaded), string(BackingUp), string(Stopping), string(Stopped),
		string(Finished), string(Failed), string(Lost), string(Unknown), string(Foreign),
	}
}

// Over reports whether the state lasts until somebody asks for another one.
func (s State) Over() bool { return s == Stopped || s == Finished || s == Failed }

// Activity is what an agent does.
type Activity string

const (
	Idle           Activity = "idle"
	Busy           Activity = "running"
	RequiresAction Activity = "requires_action"
)

// Enum lists the activities.
func (Activity) Enum() []string { return []string{string(Idle), string(Busy), string(RequiresAction)} }

// Wanted is what an instance was last told to be.
type Wanted string

const (
	WantRunning Wanted = "running"
	WantStopped Wanted = "stopped"
)

// Enum lists the choices.
func (Wanted) Enum() []string { return []string{string(WantRunning), string(WantStopped)} }

// Ref names an instance in a receipt.
type Ref struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Receipt proves that a mutation's intent was committed. It is byte-equal on
// every retry.
type Receipt struct {
	ID          string    `json:"id"`
	Op          string    `json:"op"`
	CommittedAt time.Time `json:"committed_at"`
	Instance    *Ref      `json:"instance"`
}

// Hold is one reason why an instance is not idle.
type Hold struct {
	Kind  string    `json:"kind"`
	Label string    `json:"label"`
	Since time.Time `json:"since"`
	PID   *int      `json:"pid"`
}

// Exit is how one run of an agent ended. Code or Signal is null; both are if
// nobody could learn it.
type Exit struct {
	Run    int       `json:"run"`
	Code   *int      `json:"code"`
	Signal *int      `json:"signal"`
	At     time.Time `json:"at"`
	OOM    bool      `json:"oom"`
}

// Instance is the whole visible state of one instance.
type Instance struct {
	Name        string     `json:"name"`
	ID          string     `json:"id"`
	State       State      `json:"state"`
	Activity    *Activity  `json:"activity"` // null if unknowable
	Dialect     Dialect    `json:"dialect"`
	PID         *int       `json:"pid"` // of the agent; null when none lives
	HostPID     *int       `json:"host_pid"`
	Incarnation *string    `json:"incarnation"`
	Run         int        `json:"run"` // counter of the agent's starts
	BuildID     *string    `json:"build_id"`
	Wanted      Wanted     `json:"wanted"`
	StartedAt   *time.Time `json:"started_at"` // of the run
	Restarts    int        `json:"restarts"`
	Exit        *Exit      `json:"exit"` // of the last run that ended
	RSSBytes    *int64     `json:"rss_bytes"`
	CPUSeconds  *float64   `json:"cpu_seconds"`
	Processes   *int       `json:"processes"`
	MeasuredAt  *time.Time `json:"measured_at"`
	Holds       []Hold     `json:"holds"`
	Sessions    int        `json:"sessions"`
	LastSeq     uint64     `json:"last_seq"`
	Reason      *string    `json:"reason"`
	EnvNames    []string   `json:"env_names"`
}

// Versions is a range of protocol versions.
type Versions struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// SupervisorInfo describes a supervisor.
type SupervisorInfo struct {
	PID        int       `json:"pid"`
	InstanceID string    `json:"instance_id"`
	Version    string    `json:"version"`
	BuildID    string    `json:"build_id"`
	Protocol   Versions  `json:"protocol"`
	StartedAt  time.Time `json:"started_at"`
	Foreground bool      `json:"foreground"`
	URL        string    `json:"url"`
}

// Orphan is a living host that the registry does not name.
type Orphan struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	PID      *int      `json:"pid"` // of its agent
	HostPID  int       `json:"host_pid"`
	RSSBytes *int64    `json:"rss_bytes"`
	Since    time.Time `json:"since"`
	Holds    []Hold    `json:"holds"`
}

// Status is the whole fleet.
type Status struct {
	Home       string          `json:"home"`
	Supervisor *SupervisorInfo `json:"supervisor"`
	Instances  []Instance      `json:"instances"`
	Orphans    []Orphan        `json:"orphans"`
}

// SessionState is where a conversation stands.
type SessionState string

const (
	SessionIdle     SessionState = "idle"
	SessionRunning  SessionState = "running"
	SessionWaiting  SessionState = "requires_action"
	SessionUnloaded SessionState = "unloaded"
)

// Enum lists the states.
func (SessionState) Enum() []string {
	return []string{string(SessionIdle), string(SessionRunning), string(SessionWaiting), string(SessionUnloaded)}
}

// Session is one conversation with an agent.
type Session struct {
	ID           string              `json:"id"`
	AgentSession *string             `json:"agent_session"`
	Title        *string             `json:"title"`
	State        SessionState        `json:"state"`
	Turn         *TurnInfo           `json:"turn"`
	Queue        []Queued            `json:"queue"`
	Permissions  []PermissionRequest `json:"permissions"`
	Clients      int                 `json:"clients"`
	LastSeq      uint64              `json:"last_seq"`
}

// TurnInfo is a running turn.
type TurnInfo struct {
	ID        string    `json:"id"`
	RequestID *string   `json:"request_id"`
	StartedAt time.Time `json:"started_at"`
}

// Queued is a turn that waits.
type Queued struct {
	Turn      string `json:"turn"`
	RequestID string `json:"request_id"`
	Text      string `json:"text"`
}

// PermissionRequest is an agent's unanswered question.
type PermissionRequest struct {
	ID          string             `json:"id"`
	Session     string             `json:"session"`
	Turn        *string            `json:"turn"`
	Tool        *Tool              `json:"tool"`
	Kind        string             `json:"kind"`
	Prompt      string             `json:"prompt"`
	Options     []PermissionOption `json:"options"`
	RequestedAt time.Time          `json:"requested_at"`
}

// Tool names a tool call.
type Tool struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// PermissionOption is one possible answer.
type PermissionOption struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// Now is the present as it is written in records and events: UTC, to the
// microsecond.
func Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// Ptr returns a pointer to v, for members that may be null.
func Ptr[T any](v T) *T { return &v }

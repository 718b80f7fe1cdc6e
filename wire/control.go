package wire

import "github.com/go-json-experiment/json/jsontext"

// Control is the set of operations of the control protocol.
var Control = NewSet(
	Operation{Command: GetVersion{}, Result: VersionResult{}},
	Operation{Command: GetStatus{}, Result: Status{}},
	Operation{Command: Get{}, Result: GetResult{}},
	Operation{Command: History{}, Result: HistoryResult{}},
	Operation{Command: Start{}, Result: InstanceResult{}, Mutation: true},
	Operation{Command: Stop{}, Result: StopResult{}, Mutation: true},
	Operation{Command: RestartInstance{}, Result: InstanceResult{}, Mutation: true},
	Operation{Command: Remove{}, Result: RemoveResult{}, Mutation: true},
	Operation{Command: Configure{}, Result: ConfigureResult{}, Mutation: true},
	Operation{Command: Apply{}, Result: ApplyResult{}, Mutation: true},
	Operation{Command: Sweep{}, Result: SweepResult{}, Mutation: true},
	Operation{Command: Adopt{}, Result: InstanceResult{}, Mutation: true},
	Operation{Command: Reap{}, Result: ReapResult{}, Mutation: true},
	Operation{Command: Submit{}, Result: SubmitResult{}, Mutation: true},
)

// How long a command waits for its goal, in milliseconds.
const (
	DefaultWaitMS = 30_000
	MaxWaitMS     = 600_000
)

// Wait is the member of commands that are answered at their goal or after that
// long, whichever comes first.
type Wait struct {
	WaitMS int64 `json:"wait_ms,omitzero" wire:"min=1,max=600000"`
}

// GetVersion asks what runs.
type GetVersion struct{}

// VersionResult answers [GetVersion].
type VersionResult struct {
	Product  string      `json:"product"`
	Version  string      `json:"version"`
	BuildID  string      `json:"build_id"`
	Protocol Versions    `json:"protocol"`
	Registry string      `json:"registry"` // uuid
	Hosts    []HostBuild `json:"hosts"`
}

// HostBuild is the build that one host runs.
type HostBuild struct {
	Name     string   `json:"name"`
	BuildID  string   `json:"build_id"`
	Protocol Versions `json:"protocol"`
}

// GetStatus asks for the fleet, or for one instance of it.
type GetStatus struct {
	Instance string `json:"instance,omitzero" wire:"nonblank"`
}

// Get asks for one instance with its spec and sessions.
type Get struct {
	Instance string `json:"instance" wire:"nonblank"`
	Session  string `json:"session,omitzero" wire:"nonblank"`
}

// GetResult answers [Get].
type GetResult struct {
	Instance Instance  `json:"instance"`
	Spec     Spec      `json:"spec"`
	Revision int       `json:"revision"`
	Sessions []Session `json:"sessions"`
}

// History asks for past events: of one instance, or lifecycle facts of all.
type History struct {
	Instance string      `json:"instance,omitzero" wire:"nonblank"`
	Session  string      `json:"session,omitzero" wire:"nonblank"`
	After    string      `json:"after,omitzero" wire:"nonblank"`
	Limit    int         `json:"limit,omitzero" wire:"min=1,max=1000"`
	Types    []EventType `json:"types,omitzero"`
}

// HistoryResult answers [History]. Next is the position to go on from, null at
// the end.
type HistoryResult struct {
	Events []Event `json:"events"`
	First  *string `json:"first"`
	Last   *string `json:"last"`
	Next   *string `json:"next"`
}

// Start starts an instance: a new one if a spec is given, else a stopped one.
type Start struct {
	Name string            `json:"name" wire:"name"`
	Spec *Spec             `json:"spec,omitzero"`
	Env  map[string]string `json:"env,omitzero" wire:"env"`
	// Foreground leaves the spawning of the host to the caller, who runs it in
	// his own terminal.
	Foreground bool `json:"foreground,omitzero"`
	Wait
}

// InstanceResult answers the mutations of one instance.
type InstanceResult struct {
	Receipt  Receipt  `json:"receipt"`
	Instance Instance `json:"instance"`
}

// Stop ends an instance's whole process tree and keeps it stopped.
type Stop struct {
	Instance  string `json:"instance" wire:"nonblank"`
	WhenIdle  bool   `json:"when_idle,omitzero"`
	TimeoutMS int64  `json:"timeout_ms,omitzero" wire:"min=1,max=600000"`
	Wait
}

// Rung is the step of the stop ladder that was needed.
type Rung string

const (
	RungNone   Rung = "none" // nothing lived
	RungEOF    Rung = "eof"
	RungTerm   Rung = "term"
	RungKill   Rung = "kill"
	RungCgroup Rung = "cgroup"
)

// Enum lists the rungs.
func (Rung) Enum() []string {
	return []string{string(RungNone), string(RungEOF), string(RungTerm), string(RungKill), string(RungCgroup)}
}

// Escaped is a process that may not be signalled.
type Escaped struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// StopResult answers [Stop].
type StopResult struct {
	Receipt  Receipt   `json:"receipt"`
	Instance Instance  `json:"instance"`
	Rung     *Rung     `json:"rung"`
	Ended    int       `json:"ended"` // processes that were ended
	Escaped  []Escaped `json:"escaped"`
}

// RestartInstance ends the agent and starts it again, with a new environment
// if one is given.
type RestartInstance struct {
	Instance string            `json:"instance" wire:"nonblank"`
	Env      map[string]string `json:"env,omitzero" wire:"env"`
	WhenIdle bool              `json:"when_idle,omitzero"`
	Wait
}

// Remove forgets an instance and deletes its folder.
type Remove struct {
	Instance string `json:"instance" wire:"nonblank"`
	Force    bool   `json:"force,omitzero"`
	Wait
}

// RemoveResult answers [Remove].
type RemoveResult struct {
	Receipt Receipt `json:"receipt"`
}

// Configure replaces an instance's spec.
type Configure struct {
	Instance   string `json:"instance" wire:"nonblank"`
	Spec       Spec   `json:"spec"`
	IfRevision int    `json:"if_revision,omitzero" wire:"min=1"`
}

// ConfigureResult answers [Configure].
type ConfigureResult struct {
	Receipt      Receipt  `json:"receipt"`
	Instance     Instance `json:"instance"`
	Revision     int      `json:"revision"`
	NeedsRestart bool     `json:"needs_restart"`
}

// Apply makes the fleet what the list says, in one transaction.
type Apply struct {
	Instances []Declared `json:"instances"`
	Prune     bool       `json:"prune,omitzero"` // stop the instances that are not listed
	DryRun    bool       `json:"dry_run,omitzero"`
	Wait
}

// Declared is one instance of an [Apply].
type Declared struct {
	Name string            `json:"name" wire:"name"`
	Spec Spec              `json:"spec"`
	Env  map[string]string `json:"env,omitzero" wire:"env"`
}

// ApplyResult answers [Apply] with names.
type ApplyResult struct {
	Receipt   *Receipt `json:"receipt"`
	Started   []string `json:"started"`
	Changed   []string `json:"changed"`
	Stopped   []string `json:"stopped"`
	Unchanged []string `json:"unchanged"`
}

// Sweep judges every instance now.
type Sweep struct{}

// SweepResult answers [Sweep] with counts.
type SweepResult struct {
	Receipt Receipt `json:"receipt"`
	SweepCounts
}

// SweepCounts is what a sweep found and did.
type SweepCounts struct {
	Judged         int `json:"judged"`
	Alive          int `json:"alive"`
	Gone           int `json:"gone"`
	Unknown        int `json:"unknown"`
	Foreign        int `json:"foreign"`
	Adopted        int `json:"adopted"`
	Restarted      int `json:"restarted"`
	RecordsRemoved int `json:"records_removed"`
	Orphans        int `json:"orphans"`
}

// Adopt gives an orphan its lease back.
type Adopt struct {
	ID   string `json:"id" wire:"nonblank"`
	Name string `json:"name,omitzero" wire:"name"`
	Wait
}

// Reap ends orphans.
type Reap struct {
	Targets    []Target `json:"targets" wire:"minitems=1"`
	EvenIfBusy bool     `json:"even_if_busy,omitzero"`
	Wait
}

// Target is what [Reap] ends: an instance's id, or one verified process.
type Target struct {
	ID         string `json:"id,omitzero" wire:"nonblank"`
	PID        int    `json:"pid,omitzero" wire:"min=1"`
	StartTicks uint64 `json:"start_ticks,omitzero"`
}

// OneOf says which members go together.
func (Target) OneOf() [][]string { return [][]string{{"id"}, {"pid", "start_ticks"}} }

// ReapResult answers [Reap].
type ReapResult struct {
	Receipt Receipt  `json:"receipt"`
	Reaped  []Reaped `json:"reaped"`
}

// Reaped is what became of one target.
type Reaped struct {
	Target  Target  `json:"target"`
	Ended   int     `json:"ended"`
	Refused *string `json:"refused"`
}

// IfBusy says what happens to a submit while a turn runs.
type IfBusy string

const (
	IfBusyReject IfBusy = "reject"
	IfBusyQueue  IfBusy = "queue"
	IfBusySteer  IfBusy = "steer"
)

// Enum lists the choices.
func (IfBusy) Enum() []string {
	return []string{string(IfBusyReject), string(IfBusyQueue), string(IfBusySteer)}
}

// Submit gives an agent something to do.
type Submit struct {
	Instance string         `json:"instance" wire:"nonblank"`
	Session  string         `json:"session,omitzero" wire:"nonblank"`
	Text     string         `json:"text,omitzero"`
	Content  []Block        `json:"content,omitzero" wire:"minitems=1"`
	Command  jsontext.Value `json:"command,omitzero" wire:"command"`
	IfBusy   IfBusy         `json:"if_busy,omitzero"`
}

// OneOf says which members exclude each other.
func (Submit) OneOf() [][]string { return [][]string{{"text"}, {"content"}, {"command"}} }

// Block is one piece of content.
type Block struct {
	Type   string `json:"type"`
	Text   string `json:"text,omitzero"`
	MIME   string `json:"mime,omitzero"`
	Base64 string `json:"base64,omitzero"`
	URI    string `json:"uri,omitzero"`
	Name   string `json:"name,omitzero"`
}

// Discriminator is the member that tells the variants apart.
func (Block) Discriminator() string { return "type" }

// Variants lists each type's members; a question mark marks an optional one.
func (Block) Variants() map[string][]string {
	return map[string][]string{
		"text":          {"text"},
		"image":         {"mime", "base64"},
		"resource_link": {"uri", "name?"},
	}
}

// Disposition is what became of a submit.
type Disposition string

const (
	TurnStarted  Disposition = "started"
	TurnQueued   Disposition = "queued"
	TurnSteered  Disposition = "steered"
	TurnRejected Disposition = "rejected"
)

// Enum lists the dispositions.
func (Disposition) Enum() []string {
	return []string{string(TurnStarted), string(TurnQueued), string(TurnSteered), string(TurnRejected)}
}

// SubmitResult answers [Submit]. A rejected one has no receipt.
type SubmitResult struct {
	Receipt     *Receipt    `json:"receipt"`
	Disposition Disposition `json:"disposition"`
	Turn        *string     `json:"turn"`
	Position    *int        `json:"position"` // in the queue, from 1
	Session     string      `json:"session"`
}

// Op names the operation.
func (GetVersion) Op() string      { return "version" }
func (GetStatus) Op() string       { return "status" }
func (Get) Op() string             { return "get" }
func (History) Op() string         { return "history" }
func (Start) Op() string           { return "start" }
func (Stop) Op() string            { return "stop" }
func (RestartInstance) Op() string { return "restart" }
func (Remove) Op() string          { return "remove" }
func (Configure) Op() string       { return "configure" }
func (Apply) Op() string           { return "apply" }
func (Sweep) Op() string           { return "sweep" }
func (Adopt) Op() string           { return "adopt" }
func (Reap) Op() string            { return "reap" }
func (Submit) Op() string          { return "submit" }

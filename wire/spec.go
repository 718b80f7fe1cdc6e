package wire

import "time"

// NameRule says what an instance name must look like.
const NameRule = "must begin with a lower-case letter or a digit and go on with at most 62 of a-z 0-9 . _ -"

// nameForm is the same as a pattern, for the schema. It is not compiled here:
// every host would carry it.
const nameForm = `^[a-z0-9][a-z0-9._-]{0,62}$`

// ValidName reports whether s is fit to name an instance.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		word := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !word && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// Dialect says how the lines of one kind of agent are read.
type Dialect string

const (
	Auto   Dialect = "auto" // recognised from the command
	Plain  Dialect = "plain"
	NDJSON Dialect = "ndjson"
)

// Enum lists the dialects.
func (Dialect) Enum() []string { return []string{string(Auto), string(Plain), string(NDJSON)} }

// Policy says when an agent that ended is started again.
type Policy string

const (
	Never     Policy = "never"
	OnFailure Policy = "on-failure" // exit code other than 0, or a signal
	Always    Policy = "always"
)

// Enum lists the policies.
func (Policy) Enum() []string { return []string{string(Never), string(OnFailure), string(Always)} }

// Children says whether processes that an agent leaves running keep its
// instance busy.
type Children string

const (
	ChildrenByBirth Children = ""       // those born during a turn do
	ChildrenHold    Children = "hold"   // all do
	ChildrenIgnore  Children = "ignore" // none does
)

// Enum lists the choices.
func (Children) Enum() []string { return []string{string(ChildrenHold), string(ChildrenIgnore)} }

// Ask says who decides when an agent asks for permission and no client can
// answer.
type Ask string

const (
	AskClient Ask = "ask"
	AskAllow  Ask = "allow"
	AskDeny   Ask = "deny"
)

// Enum lists the choices.
func (Ask) Enum() []string { return []string{string(AskClient), string(AskAllow), string(AskDeny)} }

// Spec is what an instance is meant to be. Omitted members have the defaults
// that their accessors give.
type Spec struct {
	Argv          []string    `json:"argv" wire:"minitems=1"`
	Cwd           string      `json:"cwd" wire:"abs"`
	Dialect       Dialect     `json:"dialect,omitzero"`
	Restart       *Restart    `json:"restart,omitzero"`
	EnvFile       string      `json:"env_file,omitzero" wire:"abs"`
	MemoryMax     int64       `json:"memory_max,omitzero" wire:"min=1"`     // bytes
	IdleUnloadMS  int64       `json:"idle_unload_ms,omitzero" wire:"min=1"` //
	StopTimeoutMS int64       `json:"stop_timeout_ms,omitzero" wire:"min=1,max=600000"`
	Exclusive     bool        `json:"exclusive,omitzero"`
	Children      Children    `json:"children,omitzero"`
	Permission    *Permission `json:"permission,omitzero"`
	JournalMax    int64       `json:"journal_max,omitzero" wire:"min=1048576"` // bytes
	Resume        *bool       `json:"resume,omitzero"`                         // started again after a reboot
}

// Restart is the restart policy of a [Spec].
type Restart struct {
	Policy    Policy `json:"policy,omitzero"`
	BackoffMS *int64 `json:"backoff_ms,omitzero" wire:"min=0,max=60000"` // of the second restart; the first is at once
	Limit     *int   `json:"limit,omitzero" wire:"min=0"`                // starts in the window; 0 is no limit
	WindowMS  *int64 `json:"window_ms,omitzero" wire:"min=1"`
}

// Permission is what happens to an agent's questions without a client.
type Permission struct {
	Policy    Ask   `json:"policy,omitzero"`
	TimeoutMS int64 `json:"timeout_ms,omitzero" wire:"min=1"`
}

// Defaults of a [Spec].
const (
	DefaultStopTimeout = 10 * time.Second
	DefaultBackoff     = time.Second
	DefaultStartLimit  = 5
	DefaultStartWindow = 60 * time.Second
	DefaultJournalMax  = 256 << 20 // bytes
)

// RestartPolicy is the policy in force.
func (s Spec) RestartPolicy() Policy {
	if s.Restart == nil || s.Restart.Policy == "" {
		return OnFailure
	}
	return s.Restart.Policy
}

// Backoff is the pause before the second restart in a row.
func (s Spec) Backoff() time.Duration {
	if s.Restart == nil || s.Restart.BackoffMS == nil {
		return DefaultBackoff
	}
	return time.Duration(*s.Restart.BackoffMS) * time.Millisecond
}

// StartLimit is how many starts are allowed in the window; limit 0 is none.
func (s Spec) StartLimit() (limit int, window time.Duration) {
	limit, window = DefaultStartLimit, DefaultStartWindow
	if s.Restart != nil && s.Restart.Limit != nil {
		limit = *s.Restart.Limit
	}
	if s.Restart != nil && s.Restart.WindowMS != nil {
		window = time.Duration(*s.Restart.WindowMS) * time.Millisecond
	}
	return limit, window
}

// StopTimeout bounds the whole stop ladder.
func (s Spec) StopTimeout() time.Duration {
	if s.StopTimeoutMS == 0 {
		return DefaultStopTimeout
	}
	return time.Duration(s.StopTimeoutMS) * time.Millisecond
}

// JournalCap is the size at which the oldest events are dropped, in bytes.
func (s Spec) JournalCap() int64 {
	if s.JournalMax == 0 {
		return DefaultJournalMax
	}
	return s.JournalMax
}

// Resumes reports whether the instance is started again after a reboot.
func (s Spec) Resumes() bool { return s.Resume == nil || *s.Resume }

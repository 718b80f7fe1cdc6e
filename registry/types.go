package registry

import (
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

// Instance is what the registry knows of one instance.
type Instance struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	Spec        wire.Spec   `json:"spec"`
	Revision    int         `json:"revision"` // of the spec, from 1
	Wanted      wire.Wanted `json:"wanted"`
	Incarnation string      `json:"incarnation"` // of the host that was last chosen
	EnvNames    []string    `json:"env_names"`
	// Over is finished or failed once the instance has ended by itself, with the
	// reason; a start by hand clears it.
	Over     wire.State `json:"over,omitzero"`
	Reason   string     `json:"reason,omitzero"`
	WhenIdle bool       `json:"when_idle,omitzero"` // the wanted stop waits until nothing holds the instance
	Removing bool       `json:"removing,omitzero"`  // to be forgotten once it is stopped
	Restart  bool       `json:"restart,omitzero"`   // the agent is to be started anew
	Parked   bool       `json:"parked,omitzero"`    // ran before a boot, and is not started until somebody does
	// EnvToken names the file with the environment for the next start, until
	// that start has taken it.
	EnvToken  string    `json:"env_token,omitzero"`
	CreatedAt time.Time `json:"created_at"`
}

// Stored is a receipt as it is kept.
type Stored struct {
	Hash    []byte         `json:"hash"` // of the decoded command
	Receipt jsontext.Value `json:"receipt"`
	// Failure stands instead of a result if the mutation's delivery became
	// unknown; it is returned on every retry.
	Failure *wire.Error `json:"failure,omitzero"`
	// Answered marks a submit that the host has accepted: it never needs to be
	// forwarded again.
	Answered *wire.HostSubmitted `json:"answered,omitzero"`
	At       time.Time           `json:"at"`
}

// Errors of opening.
var (
	// ErrDamaged says that the file cannot be used: empty, truncated, garbage,
	// or of another registry than the side file names.
	ErrDamaged = errors.New("the registry is damaged")
	// ErrLocked says that another process has the file open.
	ErrLocked = errors.New("the registry is open in another process")
	// ErrNewer says that a newer version of Cast wrote the file.
	ErrNewer = errors.New("the registry was written by a newer version")
	// ErrNetwork says that the file lies on a network file system.
	ErrNetwork = errors.New("the registry lies on a network file system")
	// ErrFull says that there is no room to commit. Nothing was changed.
	ErrFull = errors.New("the disk is full")
)

package lease

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/internal/proc"
)

// Host is a host's record, host.json.
type Host struct {
	Mark
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Incarnation string         `json:"incarnation"` // chosen by the supervisor, 128 bits, hex
	Registry    string         `json:"registry"`    // uuid of the registry that named it
	Socket      string         `json:"socket"`
	Protocol    Versions       `json:"protocol"`
	Version     string         `json:"version"`
	BuildID     string         `json:"build_id"`
	StartedAt   time.Time      `json:"started_at"`
	Foreground  bool           `json:"foreground"`
	Run         int            `json:"run"`   // counter of the agent's starts
	Agent       *proc.Identity `json:"agent"` // null while no agent lives
}

// ErrNoHost says that no host has published itself in a folder.
var ErrNoHost = errors.New("no host is published")

// PublishHost writes a host's record and returns it as it stands in the file,
// a line of JSON. Only the holder of the alive lock may call it.
func (f Folder) PublishHost(r Host) (line []byte, err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	b = append(b, '\n')
	crashpoint.At("host.publish")
	return b, WriteRecord(f.HostFile(), b)
}

// HostStands reports whether the file is still what [Folder.PublishHost]
// returned.
func (f Folder) HostStands(line []byte) bool {
	now, err := os.ReadFile(f.HostFile())
	return err == nil && bytes.Equal(now, line)
}

// ReadHost reads the record as it stands, without judging it.
func (f Folder) ReadHost() (Host, error) {
	var r Host
	err := ReadJSON(f.HostFile(), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return Host{}, ErrNoHost
	}
	if err == nil && (r.ID == "" || r.PID <= 0) {
		err = fmt.Errorf("%w: %s", ErrGarbage, f.HostFile())
	}
	return r, err
}

// FindHost reads the record and judges it. Without a readable record the lock
// alone decides: free is gone, held is unknown, because a host is on its way.
func (f Folder) FindHost() (Host, proc.Verdict, error) {
	r, err := f.ReadHost()
	if err != nil {
		lock, lerr := Probe(f.AliveLock())
		if lerr != nil || lock.Held {
			return Host{}, proc.Unknown, err
		}
		return Host{}, proc.Gone, err
	}
	return r, r.Judge(f.AliveLock()), nil
}

// RemoveHost removes a gone host's record if it is still that incarnation's.
// The caller holds the alive lock, so that no host can publish between.
func (f Folder) RemoveHost(incarnation string) error {
	now, err := f.ReadHost()
	if errors.Is(err, ErrNoHost) || err == nil && now.Incarnation != incarnation {
		return nil
	}
	crashpoint.At("host.remove")
	return os.Remove(f.HostFile())
}

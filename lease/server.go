package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/internal/proc"
)

// Versions is the range of protocol versions that a process speaks.
type Versions struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Server is the supervisor's record, server.json. It is written by the
// supervisor itself, after it accepts connections, and holds the token with
// which a local client proves who it is.
type Server struct {
	Mark
	InstanceID string    `json:"instance_id"` // 128 random bits, hex; new at each start
	Host       string    `json:"host"`
	Port       int       `json:"port"`
	Socket     string    `json:"socket"` // path of the unix socket
	Protocol   Versions  `json:"protocol"`
	Version    string    `json:"version"`
	BuildID    string    `json:"build_id"`
	StartedAt  time.Time `json:"started_at"`
	Foreground bool      `json:"foreground"`
	Token      string    `json:"token"`
}

// URL is where the supervisor answers over TCP.
func (s Server) URL() string {
	return "http://" + net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

// ErrNoServer says that no supervisor has published itself.
var ErrNoServer = errors.New("no supervisor is published")

// recordWait bounds the wait for record.lock, which is held for an instant
// only.
const recordWait = 5 * time.Second

func (h Home) underRecordLock(do func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), recordWait)
	defer cancel()
	lock, err := AcquireWait(ctx, h.RecordLock())
	if err != nil {
		return err
	}
	defer lock.Release()
	return do()
}

// PublishServer writes the supervisor's record. Only the holder of the daemon
// lock may call it.
func (h Home) PublishServer(s Server) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return h.underRecordLock(func() error {
		crashpoint.At("server.publish")
		return WriteRecord(h.ServerFile(), append(b, '\n'))
	})
}

// ReadServer reads the record as it stands, without judging it. Its errors
// match [ErrNoServer] if there is none and [ErrGarbage] if it cannot be
// understood.
func (h Home) ReadServer() (Server, error) {
	var s Server
	err := ReadJSON(h.ServerFile(), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return Server{}, ErrNoServer
	}
	if err == nil && (s.InstanceID == "" || s.PID <= 0) {
		err = fmt.Errorf("%w: %s", ErrGarbage, h.ServerFile())
	}
	return s, err
}

// FindServer reads the record and judges it. A record of a gone process is
// stale: it is removed, unless a successor has replaced it meanwhile, and
// [ErrNoServer] is returned. The record stands for a living supervisor only
// with the verdict alive.
func (h Home) FindServer() (Server, proc.Verdict, error) {
	s, err := h.ReadServer()
	switch {
	case errors.Is(err, ErrGarbage):
		lock, lerr := Probe(h.DaemonLock())
		if lerr == nil && !lock.Held {
			err = errors.Join(h.removeServer(func(now Server, err error) bool { return errors.Is(err, ErrGarbage) }), ErrNoServer)
			return Server{}, proc.Gone, err
		}
		return Server{}, proc.Unknown, err
	case err != nil:
		return Server{}, proc.Gone, err
	}
	v := s.Judge(h.DaemonLock())
	if v != proc.Gone {
		return s, v, nil
	}
	return s, v, errors.Join(h.RemoveServer(s.InstanceID), ErrNoServer)
}

// Living returns the record of a living supervisor, and the reason if there is
// none: [ErrNoServer], or that whoever is recorded cannot be judged from here.
func (h Home) Living() (Server, error) {
	s, v, err := h.FindServer()
	switch {
	case err != nil:
		return s, err
	case v == proc.Foreign:
		return s, fmt.Errorf("the supervisor of %s belongs to another machine or PID namespace: use castctl there", h.dir)
	case v != proc.Alive:
		return s, fmt.Errorf("the supervisor of %s (process %d) cannot be judged", h.dir, s.PID)
	}
	return s, nil
}

// RemoveServer removes the record if it is still the one of that start of the
// supervisor; a successor's record is left alone.
func (h Home) RemoveServer(instanceID string) error {
	return h.removeServer(func(now Server, err error) bool { return err == nil && now.InstanceID == instanceID })
}

// removeServer compares and deletes under record.lock, which every publication
// takes too: between the comparison and the removal nobody can publish.
func (h Home) removeServer(ours func(now Server, err error) bool) error {
	return h.underRecordLock(func() error {
		if !ours(h.ReadServer()) {
			return nil
		}
		crashpoint.At("server.remove")
		err := os.Remove(h.ServerFile())
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

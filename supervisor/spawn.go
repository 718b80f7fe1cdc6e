package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// spawnBound is how long a host may take to publish itself; it may have to end
// a predecessor's tree first.
const spawnBound = 30 * time.Second

// spawn starts the host whose incarnation was committed, beside the owner. lock
// is the instance's alive lock; nil for an instance that never had a host.
func (s *Supervisor) spawn(in *instance, lock *lease.Lock) {
	in.stopTimer()
	in.host, in.why = hostSpawning, ""
	in.status, in.record, in.stopDone = nil, nil, nil
	in.asked, in.follow = asked{}, false
	in.spawned = time.Now()
	file := s.specFile(in)
	env := envFile(s.cfg.Home.Instance(in.rec.ID), in.rec.EnvToken)
	s.views.touch(in)
	go func() {
		l, err := s.spawnHost(file, env, lock)
		if !s.post(func() { s.spawnDone(in, file.Incarnation, l, err) }) && l != nil {
			l.close()
		}
	}()
}

// spawnDone takes a new host in.
func (s *Supervisor) spawnDone(in *instance, incarnation string, l *link, err error) {
	if in.rec.Incarnation != incarnation || in.host != hostSpawning {
		if l != nil {
			l.close()
		}
		return
	}
	if err != nil {
		s.lost(in, "the host did not come up: "+err.Error())
		return
	}
	s.connected(in, l)
}

// spawnHost does the work: files, process, publication, connection.
func (s *Supervisor) spawnHost(file host.SpecFile, env string, lock *lease.Lock) (*link, error) {
	folder := s.cfg.Home.Instance(file.ID)
	if lock == nil {
		var err error
		if lock, err = claim(folder); err != nil {
			return nil, err
		}
	}
	defer lock.Release() // the host has it by then, or nobody
	crashpoint.At("start.files")
	err := s.files.now(context.Background(), file.ID, func() error {
		if err := promoteEnv(folder, env); err != nil {
			return err
		}
		return lease.WriteLater(folder.SpecFile(), file)
	})
	if err != nil {
		return nil, err
	}
	// The disk takes its time while the host comes up. A start is answered when
	// both are done; until then the registry alone knows of it, durably.
	durable := make(chan error, 1)
	go func() { durable <- lease.Sync(folder.SpecFile()) }()
	crashpoint.At("start.spawn")
	record, err := s.exec(file, folder, lock)
	if err := <-durable; err != nil {
		s.cfg.Log.Error("an instance's file could not be made durable", "instance", file.Name, "err", err)
	}
	if err != nil {
		return nil, err
	}
	crashpoint.At("start.spawned")
	ctx, cancel := context.WithTimeout(context.Background(), dialBound)
	defer cancel()
	return s.dial(ctx, record)
}

// exec starts the host's process, from the very file that this process runs,
// and waits until it has published itself.
func (s *Supervisor) exec(file host.SpecFile, folder lease.Folder, lock *lease.Lock) (lease.Host, error) {
	log, err := os.OpenFile(folder.HostLog(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return lease.Host{}, err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return lease.Host{}, err
	}
	defer r.Close()
	child, err := s.reaper.start(proc.Command{
		Path: proc.SelfExe(), Argv: []string{os.Args[0], "host", s.cfg.Home.Dir(), file.ID, file.Incarnation},
		Env: hostEnv(), Dir: "/", Files: []*os.File{nil, nil, log, w, lock.File()}, NewSession: true,
	})
	w.Close()
	if err != nil {
		return lease.Host{}, err
	}
	lock.Release() // from now on it says whether the host lives, and nothing else
	go s.watchChild(child, file.ID, file.Incarnation)
	r.SetReadDeadline(time.Now().Add(spawnBound))
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err != nil {
		return lease.Host{}, fmt.Errorf("it ended before it was ready; see %s", folder.HostLog())
	}
	var record lease.Host
	if err := json.Unmarshal(line, &record); err != nil {
		return lease.Host{}, fmt.Errorf("it said nonsense: %w", err)
	}
	return record, nil
}

// watchChild waits for a host that is our own child, and reaps it.
func (s *Supervisor) watchChild(child *proc.Child, id, incarnation string) {
	child.Wait(context.Background())
	s.reaper.release(child.PID())
	s.post(func() { s.hostGone(id, incarnation) })
}

// hostEnv is a host's own environment: only what its file names and its runtime
// need. What the agent gets stands in env.json.
func hostEnv() []string {
	// One processor is all that a host needs, and each more costs memory; so does
	// looking at the machine's limits, time zone and load (which gopsutil does
	// before main), none of which it uses.
	env := append(crashpoint.Env(), "GOMAXPROCS=1", "GODEBUG=containermaxprocs=0,updatemaxprocs=0", "TZ=UTC", "HOST_PROC=/none")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "CAST_ORPHAN_GRACE"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func saveSpecFile(folder lease.Folder, file host.SpecFile) error {
	return lease.WriteJSON(folder.SpecFile(), file)
}

// The environment of a start is made durable before the start is committed,
// under a name of its own, and takes its place when the start is carried out. A
// supervisor that is killed in between leaves the next one all it needs.

func envFile(folder lease.Folder, token string) string {
	if token == "" {
		return ""
	}
	return filepath.Join(folder.Path(), ".env-"+token+".json")
}

func stageEnv(folder lease.Folder, token string, env map[string]string) error {
	if err := folder.Make(); err != nil {
		return err
	}
	return lease.WriteJSON(envFile(folder, token), env)
}

func promoteEnv(folder lease.Folder, staged string) error {
	if staged == "" {
		return nil
	}
	err := os.Rename(staged, folder.EnvFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // taken already
	}
	return err
}

// removeFolder deletes an instance's folder. The spec goes first: without it, a
// folder that is half removed cannot be mistaken for an instance.
func removeFolder(folder lease.Folder) error {
	if err := os.Remove(folder.SpecFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(folder.Path())
}

// connected takes a living, connected host in.
func (s *Supervisor) connected(in *instance, l *link) {
	in.disconnect()
	in.link, in.record = l, &l.record
	in.host, in.why, in.dead = hostAlive, "", false
	in.asked = asked{}
	in.patience = 0
	in.stopTimer()
	s.views.touch(in)
	l.start(s, in)
	in.tail()
	s.later(dialBound, func() {
		if in.link == l && in.status == nil {
			s.cfg.Log.Error("a host says nothing", "instance", in.rec.Name)
			l.close() // it is judged anew then
		}
	})
}

// told takes a status from a host.
func (s *Supervisor) told(in *instance, l *link, st *wire.HostStatus) {
	before := in.status
	if in.link != l || before != nil && st.N < before.N {
		return
	}
	in.status = st
	if before == nil && st.Revision < in.rec.Revision { // changed while it was on its way
		go l.call(context.Background(), wire.HostConfigure{Name: in.rec.Name, Spec: in.rec.Spec, Revision: in.rec.Revision})
	}
	if st.Stop != nil {
		in.stopDone = st.Stop
	}
	if before == nil || before.State != st.State || before.Run != st.Run {
		s.measureSoon()
	}
	in.tails.wake()
	s.reconcile(in)
}

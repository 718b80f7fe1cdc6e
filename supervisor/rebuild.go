package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/wire"
)

// openRegistry opens the registry. A damaged one is moved aside and, like one
// that is missing, rebuilt from the fleet: the instance folders and the hosts
// that live.
func (s *Supervisor) openRegistry(ctx context.Context) error {
	path := s.cfg.Home.RegistryFile()
	aside := ""
	db, err := registry.Open(path, func(path string) error { return checkInChild(ctx, path) })
	if errors.Is(err, registry.ErrDamaged) {
		s.cfg.Log.Warn("the registry cannot be used", "err", err)
		if aside, err = registry.SetAside(path, time.Now()); err != nil {
			return fmt.Errorf("registry %s is damaged and could not be moved aside: %w", path, err)
		}
		db, err = registry.Open(path, nil)
	}
	if err != nil {
		return fmt.Errorf("registry %s: %w", path, err)
	}
	s.db = db
	if !db.Fresh() {
		return nil
	}
	n, err := s.rebuild()
	if err != nil {
		db.Close()
		return fmt.Errorf("registry %s could not be rebuilt: %w", path, err)
	}
	if n > 0 || aside != "" {
		s.opening.rebuilt = fmt.Sprintf("the registry was lost; it was rebuilt with %d instances from their folders", n)
		if aside != "" {
			s.opening.rebuilt += ", and the damaged file is kept as " + aside
		}
		s.cfg.Log.Warn(s.opening.rebuilt)
	}
	return nil
}

// checkInChild judges the file in a process of its own: a truncated one faults
// whoever maps it, and keeps the lock there.
func checkInChild(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	child, err := proc.Start(proc.Command{
		Path: proc.SelfExe(), Argv: []string{os.Args[0], "check-registry", path}, Env: hostEnv(), Dir: "/",
		Files: []*os.File{nil, nil, nil},
	})
	if err != nil {
		return nil // nobody to ask: the open itself will tell
	}
	exit, err := child.Wait(ctx)
	if err != nil {
		child.Signal(syscall.SIGKILL)
		child.Wait(context.Background())
		return fmt.Errorf("its check did not end: %w", err)
	}
	switch {
	case exit.Success():
		return nil
	case exit.Signal == syscall.SIGBUS, exit.Signal == syscall.SIGSEGV, exit.Signal == 0 && (exit.Code == CheckDamaged || exit.Code == checkPanicked):
		return fmt.Errorf("%w: the check ended with %s", registry.ErrDamaged, exit)
	case exit.Signal == 0 && exit.Code == CheckUnread:
		return nil // the open itself will tell
	}
	return fmt.Errorf("its check ended with %s", exit)
}

// How the check of a registry file exits, besides 0.
const (
	CheckUnread  = 1 // it could not be read: another process has it
	CheckDamaged = 3

	checkPanicked = 2 // Go's own, when the file leads bbolt astray
)

// rebuild fills a new registry from the instance folders, stopped instances
// included.
func (s *Supervisor) rebuild() (int, error) {
	ids, err := s.cfg.Home.InstanceIDs()
	if err != nil {
		return 0, err
	}
	var found []registry.Instance
	names := map[string]bool{}
	for _, id := range ids {
		file, err := host.ReadSpec(s.cfg.Home.Instance(id))
		if err != nil || file.ID != id {
			continue
		}
		if names[file.Name] { // two folders of one name: the younger gets its id as a name
			file.Name = id
		}
		names[file.Name] = true
		found = append(found, registry.Instance{
			ID: id, Name: file.Name, Spec: file.Spec, Revision: max(file.Revision, 1), Wanted: file.Wanted,
			Incarnation: s.livingIncarnation(id, file.Incarnation), EnvNames: file.EnvNames, Over: file.Over, Reason: file.Reason, CreatedAt: wire.Now(),
		})
	}
	return len(found), s.db.Update(func(tx *registry.Tx) error {
		for _, in := range found {
			if err := tx.PutInstance(in); err != nil {
				return err
			}
		}
		return tx.Filled()
	})
}

// livingIncarnation prefers the host that lives over the one that the spec file
// names: a rebuild is the one time that adopts without the registry's word.
func (s *Supervisor) livingIncarnation(id, named string) string {
	r, v, err := s.cfg.Home.Instance(id).FindHost()
	if err == nil && v == proc.Alive {
		return r.Incarnation
	}
	return named
}

// load reads the registry into memory.
func (s *Supervisor) load() error {
	var all []registry.Instance
	err := s.db.View(func(tx *registry.Tx) (err error) {
		all, err = tx.Instances()
		return err
	})
	if err != nil {
		return err
	}
	for _, rec := range all {
		in := &instance{rec: rec}
		in.host, in.why = hostUnknown, "it was not judged yet"
		s.fleet.put(in)
		s.views.touch(in)
	}
	return nil
}

// adopted follows the first sweep: the fleet is known now.
func (s *Supervisor) adopted() {
	s.opening.once.Do(func() { close(s.opening.ready) })
	for _, in := range s.fleet.byID {
		s.checkSpecFile(in)
	}
	if s.opening.rebuilt != "" {
		note := s.opening.rebuilt
		s.change(change{write: func(tx *registry.Tx) error {
			ev := wire.NewEvent(wire.EventNotice, wire.NoticeData{Kind: wire.NoticeRebuilt, Message: note})
			ev.Time = wire.Now()
			return tx.AppendFact(ev)
		}, apply: func() {}})
	}
}

// checkSpecFile writes an instance's file again if it lags behind the registry:
// the last supervisor was killed between the commit and the file.
func (s *Supervisor) checkSpecFile(in *instance) {
	file, folder := s.specFile(in), s.cfg.Home.Instance(in.rec.ID)
	staged := envFile(folder, in.rec.EnvToken)
	s.files.do(in.rec.ID, func() {
		sweepEnvs(folder, staged)
		now, err := host.ReadSpec(folder)
		if err == nil && now.Wanted == file.Wanted && now.Revision == file.Revision && now.Registry == file.Registry &&
			now.Incarnation == file.Incarnation && now.Over == file.Over {
			return
		}
		if err := folder.Make(); err == nil {
			saveSpecFile(folder, file)
		}
	})
}

// stagedAge is how old a staged environment must be before it belongs to no
// start that is still on its way.
const stagedAge = time.Minute

// sweepEnvs removes environments that were staged for starts that never were
// committed, except the one that a start still waits for.
func sweepEnvs(folder lease.Folder, keep string) {
	all, _ := filepath.Glob(envFile(folder, "*"))
	for _, path := range all {
		if st, err := os.Lstat(path); path != keep && err == nil && time.Since(st.ModTime()) > stagedAge {
			os.Remove(path)
		}
	}
}

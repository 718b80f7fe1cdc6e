package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNoHome says that there is no home directory yet.
var ErrNoHome = errors.New("there is no Cast home here")

// Home is a verified home directory: everything that Cast keeps of one user's
// fleet.
type Home struct{ dir string }

// BadHome is why a directory may not serve as a home, and what to do.
type BadHome struct {
	Dir, Why, Do string
}

func (e *BadHome) Error() string { return fmt.Sprintf("home %s: %s", e.Dir, e.Why) }

// Hint says what to do about it.
func (e *BadHome) Hint() string { return e.Do }

// DefaultDir is CAST_HOME, or .cast in the user's home directory.
func DefaultDir() (string, error) {
	if dir := os.Getenv("CAST_HOME"); dir != "" {
		return filepath.Abs(dir)
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "", &BadHome{Dir: "~/.cast", Why: "the environment has no HOME", Do: "set CAST_HOME or give --home DIR"}
	}
	return filepath.Join(user, ".cast"), nil
}

// OpenHome makes the home directory if there is none, and verifies it: a
// directory, not a symlink, owned by the caller, mode 0700.
func OpenHome(dir string) (Home, error) {
	err := os.Mkdir(dir, 0o700)
	switch {
	case err == nil:
		if err := os.Chmod(dir, 0o700); err != nil { // whatever the umask
			return Home{}, err
		}
	case !errors.Is(err, fs.ErrExist):
		return Home{}, &BadHome{Dir: dir, Why: "cannot be made: " + reason(err), Do: "set CAST_HOME to a directory that you may write"}
	}
	return FindHome(dir)
}

// FindHome verifies an existing home directory. It returns an error matching
// [ErrNoHome] if there is none.
func FindHome(dir string) (Home, error) {
	if !filepath.IsAbs(dir) {
		return Home{}, &BadHome{Dir: dir, Why: "the path is not absolute", Do: "give an absolute path"}
	}
	if err := checkPrivate(dir); err != nil {
		return Home{}, err
	}
	return Home{dir: dir}, nil
}

// checkPrivate verifies that a directory is the caller's alone.
func checkPrivate(dir string) error {
	st, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNoHome, dir)
	}
	if err != nil {
		return &BadHome{Dir: dir, Why: reason(err), Do: "set CAST_HOME to a directory that you may read"}
	}
	switch sys := st.Sys().(*syscall.Stat_t); {
	case st.Mode()&fs.ModeSymlink != 0:
		return &BadHome{Dir: dir, Why: "it is a symbolic link", Do: "set CAST_HOME to the directory that it points to"}
	case !st.IsDir():
		return &BadHome{Dir: dir, Why: "it is not a directory", Do: "set CAST_HOME to a directory"}
	case int(sys.Uid) != os.Geteuid():
		return &BadHome{Dir: dir, Why: fmt.Sprintf("it belongs to user %d, not to you (%d)", sys.Uid, os.Geteuid()), Do: "set CAST_HOME to a directory of your own"}
	case st.Mode().Perm() != 0o700:
		return &BadHome{Dir: dir, Why: fmt.Sprintf("its mode is %04o, so others could reach the agents", st.Mode().Perm()), Do: "chmod 700 " + dir}
	}
	return nil
}

// reason is the last part of an error: what the system said.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// Dir is the home's path.
func (h Home) Dir() string { return h.dir }

// IsZero reports whether h is no home.
func (h Home) IsZero() bool { return h.dir == "" }

// Inode is the home directory's inode, by which a replaced home is noticed.
func (h Home) Inode() (uint64, error) { return inodeOf(h.dir) }

// Files and folders of the home.

// ServerFile is the supervisor's record.
func (h Home) ServerFile() string { return filepath.Join(h.dir, "server.json") }

// RegistryFile is the bbolt database.
func (h Home) RegistryFile() string { return filepath.Join(h.dir, "registry.db") }

// DaemonLock is held for the supervisor's life.
func (h Home) DaemonLock() string { return filepath.Join(h.dir, "daemon.lock") }

// StartLock is held while a supervisor is being started.
func (h Home) StartLock() string { return filepath.Join(h.dir, "start.lock") }

// RecordLock is held for an instant by every publication and removal of the
// supervisor's record.
func (h Home) RecordLock() string { return filepath.Join(h.dir, "record.lock") }

// LogDir holds the rotated logs.
func (h Home) LogDir() string { return filepath.Join(h.dir, "log") }

// Instances is the folder of the instances' folders.
func (h Home) Instances() string { return filepath.Join(h.dir, "instances") }

// Instance is one instance's folder.
func (h Home) Instance(id string) Folder { return Folder(filepath.Join(h.Instances(), id)) }

// InstanceIDs lists the instances that have a folder.
func (h Home) InstanceIDs() ([]string, error) {
	entries, err := os.ReadDir(h.Instances())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// Folder is one instance's folder.
type Folder string

// Path is the folder itself.
func (f Folder) Path() string { return string(f) }

// SpecFile is instance.json: spec, name and wanted state, no secrets.
func (f Folder) SpecFile() string { return filepath.Join(string(f), "instance.json") }

// HostFile is host.json, the host's record.
func (f Folder) HostFile() string { return filepath.Join(string(f), "host.json") }

// AliveLock is held for the host's life.
func (f Folder) AliveLock() string { return filepath.Join(string(f), "alive.lock") }

// AgentLock is held by the agent, which inherits its descriptor.
func (f Folder) AgentLock() string { return filepath.Join(string(f), "agent.lock") }

// ExitFile is exit.json: how the agent's last run ended.
func (f Folder) ExitFile() string { return filepath.Join(string(f), "exit.json") }

// ExitNotes is exits.log: ends of runs that exit.json does not hold yet.
func (f Folder) ExitNotes() string { return filepath.Join(string(f), "exits.log") }

// EnvFile is env.json: the agent's environment, secrets included.
func (f Folder) EnvFile() string { return filepath.Join(string(f), "env.json") }

// Journal is the folder of the instance's events.
func (f Folder) Journal() string { return filepath.Join(string(f), "journal") }

// StderrLog holds what the agent wrote to its standard error, capped.
func (f Folder) StderrLog() string { return filepath.Join(string(f), "stderr.log") }

// HostLog holds the host's own troubles.
func (f Folder) HostLog() string { return filepath.Join(string(f), "host.log") }

// Inode is the folder's inode, by which a replaced folder is noticed.
func (f Folder) Inode() (uint64, error) { return inodeOf(string(f)) }

// Make makes the folder, private whatever the umask. It is no error if it is
// there already.
func (f Folder) Make() error { return MakeDir(string(f)) }

// MakeDir makes a private directory and its parents inside a home.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// SpecFile is instance.json. The supervisor writes it after each commit, the
// host reads it at start, and a lost registry is rebuilt from it. It holds no
// environment values.
type SpecFile struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	Wanted      wire.Wanted `json:"wanted"`
	Revision    int         `json:"revision"`
	Incarnation string      `json:"incarnation"` // of the host that was last chosen
	Registry    string      `json:"registry"`    // uuid of the registry that wrote this
	Spec        wire.Spec   `json:"spec"`
	EnvNames    []string    `json:"env_names"`
	Over        wire.State  `json:"over,omitzero"` // finished or failed, once it is
	Reason      string      `json:"reason,omitzero"`
	Automatic   bool        `json:"automatic,omitzero"` // this host takes the place of a lost one
}

// ReadSpec reads an instance's spec file.
func ReadSpec(f lease.Folder) (SpecFile, error) {
	var s SpecFile
	err := lease.ReadJSON(f.SpecFile(), &s)
	if err == nil && (s.ID == "" || !wire.ValidName(s.Name) || len(s.Spec.Argv) == 0) {
		err = fmt.Errorf("%w: %s", lease.ErrGarbage, f.SpecFile())
	}
	return s, err
}

// ExitFile is exit.json: how the agent's last run ended, durable before it is
// told to anybody.
type ExitFile struct {
	wire.Exit
	Incarnation string     `json:"incarnation"`
	Reason      string     `json:"reason"`
	StderrTail  []string   `json:"stderr_tail"`
	Over        wire.State `json:"over,omitzero"` // stopped, finished or failed if no further run follows
	Why         string     `json:"why,omitzero"`  // the reason of that
	// Untold are the exits of earlier runs that do not stand in the journal yet:
	// a crash loop can be faster than the disk.
	Untold []ExitFile `json:"untold,omitempty"`
}

// ReadExit reads how an instance's last run ended; ok is false if nothing that
// can be understood says so.
func ReadExit(f lease.Folder) (e ExitFile, ok bool) {
	notes := readNotes(f) // first: they are cleared once the file has what they say
	if lease.ReadJSON(f.ExitFile(), &e) != nil {
		e = ExitFile{}
	}
	e = withNotes(e, notes)
	return e, e.Run > 0
}

// WriteEnv stores an agent's environment, for restarts without a caller.
func WriteEnv(f lease.Folder, env map[string]string) error { return lease.WriteJSON(f.EnvFile(), env) }

// ReadEnv reads an agent's stored environment.
func ReadEnv(f lease.Folder) (map[string]string, error) {
	var env map[string]string
	err := lease.ReadJSON(f.EnvFile(), &env)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("its environment was not kept: start it again by hand")
	}
	return env, err
}

// ReadEnvFile reads a file of NAME=VALUE lines. Blank lines and lines that
// begin with # are skipped, an "export " in front is allowed, and a value may
// stand in single or double quotes, which are taken off.
func ReadEnvFile(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t\x00") || strings.Contains(value, "\x00") {
			return nil, fmt.Errorf("%s:%d: not NAME=VALUE", path, n)
		}
		env[name] = unquote(strings.TrimSpace(value))
	}
	return env, nil
}

func unquote(v string) string {
	if len(v) >= 2 && (v[0] == '"' || v[0] == '\'') && v[len(v)-1] == v[0] {
		return v[1 : len(v)-1]
	}
	return v
}

// scrubbed are the variables that describe the starter's own relation to its
// service manager or to Cast, and would lie to an agent.
func scrubbed(name string) bool {
	return strings.HasPrefix(name, "CAST_") || strings.HasPrefix(name, "LISTEN_") ||
		name == "NOTIFY_SOCKET" || name == "INVOCATION_ID" || name == "JOURNAL_STREAM"
}

// AgentEnv makes an agent's environment: the stored variables, those of the env
// file that are not among them, and the mark by which its tree is found.
func AgentEnv(home, id string, stored, file map[string]string) []string {
	env := map[string]string{}
	maps.Copy(env, file)
	maps.Copy(env, stored)
	maps.DeleteFunc(env, func(name, _ string) bool { return scrubbed(name) })
	env["CAST_INSTANCE"] = id
	env["CAST_HOME"] = home
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// CallerEnv is what `start` carries of a caller's environment.
func CallerEnv(environ []string) map[string]string {
	env := map[string]string{}
	for _, v := range environ {
		name, value, ok := strings.Cut(v, "=")
		if ok && name != "" && !scrubbed(name) {
			env[name] = value
		}
	}
	return env
}

// LookPath finds the program that a command line names, in the agent's own PATH
// and relative to its own directory, as its shell would.
func LookPath(argv0, cwd string, env map[string]string) (string, error) {
	if strings.Contains(argv0, "/") {
		path := argv0
		if path[0] != '/' {
			path = cwd + "/" + path
		}
		return path, executable(path)
	}
	for _, dir := range strings.Split(env["PATH"], ":") {
		if dir == "" {
			dir = "."
		}
		if dir[0] != '/' {
			dir = cwd + "/" + dir
		}
		path := dir + "/" + argv0
		if executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: not found in PATH", argv0)
}

func executable(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such program", path)
	case err != nil:
		return fmt.Errorf("%s: %w", path, errors.Unwrap(err))
	case st.IsDir():
		return fmt.Errorf("%s: is a directory", path)
	case st.Mode()&0o111 == 0:
		return fmt.Errorf("%s: is not executable", path)
	}
	return nil
}

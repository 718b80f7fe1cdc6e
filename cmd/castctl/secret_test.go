package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
)

// TestSecrets (T28, K18): a token and an agent's key are only where the design
// allows: server.json and env.json, both private, and the agent's own
// environment. Not in any command line, log, registry, event, status or error.
func TestSecrets(t *testing.T) {
	w := newWorld(t)
	const canary = "CANARY-5f1e6c"
	w.env = append(w.env, "API_KEY="+canary)
	seen := &strings.Builder{}
	say := func(r result) { seen.WriteString(r.stdout + r.stderr) }
	say(w.cast("start", "a", "--env", "OTHER="+canary, "--", "sleep", "100000"))
	say(w.cast("start", "bad", "--env", "OTHER="+canary, "--", "no-such-program"))
	say(w.cast("start", "failing", "--", "sh", "-c", "exit 3"))
	say(w.cast("restart", "a"))
	for _, args := range [][]string{
		{"status"},
		{"status", "--json"},
		{"get", "a", "--json"},
		{"events"},
		{"events", "a"},
		{"logs", "a"},
		{"orphans", "--all"},
		{"doctor"},
		{"version", "--json"},
		{"set", "a", "restart=always"},
		{"sweep"},
		{"stop", "a"},
	} {
		say(w.cast(args...))
	}
	home, err := lease.FindHome(w.home)
	if err != nil {
		t.Fatal(err)
	}
	server, err := home.ReadServer()
	if err != nil {
		t.Fatal(err)
	}
	for what, secret := range map[string]string{"the key": canary, "the token": server.Token} {
		if strings.Contains(seen.String(), secret) {
			t.Errorf("%s was printed", what)
		}
		for _, id := range w.processes() {
			if strings.Contains(commandLine(id.PID), secret) {
				t.Errorf("%s stands in the command line of %d", what, id.PID)
			}
			env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", id.PID))
			agent := strings.HasPrefix(commandLine(id.PID), "sleep") || strings.HasPrefix(commandLine(id.PID), "sh ")
			if bytes.Contains(env, []byte(secret)) && !agent {
				t.Errorf("%s stands in the environment of %s", what, commandLine(id.PID))
			}
		}
	}
	w.scanFiles(canary, "env.json")
	w.scanFiles(server.Token, "server.json")
	if out := w.must("status", "a", "--json"); !strings.Contains(out, `"API_KEY"`) {
		t.Error("status does not name the variable")
	}
}

// scanFiles looks for a secret in every file of the home but the one kind where
// it belongs.
func (w *world) scanFiles(secret, allowed string) {
	w.t.Helper()
	err := filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(b, []byte(secret)) && filepath.Base(path) != allowed {
			w.t.Errorf("a secret stands in %s", path)
		}
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
}

// environment returns what the agent of an instance was started with.
func (w *world) environment(name string) map[string]string {
	w.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", *w.instance(name).PID))
	if err != nil {
		w.t.Fatal(err)
	}
	env := map[string]string{}
	for _, v := range strings.Split(string(b), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}

// TestEnvironment (P33): an agent's environment is its starter's, with what was
// declared on top; a removed variable is gone at the next start by hand; the
// service manager's and Cast's own never get in; a file is read anew.
func TestEnvironment(t *testing.T) {
	w := newWorld(t)
	plain := w.env
	file := filepath.Join(w.base, "env")
	writeFile(t, file, "# a comment\nFROM_FILE=one\nexport QUOTED='two words'\nBOTH=file\n")
	w.env = append(plain, "OLD=yes", "BOTH=caller", "NOTIFY_SOCKET=/x", "LISTEN_FDS=3", "INVOCATION_ID=1", "JOURNAL_STREAM=1", "CAST_SECRET=1")
	w.must("start", "a", "--restart", "always", "--env-file", file, "--env", "DECLARED=1", "--", "sleep", "100000")
	env := w.environment("a")
	for name, want := range map[string]string{
		"OLD": "yes", "FROM_FILE": "one", "QUOTED": "two words", "BOTH": "file", "DECLARED": "1",
		"NOTIFY_SOCKET": "", "LISTEN_FDS": "", "INVOCATION_ID": "", "JOURNAL_STREAM": "", "CAST_SECRET": "", "CAST_HOME": w.home,
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	if env["CAST_INSTANCE"] != w.instance("a").ID {
		t.Errorf("the mark is %q", env["CAST_INSTANCE"])
	}
	// A restart by policy takes the stored environment, but reads the file anew.
	writeFile(t, file, "FROM_FILE=changed\n")
	w.env = plain
	run := w.instance("a").Run
	kill9(t, identity(t, w.instance("a").PID))
	until(t, "it runs again", func() bool { in := w.instance("a"); return in.PID != nil && in.Run > run })
	if env = w.environment("a"); env["FROM_FILE"] != "changed" || env["OLD"] != "yes" {
		t.Errorf("after a restart by policy: FROM_FILE %q, OLD %q", env["FROM_FILE"], env["OLD"])
	}
	// A restart by hand takes the caller's.
	w.must("restart", "a")
	if env = w.environment("a"); env["OLD"] != "" || env["DECLARED"] != "" {
		t.Errorf("after a restart by hand: OLD %q, DECLARED %q", env["OLD"], env["DECLARED"])
	}
	// So does the next supervisor's: its own environment is never an agent's.
	w.must("down")
	w.env = append(plain, "SUPERVISORS_OWN=1")
	w.must("sweep")
	w.env = plain
	old := identity(t, w.instance("a").HostPID)
	kill9(t, old)
	until(t, "it runs in another host", func() bool {
		in := w.instance("a")
		return in.State == "running" && in.HostPID != nil && *in.HostPID != old.PID
	})
	if env = w.environment("a"); env["SUPERVISORS_OWN"] != "" {
		t.Error("the supervisor's environment got into an agent")
	}
	w.must("start", "clean", "--env-clean", "--env", "PATH="+os.Getenv("PATH"), "--env", markName+"="+w.mark, "--", "sleep", "100000")
	if env = w.environment("clean"); len(env) > 5 {
		t.Errorf("a clean environment: %v", env)
	}
	if b, err := json.Marshal(w.instance("a").EnvNames); err != nil || strings.Contains(string(b), w.mark) {
		t.Errorf("status shows values: %s", b)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNotText: what JSON cannot carry is refused with its name before anything
// has changed; and a process elsewhere whose arguments are no text is shown.
func TestNotText(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "BROKEN=\xff")
	if line := w.refused(exitRefused, "start", "a", "--", "sleep", "100000"); !strings.Contains(line, "env.BROKEN") || !strings.Contains(line, "not UTF-8") {
		t.Errorf("it says %q", line)
	}
	if st := w.status(); len(st.Instances) != 0 {
		t.Errorf("instances: %+v", st.Instances)
	}
	if line := w.refused(exitRefused, "start", "a", "--env-clean", "--", "echo", "\xff"); !strings.Contains(line, "spec.argv.1") {
		t.Errorf("it says %q", line)
	}

	odd := exec.Command("sh", "-c", "read x", "\xff\x1b[31m")
	odd.Env = []string{"CAST_INSTANCE=x"}
	if _, err := odd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := odd.Start(); err != nil {
		t.Fatal(err)
	}
	defer odd.Wait()
	defer odd.Process.Kill()
	until(t, "its arguments are shown as text", func() bool { // its program may only just be starting
		in, err := proc.Describe(odd.Process.Pid)
		return err == nil && len(in.Args) > 0 && in.Args[len(in.Args)-1] == "\uFFFD\x1b[31m"
	})
}

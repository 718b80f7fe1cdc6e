//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/wire"
)

// user is a person with a home, the built programs, and the installed agents.
type user struct {
	t      *testing.T
	dir    string
	bin    string // folder of the built programs
	env    []string
	agents string
}

func newUser(t *testing.T) *user {
	t.Helper()
	agents := os.Getenv("CAST_E2E")
	if agents == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		agents = filepath.Join(cache, "cast-e2e")
	}
	if _, err := os.Stat(filepath.Join(agents, "node_modules")); err != nil {
		t.Fatalf("the agents are not installed: run e2e/install.sh (%v)", err)
	}
	dir, err := os.MkdirTemp("", "cast")
	if err != nil {
		t.Fatal(err)
	}
	bin, err := filepath.Abs("../bin")
	if err != nil {
		t.Fatal(err)
	}
	u := &user{t: t, dir: dir, bin: bin, agents: agents}
	u.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "CAST_HOME=" + filepath.Join(dir, "home"), "E2E_MARK=" + dir}
	t.Cleanup(func() {
		u.must("down", "--all")
		if left := u.marked(); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
		os.RemoveAll(dir)
	})
	return u
}

func (u *user) run(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(u.bin, "castctl"), args...)
	cmd.Env, cmd.Dir = u.env, u.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (u *user) must(args ...string) string {
	u.t.Helper()
	out, err := u.run(args...)
	if err != nil {
		u.t.Fatalf("castctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (u *user) instance(name string) wire.Instance {
	u.t.Helper()
	var in wire.Instance
	if err := json.Unmarshal([]byte(u.must("status", name, "--json")), &in); err != nil {
		u.t.Fatal(err)
	}
	return in
}

// marked lists what lives of this user's agents.
func (u *user) marked() []string {
	pids, err := proc.PIDs()
	if err != nil {
		u.t.Fatal(err)
	}
	var out []string
	for _, pid := range pids {
		if pid != os.Getpid() && proc.Marked(pid, "E2E_MARK", u.dir) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			out = append(out, fmt.Sprintf("%d %s", pid, strings.ReplaceAll(string(b), "\x00", " ")))
		}
	}
	return out
}

func (u *user) until(what string, holds func() bool) {
	u.t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	over := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-look.C:
		case <-over:
			u.t.Fatalf("not within two minutes: %s\n%s", what, u.must("status"))
		}
	}
}

// command is how each agent is started.
func (u *user) command(agent string) []string {
	node := filepath.Join(u.agents, "node_modules", ".bin", "node")
	switch agent {
	case "acp":
		return []string{node, filepath.Join(u.agents, "node_modules/@agentclientprotocol/sdk/dist/examples/agent.js")}
	case "pi":
		models := filepath.Join(u.dir, ".pi", "agent")
		if err := os.MkdirAll(models, 0o700); err != nil {
			u.t.Fatal(err)
		}
		const fake = `{"providers":{"fake":{"baseUrl":"http://127.0.0.1:9/v1","api":"openai-completions","apiKey":"fake","models":[{"id":"fake-1","contextWindow":128000,"maxTokens":4096}]}}}`
		if err := os.WriteFile(filepath.Join(models, "models.json"), []byte(fake), 0o600); err != nil {
			u.t.Fatal(err)
		}
		u.env = append(u.env, "PI_OFFLINE=1", "PI_SKIP_VERSION_CHECK=1", "PI_TELEMETRY=0")
		return []string{
			node, filepath.Join(u.agents, "node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js"), "--mode", "rpc", "--provider", "fake", "--model", "fake-1",
		}
	}
	u.t.Fatalf("there is no agent %s", agent)
	return nil
}

// TestForeignAgents: the ACP SDK's example agent and pi in rpc mode run as
// instances: visible with the memory of their trees, killed and restarted by
// policy, stopped with nothing left.
func TestForeignAgents(t *testing.T) {
	for _, agent := range []string{"acp", "pi"} {
		t.Run(agent, func(t *testing.T) {
			u := newUser(t)
			argv := u.command(agent)
			u.must(append([]string{"start", agent, "--dialect", "plain", "--"}, argv...)...)
			u.until("its memory is shown", func() bool {
				in := u.instance(agent)
				return in.State == wire.Running && in.RSSBytes != nil && *in.RSSBytes > 20<<20
			})
			t.Logf("\n%s", u.must("status"))
			before := u.instance(agent)
			id, err := proc.Of(*before.PID)
			if err != nil {
				t.Fatal(err)
			}
			if err := id.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			u.until("it runs again", func() bool {
				in := u.instance(agent)
				return in.State == wire.Running && in.Run == before.Run+1 && *in.PID != *before.PID
			})
			u.until("it is loaded again", func() bool {
				in := u.instance(agent)
				return in.RSSBytes != nil && *in.RSSBytes > 20<<20
			})
			if n := len(u.marked()); n == 0 {
				t.Error("the agent's processes do not carry its environment")
			}
			t.Log(u.must("stop", agent))
			if left := u.marked(); len(left) > 0 {
				t.Errorf("after the stop: %v", left)
			}
			if in := u.instance(agent); in.State != wire.Stopped || in.PID != nil {
				t.Errorf("it is %s", in.State)
			}
		})
	}
}

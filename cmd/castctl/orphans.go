package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func orphansCommand() *cli.Command {
	return &cli.Command{
		Name: "orphans", Usage: "list what lives and nobody owns",
		Description: "Lists hosts that the registry does not name. With --all also every known agent process on this machine\n" +
			"that has no terminal and no supervisor.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "also agent processes outside of Cast"}, jsonFlag},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return usage{"orphans takes no arguments"}
			}
			return orphans(c)
		},
	}
}

// orphanList is what orphans --json prints.
type orphanList struct {
	Hosts     []wire.Orphan  `json:"hosts"`
	Processes []orphanedProc `json:"processes"`
	RSSBytes  int64          `json:"rss_bytes"`
}

// orphanedProc is a known agent that nobody owns.
type orphanedProc struct {
	PID        int      `json:"pid"`
	StartTicks uint64   `json:"start_ticks"`
	Agent      string   `json:"agent"`
	Args       []string `json:"args"`
	RSSBytes   int64    `json:"rss_bytes"`
	Since      string   `json:"since"`
}

func orphans(c *cli.Context) error {
	home, ok, err := findHome(c)
	if err != nil {
		return err
	}
	list := orphanList{Hosts: []wire.Orphan{}, Processes: []orphanedProc{}}
	if ok {
		raw, silent, err := fleetStatus(c.Context, home)
		if silent != nil { // it alone knows which hosts have a name
			err = wire.Errorf(wire.Unavailable, "the supervisor does not answer: %v", silent)
		}
		if err != nil {
			return err
		}
		var st wire.Status
		if err := json.Unmarshal(raw, &st); err != nil {
			return err
		}
		list.Hosts = append(list.Hosts, unowned(st)...)
	}
	if c.Bool("all") {
		if list.Processes, err = agentProcesses(home); err != nil {
			return err
		}
	}
	for _, o := range list.Hosts {
		if o.RSSBytes != nil {
			list.RSSBytes += *o.RSSBytes
		}
	}
	for _, p := range list.Processes {
		list.RSSBytes += p.RSSBytes
	}
	if c.Bool("json") {
		return printJSON(c, list)
	}
	return printOrphans(c, list)
}

// unowned is the hosts without a lease. Without a supervisor nobody has one.
func unowned(st wire.Status) []wire.Orphan {
	out := st.Orphans
	if st.Supervisor != nil {
		return out
	}
	for _, in := range st.Instances {
		if in.HostPID == nil {
			continue
		}
		o := wire.Orphan{ID: in.ID, Name: in.Name, PID: in.PID, HostPID: *in.HostPID, RSSBytes: in.RSSBytes, Holds: in.Holds}
		if in.StartedAt != nil {
			o.Since = *in.StartedAt
		}
		out = append(out, o)
	}
	return out
}

// knownAgents are programs that are agents, by the last part of their path.
// Only this listing looks at names; nothing is ever signalled because of one.
var knownAgents = []string{
	"pi", "claude", "claude-code", "codex", "gemini", "opencode", "aider", "goose", "amp", "crush", "cursor-agent", "copilot", "qwen",
	"droid", "kimi", "auggie", "claude-agent-acp", "claude-code-acp", "supercast-agent",
}

// agentProcesses lists the known agents that no terminal and no supervisor
// owns: their parent is init or a foreign subreaper, and they have no terminal.
func agentProcesses(home lease.Home) ([]orphanedProc, error) {
	pids, err := proc.PIDs()
	if err != nil {
		return nil, err
	}
	spared := host.CastProcesses(home)
	out := []orphanedProc{}
	for _, pid := range pids {
		in, err := proc.Describe(pid)
		if err != nil || in.Terminal != "" || len(in.Args) == 0 {
			continue
		}
		agent := agentName(in.Args)
		if agent == "" || spared(pid) || !proc.Adoptive(in.PPID) {
			continue
		}
		id, err := proc.Of(pid)
		if err != nil {
			continue
		}
		out = append(out, orphanedProc{
			PID: pid, StartTicks: id.StartTicks, Agent: agent, Args: in.Args, RSSBytes: in.RSS, Since: in.Started.UTC().Format("2006-01-02T15:04:05Z"),
		})
	}
	return out, nil
}

// agentName recognises an agent by its program, or by the script that an
// interpreter runs.
func agentName(args []string) string {
	for _, a := range args[:min(3, len(args))] {
		if strings.HasPrefix(a, "-") {
			continue
		}
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(a), ".js"), ".mjs")
		if slices.Contains(knownAgents, name) {
			return name
		}
		for _, dir := range strings.Split(filepath.ToSlash(a), "/") {
			if slices.Contains([]string{"pi-coding-agent", "claude-code", "codex", "gemini-cli", "opencode-ai"}, dir) {
				return dir
			}
		}
	}
	return ""
}

func printOrphans(c *cli.Context, l orphanList) error {
	w := c.App.Writer
	if len(l.Hosts)+len(l.Processes) == 0 {
		fmt.Fprintln(w, "no orphans")
		return nil
	}
	var rows [][]string
	for _, o := range l.Hosts {
		rows = append(rows, []string{o.ID, "host", plain(o.Name), strconv.Itoa(o.HostPID), age(o.Since), size(o.RSSBytes), holdNote(o.Holds)})
	}
	for _, p := range l.Processes {
		rows = append(rows, []string{fmt.Sprintf("%d:%d", p.PID, p.StartTicks), "process", p.Agent, strconv.Itoa(p.PID), p.Since, size(&p.RSSBytes), plain(strings.Join(p.Args, " "))})
	}
	if err := table(w, []string{"ID", "KIND", "NAME", "PID", "SINCE", "RSS", "NOTE"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s in all\n", size(&l.RSSBytes))
	return nil
}

func holdNote(holds []wire.Hold) string {
	if len(holds) == 0 {
		return "idle"
	}
	h := holds[0]
	pid := ""
	if h.PID != nil {
		pid = fmt.Sprintf(" pid %d", *h.PID)
	}
	return fmt.Sprintf("held by %s%s since %s: %s", h.Kind, pid, age(h.Since), plain(h.Label))
}

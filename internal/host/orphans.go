package host

import (
	"context"
	"os"
	"syscall"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
)

// OrphansOf lists the processes that a dead host left: its agent, by verified
// identity; whatever carries the instance's mark in its environment; whatever
// holds the agent's lock, which only the agent's tree inherits; and all that
// descends from these. Cast's own processes are spared, with all beneath them.
func OrphansOf(home lease.Home, id string, agent *proc.Identity) []proc.Identity {
	spared := CastProcesses(home)
	self := os.Getpid()
	found := map[int]bool{}
	add := func(pid int) {
		if pid == self || pid <= 1 || found[pid] || spared(pid) {
			return
		}
		found[pid] = true
		for _, p := range proc.Tree(pid, spared) {
			if p != self {
				found[p] = true
			}
		}
	}
	if agent != nil && agent.Verdict() == proc.Alive {
		add(agent.PID)
	}
	pids, err := proc.PIDs()
	if err == nil {
		for _, pid := range pids {
			if proc.Marked(pid, "CAST_INSTANCE", id) {
				add(pid)
			}
		}
	}
	for _, pid := range proc.Holders(home.Instance(id).AgentLock()) {
		add(pid)
	}
	var out []proc.Identity
	for pid := range found {
		if who, err := proc.Of(pid); err == nil {
			out = append(out, who)
		}
	}
	return out
}

// EndOrphans kills what a dead host left, until nothing is left or the context
// ends, and returns what could not be ended.
func EndOrphans(ctx context.Context, home lease.Home, id string, agent *proc.Identity) []proc.Survivor {
	for {
		orphans := OrphansOf(home, id, agent)
		if len(orphans) == 0 {
			return nil
		}
		var left []proc.Survivor
		for _, who := range orphans {
			if err := who.Signal(syscall.SIGKILL); err != nil && who.Verdict() != proc.Gone {
				left = append(left, proc.Survivor{PID: who.PID, Err: err})
			}
		}
		for _, who := range orphans {
			if err := who.Kill(); err != nil {
				left = append(left, proc.Survivor{PID: who.PID, Err: err})
			}
		}
		if len(left) > 0 || ctx.Err() != nil {
			return left
		}
	}
}

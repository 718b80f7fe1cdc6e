package proc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Tree lists every process beneath root, root itself not included, as far as
// parents still show it. Processes that prune names are left out with all
// beneath them; prune may be nil.
func Tree(root int, prune func(pid int) bool) []int {
	var out []int
	todo := []int{root}
	seen := map[int]bool{root: true}
	for len(todo) > 0 {
		parent := todo[0]
		todo = todo[1:]
		for _, pid := range Children(parent) {
			if seen[pid] || prune != nil && prune(pid) {
				continue
			}
			seen[pid] = true
			out = append(out, pid)
			todo = append(todo, pid)
		}
	}
	return out
}

// Living leaves out the processes that are dead already, zombies included.
func Living(pids []int) []int {
	return slices.DeleteFunc(pids, func(pid int) bool {
		_, dead, err := parentOf(pid)
		return dead || err != nil
	})
}

// Marked reports whether a process was started with the variable name=value in
// its environment.
func Marked(pid int, name, value string) bool {
	env, err := environ(pid)
	if err != nil {
		return false
	}
	want := []byte(name + "=" + value)
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(v, want) {
			return true
		}
	}
	return false
}

// Survivor is a process that could not be ended.
type Survivor struct {
	PID int
	Err error
}

// EndTree kills every process beneath the calling one that prune does not
// spare, those that left the group or the session included, and reaps what
// falls to the caller, until nothing is left or the context ends. It must be
// the subreaper of the tree. owned names children whose status another
// goroutine collects; they are killed but not reaped here.
//
// What may not be signalled (a setuid program) is returned.
func EndTree(ctx context.Context, prune, owned func(pid int) bool) []Survivor {
	self := os.Getpid()
	for {
		ReapAdopted(owned)
		tree := Living(Tree(self, prune))
		if len(tree) == 0 {
			return nil
		}
		left := killAll(self, tree)
		if len(left) == len(tree) || ctx.Err() != nil {
			return left
		}
	}
}

// ReapAdopted collects the dead among the caller's own children, except those
// whose status another goroutine collects.
func ReapAdopted(owned func(pid int) bool) {
	for _, pid := range Children(os.Getpid()) {
		if owned == nil || !owned(pid) {
			Reap(pid)
		}
	}
}

// killAll sends SIGKILL to each process that still hangs beneath root, and
// waits until it is dead. Each is verified through an open handle: its parent
// must be in the tree, so a PID that was reused since the list was read is
// spared.
func killAll(root int, tree []int) []Survivor {
	var left []Survivor
	for _, pid := range tree {
		id, err := Of(pid)
		if err != nil {
			continue // it ended meanwhile
		}
		p, v := id.Open()
		if p == nil {
			if v != Gone {
				left = append(left, Survivor{PID: pid, Err: &NotSignalled{PID: pid, Verdict: v}})
			}
			continue
		}
		if parent, _, err := parentOf(pid); err == nil && (parent == root || slices.Contains(tree, parent)) {
			if err := p.kill(); err != nil {
				left = append(left, Survivor{PID: pid, Err: err})
			}
		}
		p.Close()
	}
	return left
}

// killBound is how long a process may take to die of SIGKILL before it counts
// as a survivor: it is in an uninterruptible wait then.
const killBound = 3 * time.Second

// kill ends the process and waits until it is dead.
func (p *Process) kill() error {
	err := p.Signal(syscall.SIGKILL)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), killBound)
	defer cancel()
	return p.Wait(ctx)
}

// Kill ends the process that the identity names and waits until it is dead. A
// process that is gone already is no error.
func (id Identity) Kill() error {
	p, v := id.Open()
	if p == nil {
		if v == Gone {
			return nil
		}
		return &NotSignalled{PID: id.PID, Verdict: v}
	}
	defer p.Close()
	return p.kill()
}

// Zombies counts the dead children that a process has not collected.
func Zombies(pid int) int {
	n := 0
	for _, child := range Children(pid) {
		if _, dead, err := parentOf(child); err == nil && dead {
			n++
		}
	}
	return n
}

// Adoptive reports whether a process is one that orphans fall to: init, or a
// user's service manager.
func Adoptive(pid int) bool {
	if pid <= 1 {
		return true
	}
	in, err := Describe(pid)
	if err != nil || len(in.Args) == 0 {
		return false
	}
	name := filepath.Base(in.Args[0])
	return name == "systemd" || name == "init" || name == "launchd" || name == "tini" || name == "docker-init" || name == "dumb-init"
}

package host

import (
	"context"
	"os"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// holdTasks opens a hold for each process that was born during the turn and
// outlives it: a background command. What lived before, such as a tool server
// that the agent keeps, holds nothing. The spec may say that all descendants
// hold, or none. It is judged at this moment, not by polling; each hold ends
// with its process.
func (h *Host) holdTasks(t *turn) {
	if h.file.Spec.Children == wire.ChildrenIgnore || h.life.current == nil {
		return
	}
	agent := h.life.current.sub.Child().PID()
	for _, pid := range proc.Living(proc.Tree(os.Getpid(), h.spared())) {
		if pid == agent || t.born[pid] && h.file.Spec.Children != wire.ChildrenHold {
			continue
		}
		h.holdTask(pid)
	}
}

func (h *Host) holdTask(pid int) {
	for _, r := range h.holds.List() {
		if r.Kind == lease.Task && r.PID == pid {
			return
		}
	}
	id, err := proc.Of(pid)
	if err != nil {
		return
	}
	p, _ := id.Open()
	if p == nil {
		return
	}
	hold, err := h.holds.Take(lease.Task, command(pid), pid)
	if err != nil {
		p.Close()
		return
	}
	go func() {
		defer p.Close()
		p.Wait(context.Background())
		hold.Release()
	}()
}

package host

import (
	"time"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// ExitOf makes the wire form of how a run ended.
func ExitOf(run int, e proc.Exit) wire.Exit {
	out := wire.Exit{Run: run, At: wire.Now()}
	if e.Signal != 0 {
		out.Signal = wire.Ptr(int(e.Signal))
	} else {
		out.Code = wire.Ptr(e.Code)
	}
	return out
}

// record tells a run's end, in the order: its last words, the durable file, the
// event. It does not hold up the next run's start, only its output.
func (h *Host) record(r *run, exit proc.Exit, d Decision) {
	done := make(chan struct{})
	before := h.life.recorded
	h.life.recorded = done
	file := ExitFile{Exit: ExitOf(r.n, exit), Incarnation: h.cfg.Incarnation, Reason: exit.String(), Over: d.Over, Why: d.Reason}
	h.life.exit = &file.Exit
	go func() {
		<-r.sub.Ended()
		if before != nil {
			<-before
		}
		file.StderrTail = r.sub.StderrTail(tailLines)
		h.errors.flush()
		h.writeExit(file)
		h.post(func() {
			h.tellExit(file)
			h.forgetRun(r)
			if d.Over != "" {
				h.life.over, h.life.reason = d.Over, d.Reason
			}
			close(done)
			h.dirty.Store(true)
		})
	}()
}

func (h *Host) forgetRun(r *run) {
	for i, e := range h.life.ending {
		if e == r {
			h.life.ending = append(h.life.ending[:i:i], h.life.ending[i+1:]...)
			return
		}
	}
}

// writeExit makes the exit durable. While the disk is full it tries again, but
// not for ever: a stop must not hang on it.
func (h *Host) writeExit(file ExitFile) {
	crashpoint.At("host.exit.write")
	for pause := 20 * time.Millisecond; pause < 3*time.Second; pause *= 2 {
		err := lease.WriteJSON(h.folder.ExitFile(), file)
		if err == nil {
			return
		}
		h.cfg.Log.Error("the exit could not be written", "run", file.Run, "err", err)
		select {
		case <-h.done:
			return
		case <-time.After(pause):
		}
	}
}

// tellExit appends the exit event, once for each run whoever notices it.
func (h *Host) tellExit(file ExitFile) {
	crashpoint.At("host.exit.event")
	if h.memory.Exited(file.Run) {
		h.emit(exitEvent(file))
	}
}

func exitEvent(file ExitFile) wire.Event {
	tail := file.StderrTail
	if tail == nil {
		tail = []string{}
	}
	return wire.NewEvent(wire.EventExit, wire.ExitData{Exit: file.Exit, Reason: file.Reason, StderrTail: tail})
}

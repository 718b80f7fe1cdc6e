package host

import (
	"slices"
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

// note writes an exit down at once, before anything else is started. It costs
// no wait for the disk: whoever kills this process cannot undo it.
func (h *Host) note(file ExitFile) {
	h.life.untold = append(h.life.untold, file)
	if err := appendNote(h.folder, file); err != nil {
		h.cfg.Log.Error("the exit could not be noted", "run", file.Run, "err", err)
	}
}

// record tells a run's end, in the order: its last words, the durable file, the
// event. It does not hold up the next run's start, only its output.
func (h *Host) record(r *run, exit proc.Exit, d Decision) {
	file := ExitFile{Exit: ExitOf(r.n, exit), Incarnation: h.cfg.Incarnation, Reason: exit.String(), StderrTail: []string{}, Over: d.Over, Why: d.Reason}
	h.life.exit = &file.Exit
	h.note(file)
	h.tellAfter(file, func() ExitFile {
		<-r.sub.Ended()
		file.StderrTail = append(file.StderrTail, r.sub.StderrTail(tailLines)...)
		h.errors.flush()
		return file
	}, func() {
		h.forgetRun(r)
		if d.Over != "" && h.life.over == "" {
			h.life.over, h.life.reason = d.Over, d.Reason
		}
	})
}

// tellAfter makes an exit durable and then tells it, in its turn after those of
// earlier runs. complete waits for what belongs to it; told follows the event.
func (h *Host) tellAfter(file ExitFile, complete func() ExitFile, told func()) {
	done := make(chan struct{})
	before := h.life.recorded
	h.life.recorded = done
	go func() {
		file := complete()
		if before != nil {
			<-before
		}
		h.post(func() {
			last := h.lastExit(file)
			go func() {
				durable := h.writeExit(last)
				h.post(func() {
					if durable && h.life.untold[len(h.life.untold)-1].Run == last.Run {
						clearNotes(h.folder) // those that stay say nothing new
					}
					h.tellExit(file)
					told()
					close(done)
					h.steps.dirty.Store(true)
				})
			}()
		})
	}()
}

// lastExit is what exit.json holds now: the last run's exit, and all untold
// ones before it. The given file is the complete form of one of them.
func (h *Host) lastExit(file ExitFile) ExitFile {
	for i := range h.life.untold {
		if h.life.untold[i].Run == file.Run {
			h.life.untold[i] = file
		}
	}
	n := len(h.life.untold)
	last := h.life.untold[n-1]
	last.Untold = slices.Clone(h.life.untold[:n-1])
	return last
}

func (h *Host) forgetRun(r *run) {
	for i, e := range h.life.ending {
		if e == r {
			h.life.ending = append(h.life.ending[:i:i], h.life.ending[i+1:]...)
			return
		}
	}
}

// writeExit makes the exit durable, and reports whether it is. While the disk is
// full it tries again, but not for ever: a stop must not hang on it.
func (h *Host) writeExit(file ExitFile) bool {
	crashpoint.At("host.exit.write")
	for pause := 20 * time.Millisecond; pause < 3*time.Second; pause *= 2 {
		err := lease.WriteJSON(h.folder.ExitFile(), file)
		if err == nil {
			return true
		}
		h.cfg.Log.Error("the exit could not be written", "run", file.Run, "err", err)
		select {
		case <-h.steps.done:
			return false
		case <-time.After(pause):
		}
	}
	return false
}

// tellExit appends the exit event, once for each run whoever notices it.
func (h *Host) tellExit(file ExitFile) {
	crashpoint.At("host.exit.event")
	for _, e := range append(slices.Clone(file.Untold), file) {
		if h.memory.Exited(e.Run) {
			h.emit(exitEvent(e))
		}
	}
	h.life.untold = slices.DeleteFunc(h.life.untold, func(e ExitFile) bool { return e.Run <= file.Run })
}

func exitEvent(file ExitFile) wire.Event {
	tail := file.StderrTail
	if tail == nil {
		tail = []string{}
	}
	return wire.NewEvent(wire.EventExit, wire.ExitData{Exit: file.Exit, Reason: file.Reason, StderrTail: tail})
}

package host

import (
	"context"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/wire"
)

// stop is a stop in progress.
type stop struct {
	timeout time.Duration
	answers []func(wire.StopDone)
}

// stopAgent begins the ladder, or joins the one that runs. again means that
// the agent is started afterwards.
func (h *Host) stopAgent(timeout time.Duration, again bool, answer func(wire.StopDone)) {
	if timeout <= 0 {
		timeout = h.file.Spec.StopTimeout()
	}
	h.steps.dirty.Store(true)
	if s := h.life.stopping; s != nil {
		s.answers = append(s.answers, answer)
		if !again {
			h.life.again = false // a stop outweighs a restart
			h.holds.Close()
		}
		return
	}
	h.life.stopTimer()
	h.life.stopping = &stop{timeout: timeout, answers: []func(wire.StopDone){answer}}
	h.life.again = again
	if !again {
		h.holds.Close()
	}
	r := h.life.current
	go func() {
		done := h.ladder(r, timeout)
		h.post(func() { h.stopDone(done) })
	}()
}

// stopDone is the end of the ladder.
func (h *Host) stopDone(done wire.StopDone) {
	s := h.life.stopping
	after := h.life.recorded
	finish := func() {
		h.life.stopping = nil
		h.life.stopped = &done
		h.steps.dirty.Store(true)
		if h.life.again {
			h.life.again = false
			h.life.over = "" // it may have ended by itself just before
			h.life.restarts.Clear()
			h.start(false)
		} else {
			h.life.over, h.life.reason = wire.Stopped, h.life.quitting
		}
		for _, answer := range s.answers {
			answer(done)
		}
	}
	if after == nil {
		finish()
		return
	}
	go func() {
		<-after // the exit is durable and told before the stop is
		h.post(finish)
	}()
}

// ladder ends the whole tree in a bounded time: end of input, then SIGTERM to
// the agent's group, then SIGKILL to every descendant, also those that left the
// group or the session, until none is left. It says which rung was needed.
func (h *Host) ladder(r *run, timeout time.Duration) wire.StopDone {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	done := wire.StopDone{Rung: wire.RungNone, Escaped: []wire.Escaped{}}
	if r != nil {
		done.Rung = h.endAgent(r, timeout)
		done.Ended++
	}
	left := h.strays(r)
	if len(left) == 0 {
		return done
	}
	done.Ended += len(left)
	if done.Rung != wire.RungKill {
		done.Rung = wire.RungTerm
	}
	askAll(ctx, left, timeout/4)
	if len(h.strays(r)) == 0 {
		return done
	}
	done.Rung = wire.RungKill
	for _, s := range proc.EndTree(ctx, h.spared(), r.owns) {
		done.Ended--
		done.Escaped = append(done.Escaped, wire.Escaped{PID: s.PID, Command: command(s.PID)})
	}
	return done
}

// endAgent ends the agent's own process.
func (h *Host) endAgent(r *run, timeout time.Duration) wire.Rung {
	within := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-r.dead:
			return true
		case <-t.C:
			return false
		}
	}
	r.sub.CloseInput()
	if r.dialect.Traits().EndsOnEOF && within(min(timeout/4, 2*time.Second)) {
		return wire.RungEOF
	}
	r.sub.Child().SignalGroup(syscall.SIGTERM)
	if within(timeout / 2) {
		return wire.RungTerm
	}
	r.sub.Child().SignalGroup(syscall.SIGKILL)
	within(timeout / 4)
	return wire.RungKill
}

// owns reports whether a child is the run's own process, whose status its
// transport collects.
func (r *run) owns(pid int) bool { return r != nil && !r.isDead() && pid == r.sub.Child().PID() }

// strays lists what lives beneath the host besides a run, nil for none: what one
// left behind. Without any child the answer costs one system call.
func (h *Host) strays(r *run) []int {
	if !proc.HasChildren() {
		return nil
	}
	proc.ReapAdopted(r.owns)
	return proc.Living(proc.Tree(os.Getpid(), h.spared()))
}

// askAll sends SIGTERM to each process and gives them all a moment to end.
func askAll(ctx context.Context, pids []int, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, min(grace, time.Second))
	defer cancel()
	for _, pid := range pids {
		id, err := proc.Of(pid)
		if err != nil {
			continue
		}
		p, _ := id.Open()
		if p == nil {
			continue
		}
		defer p.Close()
		if p.Signal(syscall.SIGTERM) == nil {
			defer p.Wait(ctx)
		}
	}
}

// spared returns the test for processes beneath the host that are not the
// agent's: verified Cast processes of this home, with all beneath them.
func (h *Host) spared() func(pid int) bool { return CastProcesses(h.cfg.Home) }

func command(pid int) string {
	in, err := proc.Describe(pid)
	if err != nil {
		return ""
	}
	return strings.Join(in.Args, " ")
}

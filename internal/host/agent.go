package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"
	"unicode/utf8"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/internal/dialect"
	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/transport"
	"github.com/castctl/castctl/wire"
)

// start starts the agent. A failure to start ends the instance as failed: the
// program or the folder is gone, and trying again would not bring it back.
func (h *Host) start(automatic bool) {
	h.life.stopTimer()
	crashpoint.At("host.agent.spawn")
	n := h.memory.StartRun(automatic)
	h.life.run = n
	r, err := h.spawn(n)
	h.steps.dirty.Store(true)
	if err != nil {
		h.startFailed(n, err)
		return
	}
	h.life.current = r
	h.life.reason = ""
	if r.dialect.Traits().Bytes {
		// Nothing is known of what such a process does, so it is never idle.
		r.hold, _ = h.holds.Take(lease.Task, "the process runs", r.sub.Child().PID())
	}
	h.publishRecord()
	crashpoint.At("host.agent.spawned")
}

// spawn starts the agent's process for run n.
func (h *Host) spawn(n int) (*run, error) {
	spec := h.file.Spec
	env, err := h.environment()
	if err != nil {
		return nil, err
	}
	path, err := LookPath(spec.Argv[0], spec.Cwd, env.stored)
	if err != nil {
		return nil, err
	}
	lock, err := h.agentLock()
	if err != nil {
		return nil, err
	}
	defer lock.Release() // the agent's tree holds it from now on, and nobody else
	r := &run{n: n, dialect: dialect.For(h.life.dialectName(spec)), started: time.Now(), gate: h.life.recorded, dead: make(chan struct{}), patience: lastTries}
	cfg := transport.Config{
		Path: path, Argv: spec.Argv, Dir: spec.Cwd, Env: AgentEnv(h.cfg.Home.Dir(), h.cfg.ID, env.stored, env.file),
		Inherit: []*os.File{lock.File()},
		Exited: func(e proc.Exit) {
			h.post(func() { h.exited(r, e) }) // before anybody who waits for the death can act
			close(r.dead)
		},
	}
	on := transport.Handlers{
		Message: func(line []byte) { h.heard(r, line) },
		Stderr:  func(line []byte) { r.wait(); h.errors.line(line) },
		Notice:  func(n transport.Notice) { r.wait(); h.noticed(n) },
		Closed:  func(reason string) { h.post(func() { h.closed(r, reason) }) },
	}
	if r.dialect.Traits().Bytes {
		cfg.Output = func(b []byte) int { return h.output(r, b) }
	}
	r.sub = transport.NewSubprocess(cfg, on)
	if err := r.sub.Start(context.Background()); err != nil {
		return nil, err
	}
	if id, err := r.sub.Child().Identity(); err == nil {
		r.id = &id
	}
	return r, nil
}

// wait holds output back until the run before is told.
func (r *run) wait() {
	if r.gate != nil {
		<-r.gate
	}
}

// agentEnv is an agent's environment in its two sources.
type agentEnv struct{ stored, file map[string]string }

func (h *Host) environment() (agentEnv, error) {
	var e agentEnv
	var err error
	if e.stored, err = ReadEnv(h.folder); err != nil {
		return e, err
	}
	if h.file.Spec.EnvFile != "" {
		e.file, err = ReadEnvFile(h.file.Spec.EnvFile)
	}
	return e, err
}

// agentLock takes the lock that tells the next host whether this one's agent
// lives.
func (h *Host) agentLock() (*lease.Lock, error) { return lease.Acquire(h.folder.AgentLock()) }

// startFailed ends an instance whose agent could not be started at all.
func (h *Host) startFailed(n int, err error) {
	why := startReason(err)
	file := ExitFile{
		Exit: wire.Exit{Run: n, At: wire.Now()}, Incarnation: h.cfg.Incarnation, Reason: why, StderrTail: []string{}, Over: wire.Failed, Why: why,
	}
	h.life.exit = &file.Exit
	h.life.clearing = true // until it is told
	h.note(file)
	h.tellAfter(file, func() ExitFile { return file }, func() {
		h.life.clearing = false
		if h.life.over == "" {
			h.life.over, h.life.reason = wire.Failed, why
		}
	})
}

// startReason says why a program could not be started, without a path twice.
func startReason(err error) string {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return "cannot start " + pe.Path + ": " + pe.Err.Error()
	}
	return "cannot start: " + err.Error()
}

// output appends a batch of raw output. Half a character at the end is kept for
// the next batch. While the disk is full the agent waits.
func (h *Host) output(r *run, b []byte) (keep int) {
	r.wait()
	if keep = partialRune(b); keep == len(b) && keep > 0 {
		return keep
	}
	b = b[:len(b)-keep]
	if h.cfg.Echo != nil {
		h.cfg.Echo.Write(b)
	}
	for {
		err := h.journal.AppendRaw(wire.EventOutput, b)
		if err != nil && !errors.Is(err, journal.ErrFull) {
			h.cfg.Log.Error("output was lost", "bytes", len(b), "err", err)
		}
		if !errors.Is(err, journal.ErrFull) {
			return keep
		}
		// A dead agent's last words wait a while, but a stop must not hang on them.
		if r.isDead() && r.patience == 0 {
			n := int64(len(b))
			go h.post(func() {
				h.emit(wire.NewEvent(wire.EventNotice, wire.NoticeData{Kind: wire.NoticeGap, Message: "the disk was full: output was lost", Bytes: &n}))
			})
			return keep
		}
		if r.isDead() {
			r.patience--
		}
		select {
		case <-h.steps.done:
			return keep
		case <-time.After(retryFull):
		}
	}
}

const (
	retryFull = 250 * time.Millisecond // how long a full disk is left alone
	lastTries = 12                     // at a dead agent's output
)

// partialRune returns the length of an unfinished UTF-8 character at the end.
func partialRune(b []byte) int {
	for i := 1; i <= min(utf8.UTFMax-1, len(b)); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// heard takes a line from the agent to the owner.
func (h *Host) heard(r *run, line []byte) {
	r.wait()
	line = bytes.Clone(line)
	h.post(func() { h.read(r, line) })
}

func (h *Host) noticed(n transport.Notice) {
	message := map[transport.NoticeKind]string{
		transport.Oversize: "a line of output was longer than allowed and was dropped",
		transport.Torn:     "the output ended in the middle of a line",
		transport.NotJSON:  "a line of output was not a JSON object",
	}[n.Kind]
	h.post(func() {
		h.emit(wire.NewEvent(wire.EventNotice, wire.NoticeData{Kind: wire.NoticeKind(n.Kind), Message: message, Bytes: &n.Bytes}))
	})
}

// exited decides, the moment the kernel has reported the agent's end, what
// follows. Nothing here waits: the old run is told later, the new one starts
// now.
func (h *Host) exited(r *run, exit proc.Exit) {
	if h.life.current != r {
		return
	}
	h.life.current = nil
	r.hold.Release()
	h.life.ending = append(h.life.ending, r)
	h.steps.dirty.Store(true)
	if h.life.stopping != nil || h.life.over != "" {
		h.record(r, exit, Decision{})
		return
	}
	d := h.life.restarts.Next(h.file.Spec, exit, r.started, time.Now())
	h.record(r, exit, d)
	h.life.reason = exit.String()
	if d.Over != "" {
		h.clear(func() {})
		return
	}
	if d.After > 0 {
		h.clear(func() {})
		h.startAfter(d.After)
		return
	}
	h.clear(func() { h.start(true) })
}

// clear ends whatever the old run left behind before then follows: an agent
// never starts beside its predecessor's children.
func (h *Host) clear(then func()) {
	if len(h.strays(nil)) == 0 {
		then()
		return
	}
	h.life.clearing = true
	timeout := h.file.Spec.StopTimeout()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		proc.EndTree(ctx, h.spared(), nil)
		h.post(func() {
			h.life.clearing = false
			h.steps.dirty.Store(true)
			if h.life.stopping == nil && h.life.over == "" && h.life.current == nil {
				then()
			}
		})
	}()
}

// startAfter starts the agent after a pause.
func (h *Host) startAfter(d time.Duration) {
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		h.post(func() {
			if h.life.timer == t && h.life.over == "" && h.life.stopping == nil {
				h.life.timer = nil
				h.clear(func() { h.start(true) })
			}
		})
	})
	h.life.timer = t
}

// closed is told when a run's streams are dry: everything that it said is
// known. A transport that ended while the process lives is of no more use, so
// the process is ended too.
func (h *Host) closed(r *run, reason string) {
	if h.life.current == r {
		h.life.reason = reason
		go h.endAgent(r, h.file.Spec.StopTimeout())
	}
	h.failTurns(r)
	h.steps.dirty.Store(true)
}

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// lockWait bounds the wait for a lock that a predecessor is about to lose.
const lockWait = 10 * time.Second

// locked is what a host holds of the file system.
type locked struct {
	alive  *lease.Lock
	mark   lease.Mark
	record []byte // host.json, as last published
}

// open takes the instance over: the lock, the spec, the journal, the socket, in
// this order.
func (h *Host) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	alive, err := h.claim(ctx)
	if err != nil {
		return fmt.Errorf("instance %s has a host already: %w", h.cfg.ID, err)
	}
	if h.locked.mark, err = alive.Mark(); err != nil {
		return err
	}
	h.locked.alive = alive
	if err := h.succeed(ctx); err != nil {
		return err
	}
	if h.file, err = ReadSpec(h.folder); err != nil {
		return err
	}
	if err := h.openJournal(); err != nil {
		return err
	}
	l, path, err := h.cfg.Home.ListenUnix(h.cfg.ID + ".sock")
	if err != nil {
		return err
	}
	h.door = newDoor(l, path, h.visit)
	h.openLease()
	return nil
}

func (h *Host) claim(ctx context.Context) (*lease.Lock, error) {
	if h.cfg.Alive != nil {
		return lease.Inherit(h.cfg.Alive, h.folder.AliveLock())
	}
	return lease.AcquireWait(ctx, h.folder.AliveLock())
}

// succeed makes sure that no agent of a dead predecessor lives beside the one
// that is about to be started.
func (h *Host) succeed(ctx context.Context) error {
	old, err := h.folder.ReadHost()
	if err == nil {
		if left := EndOrphans(ctx, h.cfg.Home, h.cfg.ID, old.Agent); len(left) > 0 {
			return fmt.Errorf("processes of the last run could not be ended: %v", left)
		}
	}
	state, err := lease.Probe(h.folder.AgentLock())
	if err != nil || !state.Held {
		return err
	}
	if left := EndOrphans(ctx, h.cfg.Home, h.cfg.ID, nil); len(left) > 0 {
		return fmt.Errorf("processes of the last run could not be ended: %v", left)
	}
	lock, err := lease.AcquireWait(ctx, h.folder.AgentLock())
	if err != nil {
		return fmt.Errorf("an agent of the last run lives on: %w", err)
	}
	return lock.Release()
}

func (h *Host) openJournal() error {
	j, rec, err := journal.Open(h.folder.Journal(), journal.Config{
		Instance: h.cfg.ID, Boot: proc.BootID(), Max: h.file.Spec.JournalCap(), Memory: h.memory,
		Grown: func() {
			if h.door != nil { // notes at the opening come before anybody can follow
				h.door.grown()
			}
		},
	})
	if err != nil {
		return err
	}
	h.journal = j
	var echo func([]byte)
	if h.cfg.Foreground {
		echo = func(b []byte) { os.Stderr.Write(b) }
	}
	h.errors = newErrorLog(h.folder.StderrLog(), j, echo)
	if rec.Torn > 0 {
		h.noteAtOpen(wire.NoticeTorn, "the journal ended in the middle of an event, which was cut off", &rec.Torn)
	}
	if rec.NewEpoch {
		h.noteAtOpen(wire.NoticeEpoch, "the machine was booted since the last event", nil)
	}
	return nil
}

func (h *Host) noteAtOpen(kind wire.NoticeKind, message string, bytes *int64) {
	ev := wire.NewEvent(wire.EventNotice, wire.NoticeData{Kind: kind, Message: message, Bytes: bytes})
	if err := h.journal.Append(false, &ev); err != nil {
		h.cfg.Log.Error("an event was lost", "type", ev.Type, "err", err)
	}
}

// openLease begins the start-up grace.
func (h *Host) openLease() {
	l := &h.leasing
	l.epoch = time.Now()
	l.started = wire.Now()
	l.guard = lease.NewGuard(h.holds, l.tick())
	if g := h.cfg.OrphanGrace; g > 0 {
		l.guard.OrphanGrace, l.guard.StartGrace, l.guard.Interval, l.guard.FolderGrace = g, 2*g, g/2, 10*g
	}
	l.guard.Foreground = h.cfg.Foreground
	l.state = lease.LeaseHeld
	l.reg, l.alias = h.file.Registry, h.file.Name
	l.inode, _ = h.folder.Inode()
}

// begin settles what a killed predecessor left open, starts the agent and
// publishes the host.
func (h *Host) begin() {
	if e, ok := ReadExit(h.folder); ok {
		h.life.exit = &e.Exit
		h.tellExit(e)
	}
	for _, r := range h.memory.Open() {
		h.memory.Settle(r.Turn, wire.TurnUnknown)
		h.emit(wire.NewEvent(wire.EventTurnEnded, wire.TurnEndedData{
			Outcome: wire.TurnUnknown,
			Error:   &wire.ErrorData{Code: wire.Unavailable, Message: "the host was killed; the agent may have acted on the request"},
		}).In(h.life.session(h.file.Spec), r.Turn))
	}
	go h.door.run(h.door.listener)
	h.start(h.file.Automatic)
	if h.life.current == nil {
		h.publishRecord() // a start that failed is told as well
	}
	h.askLater(h.leasing.guard.Interval)
	if h.cfg.Published != nil {
		h.cfg.Published(h.locked.record)
	}
	h.settle()
}

// publishRecord writes host.json: after the socket answers, and again when the
// agent has changed.
func (h *Host) publishRecord() {
	r := lease.Host{
		Mark: h.locked.mark, ID: h.cfg.ID, Name: h.file.Name, Incarnation: h.cfg.Incarnation, Registry: h.leasing.registry(),
		Socket: h.door.path, Protocol: lease.Versions{Min: wire.Protocol, Max: wire.Protocol}, Version: h.cfg.Version,
		BuildID: h.cfg.BuildID(), StartedAt: h.leasing.started, Foreground: h.cfg.Foreground, Run: h.life.run,
	}
	if c := h.life.current; c != nil {
		r.Agent = c.id
	}
	line, err := h.folder.PublishHost(r)
	if err != nil {
		h.cfg.Log.Error("the record could not be published", "err", err)
		return
	}
	h.locked.record = line
}

// mend publishes the record again if it is missing or overwritten, and binds the socket again if a cleaner removed it.
func (h *Host) mend(changed bool) {
	if !h.folderStands() {
		return
	}
	if changed || !h.folder.HostStands(h.locked.record) {
		h.publishRecord()
	}
	if _, err := os.Lstat(h.door.path); errors.Is(err, os.ErrNotExist) {
		h.rebind()
	}
}

func (h *Host) rebind() {
	l, path, err := h.cfg.Home.ListenUnix(h.cfg.ID + ".sock")
	if err != nil {
		h.cfg.Log.Error("the socket could not be bound again", "err", err)
		return
	}
	h.door.listener.Close()
	h.door.listener, h.door.path = l, path
	go h.door.run(l)
	h.publishRecord()
}

// folderStands reports whether the instance's folder is still the one that the
// host was started in.
func (h *Host) folderStands() bool {
	now, err := h.folder.Inode()
	return err == nil && now == h.leasing.inode
}

// close is the orderly end: nothing of the host is left but its journal and the
// exit.
func (h *Host) close() {
	crashpoint.At("host.close")
	h.door.close()
	h.errors.close()
	if err := h.journal.Close(); err != nil {
		h.cfg.Log.Error("the journal could not be closed", "err", err)
	}
	if h.folderStands() && h.folder.HostStands(h.locked.record) {
		os.Remove(h.folder.HostFile())
	}
	// The alive lock is left to the kernel: it is free when the process is dead.
}

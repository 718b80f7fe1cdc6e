package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/updater"
	"github.com/castctl/castctl/wire"
)

// Descriptors that a spawner hands down.
const (
	readyFD = 3 // where a host or a supervisor tells, once, that it can be reached
	aliveFD = 4 // a host's alive lock, taken before the host existed
)

// graceVariable sets how long a host stays that the registry does not name; the
// supervisor passes it on. Its start-up grace is twice as long.
const graceVariable = "CAST_ORPHAN_GRACE"

// hostMain is a host's whole program: castctl host HOME ID INCARNATION.
func hostMain(args []string) int {
	if len(args) != 3 {
		fmt.Fprintln(os.Stderr, "castctl: host: this is started by the supervisor only")
		return 2
	}
	proc.NameSelf(programName)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	home, err := lease.FindHome(args[0])
	if err == nil {
		ready := handedDown(readyFD)
		err = runHost(context.Background(), host.Config{
			Home: home, ID: args[1], Incarnation: args[2], Log: log, Alive: handedDown(aliveFD),
			Published: func(record []byte) { tellReady(ready, record) },
		})
	}
	if err != nil {
		log.Error("the host ends", "err", err)
		return 1
	}
	return 0
}

// handedDown opens an inherited descriptor, and keeps it from being handed on.
func handedDown(fd int) *os.File {
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "handed down")
}

func runHost(ctx context.Context, cfg host.Config) error {
	os.Unsetenv("CAST_INSTANCE")
	cfg.Version, cfg.BuildID = updater.Version, updater.Self
	cfg.OrphanGrace, _ = time.ParseDuration(os.Getenv(graceVariable))
	cfg.Ask = func(ctx context.Context, id, incarnation, registry string) lease.Answer {
		return askRegistry(ctx, cfg.Home, id, incarnation, registry)
	}
	return host.Run(ctx, cfg)
}

// tellReady passes the record on and closes the descriptor.
func tellReady(ready io.WriteCloser, record []byte) {
	defer ready.Close()
	ready.Write(record)
}

// askRegistry asks the supervisor, if one lives, whether the registry names
// this host. Only its clear word counts; all else is unknown.
func askRegistry(ctx context.Context, home lease.Home, id, incarnation, registry string) lease.Answer {
	c, err := client.Connect(ctx, client.Config{Home: home})
	if err != nil {
		return lease.Unasked
	}
	defer c.Close()
	var v wire.VersionResult
	if err := c.Call(ctx, wire.NewID(), wire.GetVersion{}, &v); err != nil || registry != "" && v.Registry != registry {
		return lease.Unasked // another registry knows nothing of this host
	}
	var got wire.GetResult
	err = c.Call(ctx, wire.NewID(), wire.Get{Instance: id}, &got)
	switch {
	case errors.Is(err, wire.ErrNotFound):
		return lease.Absent
	case err != nil:
		return lease.Unasked
	case got.Instance.Incarnation == nil || *got.Instance.Incarnation != incarnation:
		return lease.Superseded
	}
	return lease.Registered
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/supervisor"
	"github.com/castctl/castctl/updater"
	"github.com/castctl/castctl/wire"
)

const supervisorLog = "supervisor.log"

// journalsVariable sets how much all journals together may take, also for a
// supervisor that another command starts.
const journalsVariable = "CAST_JOURNALS_MAX"

func superviseCommand() *cli.Command {
	return &cli.Command{
		Name:  "supervise",
		Usage: "run the supervisor in the foreground",
		Description: "Every command that needs a supervisor starts one in the background, so this is for service managers,\n" +
			"containers and curiosity. It exits 75 if one runs already.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Usage: "loopback `ADDRESS` to listen on", Value: "127.0.0.1:0"},
			&cli.BoolFlag{Name: "no-resume", Usage: "do not start what ran before the last boot"},
			&cli.BoolFlag{Name: "memory", Usage: "use a private temporary home, removed at the end"},
			&cli.StringFlag{Name: "journals-max", Usage: "how much all journals together may take, as a `SIZE`", Value: "10GiB", EnvVars: []string{journalsVariable}},
			&cli.BoolFlag{Name: "detached", Hidden: true},
			&cli.StringFlag{Name: "owner", Hidden: true},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return usage{"supervise takes no arguments"}
			}
			if c.Bool("memory") {
				return superviseMemory(c)
			}
			return supervise(c)
		},
	}
}

// supervise is the supervisor's life, in the foreground or detached.
func supervise(c *cli.Context) error {
	detached := c.Bool("detached")
	tell := func(string) {}
	if detached {
		proc.NameSelf(programName)
		ready := handedDown(readyFD)
		tell = func(line string) {
			fmt.Fprintln(ready, line)
			ready.Close()
		}
	}
	err := superviseHome(c, detached, tell)
	if err == nil {
		return nil
	}
	if detached {
		tell(oneLine(err.Error()))
	}
	if errors.Is(err, supervisor.ErrRunning) {
		report(os.Stderr, err)
		return exit{exitRunning}
	}
	return err
}

func superviseHome(c *cli.Context, detached bool, tell func(string)) error {
	home, err := openHome(c)
	if err != nil {
		return err
	}
	if err := notInside(home); err != nil {
		return err
	}
	var journals int64
	if err := setBytes(&journals, c.String("journals-max")); err != nil {
		return usage{"--journals-max: " + err.Error()}
	}
	os.Unsetenv("CAST_INSTANCE") // a supervisor is never part of an agent's tree
	log, closeLog, err := supervisorLogger(home, detached)
	if err != nil {
		return err
	}
	defer closeLog()
	sup, err := supervisor.Open(c.Context, supervisor.Config{
		Home: home, Version: updater.Version, BuildID: updater.Self(), Foreground: !detached, NoResume: c.Bool("no-resume"),
		JournalsMax: journals, Log: log,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- sup.Run(ctx) }()
	if err := openDoor(ctx, c, sup, log, detached); err != nil {
		cancel()
		<-ended
		return err
	}
	tell(supervisorReady)
	if owner := c.String("owner"); owner != "" {
		go func() {
			awaitOwner(ctx, owner)
			endHome(sup)
			cancel()
		}()
	}
	err = <-ended
	if c.String("owner") != "" {
		os.RemoveAll(home.Dir())
	}
	return err
}

// openDoor serves, checks that the door answers, and only then publishes.
func openDoor(ctx context.Context, c *cli.Context, sup *supervisor.Supervisor, log *slog.Logger, detached bool) error {
	srv, err := server.Listen(sup, server.Config{Address: c.String("listen"), Log: log})
	if err != nil {
		return err
	}
	go func() {
		<-sup.Done()
		// Requests that wait get their last answer first.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		srv.Close(ctx)
	}()
	if err := srv.Check(ctx); err != nil {
		return fmt.Errorf("the server does not answer: %w", err)
	}
	select {
	case <-sup.Ready():
	case <-sup.Done():
		return errors.New("the supervisor ended while it started")
	case <-time.After(adoptionPatience): // a wedged host must not hold up the door
	}
	rec := srv.Record()
	rec.Protocol = lease.Versions{Min: wire.Protocol, Max: wire.Protocol}
	rec.Version, rec.BuildID, rec.StartedAt, rec.Foreground = updater.Version, updater.Self(), wire.Now(), !detached
	if err := sup.Publish(ctx, rec); err != nil {
		return err
	}
	log.Info("the supervisor runs", "home", sup.Home().Dir(), "pid", os.Getpid(), "url", rec.URL(), "build", rec.BuildID)
	return nil
}

// adoptionPatience is how long the door stays shut for the first look at the
// fleet.
const adoptionPatience = 2 * time.Second

// notInside refuses to make a supervisor part of one of its own agents' trees.
func notInside(home lease.Home) error {
	id := os.Getenv("CAST_INSTANCE")
	if id == "" {
		return nil
	}
	if _, err := os.Lstat(home.Instance(id).Path()); err != nil {
		return nil
	}
	return trouble{fmt.Errorf("no supervisor is started from inside one of its own instances (%w)", errUnable), "run castctl from a terminal"}
}

// supervisorLogger logs to the terminal, or, detached, to a rotated file.
func supervisorLogger(home lease.Home, detached bool) (*slog.Logger, func(), error) {
	if !detached {
		return slog.New(slog.NewTextHandler(os.Stderr, nil)), func() {}, nil
	}
	if err := lease.MakeDir(home.LogDir()); err != nil {
		return nil, nil, err
	}
	w := &lumberjack.Logger{Filename: filepath.Join(home.LogDir(), supervisorLog), MaxSize: 8, MaxBackups: 2}
	return slog.New(slog.NewTextHandler(w, nil)), func() { w.Close() }, nil
}

// awaitOwner returns when the owner of a private home has ended, or the context
// has.
func awaitOwner(ctx context.Context, owner string) {
	pid, ticks, _ := strings.Cut(owner, ":")
	n, err := strconv.Atoi(pid)
	if err != nil {
		return
	}
	id, err := proc.Of(n)
	if err != nil || strconv.FormatUint(id.StartTicks, 10) != ticks {
		return
	}
	p, _ := id.Open()
	if p == nil {
		return
	}
	defer p.Close()
	p.Wait(ctx)
}

// endHome stops every instance of a private home.
func endHome(sup *supervisor.Supervisor) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sup.Call(ctx, wire.Request{ID: wire.NewID(), Command: wire.Apply{Instances: []wire.Declared{}, Prune: true}})
}

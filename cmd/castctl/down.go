package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func downCommand() *cli.Command {
	return &cli.Command{
		Name: "down", Usage: "end the supervisor; with --all also every instance",
		Description: "Agents go on running without a supervisor, and the next command that needs one starts it.\n" +
			"It works on a supervisor of any version. With --all it stops every instance, checks, and exits 1 naming survivors.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "stop every instance first"}},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return usage{"down takes no arguments"}
			}
			home, ok, err := findHome(c)
			if err != nil || !ok {
				return err
			}
			if c.Bool("all") {
				return downAll(c.Context, c, home)
			}
			return down(c.Context, home)
		},
	}
}

// downBound is how long a supervisor may take to leave.
const downBound = 15 * time.Second

// down ends the supervisor: a signal to a process whose identity and lock are
// verified. It needs no protocol, so it works across versions.
func down(ctx context.Context, home lease.Home) error {
	server, _, err := home.FindServer()
	if errors.Is(err, lease.ErrNoServer) {
		return nil
	}
	if err != nil {
		return err
	}
	p, v := server.Find(home.DaemonLock())
	if p == nil {
		if v == proc.Gone {
			return nil
		}
		return fmt.Errorf("the supervisor (process %d) is %s and was not signalled", server.PID, v)
	}
	defer p.Close()
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, proc.ErrGone) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, downBound)
	defer cancel()
	if p.Wait(ctx) == nil {
		return nil
	}
	return fmt.Errorf("the supervisor (process %d) does not end", server.PID)
}

// downAll stops every instance and every orphan, then the supervisor, and names
// what is left.
func downAll(ctx context.Context, c *cli.Context, home lease.Home) error {
	cl, err := livingClient(ctx, home)
	if err == nil && cl == nil && (hostsLive(home) || len(wanted(home)) > 0) {
		cl, err = connectTo(ctx, home)
	}
	if err != nil {
		return err
	}
	var stopped error
	if cl != nil {
		stopped = stopFleet(ctx, cl)
		cl.Close()
	}
	if err := errors.Join(stopped, down(ctx, home)); err != nil {
		return err
	}
	if left := survivors(home); len(left) > 0 {
		return fmt.Errorf("still alive: %s", strings.Join(left, ", "))
	}
	return nil
}

func stopFleet(ctx context.Context, cl *client.Client) error {
	var r wire.ApplyResult
	cmd := wire.Apply{Instances: []wire.Declared{}, Prune: true, Wait: wire.Wait{WaitMS: 60_000}}
	if err := cl.Call(ctx, wire.NewID(), cmd, &r); err != nil {
		return err
	}
	st, err := fleetOf(ctx, cl)
	if err != nil || len(st.Orphans) == 0 {
		return err
	}
	reap := wire.Reap{EvenIfBusy: true}
	for _, o := range st.Orphans {
		reap.Targets = append(reap.Targets, wire.Target{ID: o.ID})
	}
	return cl.Call(ctx, wire.NewID(), reap, nil)
}

// survivors names the hosts and agents of a home that still live.
func survivors(home lease.Home) []string {
	var out []string
	for _, in := range offline(home).Instances {
		if in.HostPID != nil {
			out = append(out, fmt.Sprintf("%s (host %d, agent %s)", in.Name, *in.HostPID, number(in.PID)))
			continue
		}
		state, err := lease.Probe(home.Instance(in.ID).AgentLock())
		if err == nil && state.Held {
			out = append(out, in.Name+" (its agent)")
		}
	}
	return out
}

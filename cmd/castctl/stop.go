package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func stopCommand() *cli.Command {
	return &cli.Command{
		Name:        "stop",
		Usage:       "end instances with their whole process trees",
		ArgsUsage:   "NAME…",
		Description: "Ends by end of input, then SIGTERM, then SIGKILL to whatever is left. Exits 1 and names what could not be ended.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "every instance"},
			&cli.BoolFlag{Name: "when-idle", Usage: "wait until nothing holds the instance"},
			&cli.DurationFlag{Name: "timeout", Usage: "bound of the whole stop", DefaultText: "the instance's own, 10s"},
			jsonFlag,
		},
		Action: stop,
	}
}

func stop(c *cli.Context) error {
	if c.Bool("all") == (c.NArg() > 0) {
		return usage{"stop needs the names of instances, or --all"}
	}
	if err := checkNames(plainOnly(c.Args().Slice())); err != nil {
		return err
	}
	home, ok, err := findHome(c)
	if err != nil {
		return err
	}
	if !ok {
		return noSuch(c)
	}
	cl, err := clientIfNeeded(c, home)
	if err != nil || cl == nil {
		return orNothingToStop(c, home, err)
	}
	defer cl.Close()
	patterns := c.Args().Slice()
	if c.Bool("all") {
		patterns = []string{"*"}
		if st, err := fleetOf(c.Context, cl); err != nil || len(st.Instances) == 0 {
			return err
		}
	}
	names, err := targets(c, cl, patterns)
	if err != nil {
		return err
	}
	return each(c.Context, home, cl, names, func(cl *client.Client, name string) error { return stopOne(c, home, cl, name) })
}

// wanted names the instances that the next supervisor would start.
func wanted(home lease.Home) []string {
	var names []string
	for _, in := range offline(home).Instances {
		if in.Wanted == wire.WantRunning && !in.State.Over() {
			names = append(names, in.Name)
		}
	}
	return names
}

// clientIfNeeded connects to the supervisor, and starts one only if hosts live
// without it, or would.
func clientIfNeeded(c *cli.Context, home lease.Home) (*client.Client, error) {
	cl, err := livingClient(c.Context, home)
	if cl != nil || err != nil {
		return cl, err
	}
	if !hostsLive(home) && (!c.Bool("all") || len(wanted(home)) == 0) {
		return nil, nil
	}
	return connectTo(c.Context, home)
}

// orNothingToStop answers for a home in which nothing lives: a known instance is
// stopped already, and stays so.
func orNothingToStop(c *cli.Context, home lease.Home, err error) error {
	if err != nil || c.Bool("all") {
		return err
	}
	st := offline(home)
	names, err := expand(c.Args().Slice(), st.Instances)
	if err != nil {
		return err
	}
	var over []string
	for _, name := range names {
		in, ok := findInstance(st, name)
		if !ok {
			return wire.Errorf(wire.NotFound, "there is no instance %q", name)
		}
		if in.Wanted == wire.WantRunning && !in.State.Over() {
			over = append(over, name)
			continue
		}
		fmt.Fprintf(c.App.Writer, "%s is stopped already\n", name)
	}
	if len(over) == 0 {
		return nil
	}
	// It would run again with the next supervisor: that has to be told.
	return withSupervisor(c, func(home lease.Home, cl *client.Client) error {
		return each(c.Context, home, cl, over, func(cl *client.Client, name string) error { return stopOne(c, home, cl, name) })
	})
}

func noSuch(c *cli.Context) error {
	if c.Bool("all") {
		return nil
	}
	return wire.Errorf(wire.NotFound, "there is no instance %q", c.Args().First())
}

// stopGrace is added to a stop's own bound before the command gives up.
const stopGrace = 15 * time.Second

func stopOne(c *cli.Context, home lease.Home, cl *client.Client, name string) error {
	cmd := wire.Stop{Instance: name, WhenIdle: c.Bool("when-idle"), TimeoutMS: c.Duration("timeout").Milliseconds()}
	cmd.WaitMS = min(wire.MaxWaitMS, max(60_000, (c.Duration("timeout")+stopGrace).Milliseconds()))
	if cmd.WhenIdle {
		cmd.WaitMS = wire.MaxWaitMS
		showHolds(c, cl, name)
	}
	var r wire.StopResult
	if err := cl.Call(c.Context, wire.NewID(), cmd, &r); err != nil {
		return named(name, err)
	}
	if c.Bool("json") {
		if err := printJSON(c, r); err != nil {
			return err
		}
	} else if r.Rung != nil {
		fmt.Fprintf(c.App.Writer, "%s stopped (%s)\n", r.Instance.Name, howStopped(r))
	}
	switch {
	case len(r.Escaped) > 0:
		e := r.Escaped[0]
		return trouble{
			fmt.Errorf("%s: %d processes could not be ended, the first is %d (%s)", name, len(r.Escaped), e.PID, e.Command),
			"they belong to another user: end them as that user",
		}
	case r.Rung == nil:
		return fmt.Errorf("%s is still %s", name, r.Instance.State)
	}
	return nil
}

func howStopped(r wire.StopResult) string {
	if *r.Rung == wire.RungNone {
		return "it did not run"
	}
	return fmt.Sprintf("%s, %s ended", *r.Rung, plural(r.Ended, "process", "processes"))
}

// showHolds says what an instance waits for.
func showHolds(c *cli.Context, cl *client.Client, name string) {
	var in wire.Instance
	if cl.Call(c.Context, wire.NewID(), wire.GetStatus{Instance: name}, &in) != nil || c.Bool("json") {
		return
	}
	for _, h := range in.Holds {
		fmt.Fprintf(c.App.ErrWriter, "%s is held by a %s since %s: %s\n", in.Name, h.Kind, age(h.Since), h.Label)
	}
}

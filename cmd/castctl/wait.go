package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// goals is what wait can wait for: a test of reaching it, and one of never
// reaching it.
var goals = map[string]struct{ reached, hopeless func(wire.Instance) bool }{
	"ready": {
		func(in wire.Instance) bool { return in.State == wire.Running || in.State == wire.Unloaded },
		func(in wire.Instance) bool { return in.State.Over() },
	},
	"idle": {
		func(in wire.Instance) bool { return in.State == wire.Running && len(in.Holds) == 0 },
		func(in wire.Instance) bool { return in.State.Over() },
	},
	"stopped": {
		func(in wire.Instance) bool { return in.State.Over() && in.HostPID == nil },
		func(wire.Instance) bool { return false },
	},
}

func waitCommand() *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until an instance is ready, idle or stopped", ArgsUsage: "NAME",
		Description: "Exits 0 when it is, 1 when the time is over or it never will be.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "for", Usage: "ready, idle or stopped", Value: "ready"},
			&cli.DurationFlag{Name: "timeout", Usage: "give up after `DURATION`", Value: time.Minute},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usage{"wait takes one name"}
			}
			if _, ok := goals[c.String("for")]; !ok {
				return usage{fmt.Sprintf("--for %s: must be ready, idle or stopped", c.String("for"))}
			}
			name := c.Args().First()
			if err := checkNames([]string{name}); err != nil {
				return err
			}
			return withSupervisor(c, func(_ lease.Home, cl *client.Client) error { return wait(c, cl, name) })
		},
	}
}

func wait(c *cli.Context, cl *client.Client, name string) error {
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	s, err := cl.Follow(ctx, "")
	if err != nil {
		return err
	}
	defer s.Close()
	goal := goals[c.String("for")]
	var last wire.Instance
	for {
		f, err := s.Next()
		switch {
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("%s is not %s after %v: it is %s", name, c.String("for"), c.Duration("timeout"), describe(last))
		case err != nil:
			return wire.Errorf(wire.Unavailable, "the stream ended: %v", err)
		}
		in, known, gone := pick(f, name)
		if gone {
			return wire.Errorf(wire.NotFound, "there is no instance %q", name)
		}
		if !known {
			continue
		}
		last = in
		if goal.reached(in) {
			return nil
		}
		if goal.hopeless(in) {
			return fmt.Errorf("%s will not be %s: it is %s", name, c.String("for"), describe(in))
		}
	}
}

// pick takes the instance out of a frame of the overview. gone tells that there
// is none of that name.
func pick(f client.Frame, name string) (in wire.Instance, known, gone bool) {
	switch f.Name {
	case "snapshot":
		var st wire.Status
		if json.Unmarshal(f.Data, &st) != nil {
			return in, false, false
		}
		i := slices.IndexFunc(st.Instances, func(in wire.Instance) bool { return in.Name == name || in.ID == name })
		if i < 0 {
			return in, false, true
		}
		return st.Instances[i], true, false
	case "state":
		if json.Unmarshal(f.Data, &in) != nil {
			return in, false, false
		}
		return in, in.Name == name || in.ID == name, false
	}
	return in, false, false
}

func describe(in wire.Instance) string {
	if in.Name == "" {
		return "not known"
	}
	if len(in.Holds) > 0 {
		return fmt.Sprintf("%s, held by %s since %s: %s", in.State, in.Holds[0].Kind, age(in.Holds[0].Since), in.Holds[0].Label)
	}
	if in.Reason != nil {
		return fmt.Sprintf("%s: %s", in.State, *in.Reason)
	}
	return string(in.State)
}

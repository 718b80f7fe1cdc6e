package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func restartCommand() *cli.Command {
	return &cli.Command{
		Name:        "restart",
		Usage:       "end the agents of instances and start them again",
		ArgsUsage:   "NAME…",
		Description: "The agents get this command's environment.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "when-idle", Usage: "wait until nothing holds the instance"},
			&cli.StringSliceFlag{Name: "env", KeepSpace: true, Usage: "set `NAME=VALUE` in its environment"},
			&cli.BoolFlag{Name: "env-clean", Usage: "give it only the variables of --env"},
			&cli.DurationFlag{Name: "timeout", Usage: "how long to wait for it to run", Value: time.Minute},
			jsonFlag,
		},
		Action: func(c *cli.Context) error {
			env, err := callerEnv(c)
			if err != nil {
				return err
			}
			return withSupervisor(c, func(home lease.Home, cl *client.Client) error {
				names, err := targets(c, cl, c.Args().Slice())
				if err != nil {
					return err
				}
				return each(c.Context, home, cl, names, func(cl *client.Client, name string) error {
					if c.Bool("when-idle") {
						showHolds(c, cl, name)
					}
					var before wire.Instance
					if err := cl.Call(c.Context, wire.NewID(), wire.GetStatus{Instance: name}, &before); err != nil {
						return named(name, err)
					}
					var r wire.InstanceResult
					cmd := wire.RestartInstance{Instance: name, Env: env, WhenIdle: c.Bool("when-idle"), Wait: waitOf(c)}
					if err := cl.Call(c.Context, wire.NewID(), cmd, &r); err != nil {
						return named(name, err)
					}
					if c.Bool("json") {
						return printJSON(c, r)
					}
					if r.Instance.Run == before.Run && r.Instance.State == wire.Running {
						return fmt.Errorf("%s still runs as before: it is started again as soon as that is possible", name)
					}
					return startOutcome(c, r.Instance)
				})
			})
		},
	}
}

package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func rmCommand() *cli.Command {
	return &cli.Command{
		Name:        "rm",
		Usage:       "forget instances and delete their journals",
		ArgsUsage:   "NAME…",
		Description: "Refuses one that runs, unless forced: then it is stopped first.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "stop it first if it runs"}, jsonFlag},
		Action: func(c *cli.Context) error {
			return withSupervisor(c, func(home lease.Home, cl *client.Client) error {
				names, err := targets(c, cl, c.Args().Slice())
				if err != nil {
					return err
				}
				return each(c.Context, home, cl, names, func(cl *client.Client, name string) error {
					var r wire.RemoveResult
					if err := cl.Call(c.Context, wire.NewID(), wire.Remove{Instance: name, Force: c.Bool("force")}, &r); err != nil {
						return named(name, err)
					}
					if c.Bool("json") {
						return printJSON(c, r)
					}
					fmt.Fprintf(c.App.Writer, "%s removed\n", name)
					return nil
				})
			})
		},
	}
}

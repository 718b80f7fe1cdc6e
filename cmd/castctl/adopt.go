package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func adoptCommand() *cli.Command {
	return &cli.Command{
		Name: "adopt", Usage: "give an orphan its place in the registry back", ArgsUsage: "ID",
		Flags: []cli.Flag{&cli.StringFlag{Name: "name", Usage: "as `NAME`, if its own is taken"}, jsonFlag},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usage{"adopt takes the id of one orphan: see castctl orphans"}
			}
			if n := c.String("name"); n != "" {
				if err := checkNames([]string{n}); err != nil {
					return err
				}
			}
			return withSupervisor(c, func(_ lease.Home, cl *client.Client) error {
				var r wire.InstanceResult
				if err := cl.Call(c.Context, wire.NewID(), wire.Adopt{ID: c.Args().First(), Name: c.String("name")}, &r); err != nil {
					return err
				}
				if c.Bool("json") {
					return printJSON(c, r)
				}
				fmt.Fprintf(c.App.Writer, "%s adopted, it is %s (pid %s)\n", r.Instance.Name, r.Instance.State, number(r.Instance.PID))
				return nil
			})
		},
	}
}

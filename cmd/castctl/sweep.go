package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func sweepCommand() *cli.Command {
	return &cli.Command{
		Name: "sweep", Usage: "judge every instance now and clear up after the dead",
		Flags: []cli.Flag{jsonFlag},
		Action: func(c *cli.Context) error {
			return withSupervisor(c, func(_ lease.Home, cl *client.Client) error {
				var r wire.SweepResult
				if err := cl.Call(c.Context, wire.NewID(), wire.Sweep{}, &r); err != nil {
					return err
				}
				if c.Bool("json") {
					return printJSON(c, r)
				}
				fmt.Fprintf(c.App.Writer, "judged %d: alive %d, gone %d, unknown %d, foreign %d; adopted %d, restarted %d, stale records removed %d, orphans %d\n",
					r.Judged, r.Alive, r.Gone, r.Unknown, r.Foreign, r.Adopted, r.Restarted, r.RecordsRemoved, r.Orphans)
				return nil
			})
		},
	}
}

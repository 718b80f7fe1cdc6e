package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func reapCommand() *cli.Command {
	return &cli.Command{
		Name: "reap", Usage: "end orphans for good", ArgsUsage: "ID|PID:START_TICKS…",
		Description: "Asks first. Ends only verified hosts of this home that the registry does not name, through their own stop.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"},
			&cli.BoolFlag{Name: "even-if-busy", Usage: "also one that something holds"},
			jsonFlag,
		},
		Action: func(c *cli.Context) error {
			targets, err := reapTargets(c.Args().Slice())
			if err != nil {
				return err
			}
			if err := confirm(c, fmt.Sprintf("end %s for good?", strings.Join(c.Args().Slice(), ", "))); err != nil {
				return err
			}
			return withSupervisor(c, func(_ lease.Home, cl *client.Client) error {
				var r wire.ReapResult
				if err := cl.Call(c.Context, wire.NewID(), wire.Reap{Targets: targets, EvenIfBusy: c.Bool("even-if-busy")}, &r); err != nil {
					return err
				}
				return printReaped(c, r)
			})
		},
	}
}

func reapTargets(args []string) ([]wire.Target, error) {
	if len(args) == 0 {
		return nil, usage{"reap needs ids: see castctl orphans"}
	}
	var out []wire.Target
	for _, a := range args {
		pid, ticks, ok := strings.Cut(a, ":")
		if !ok {
			out = append(out, wire.Target{ID: a})
			continue
		}
		n, err := strconv.Atoi(pid)
		t, terr := strconv.ParseUint(ticks, 10, 64)
		if err != nil || terr != nil || n < 1 {
			return nil, usage{fmt.Sprintf("%s: not an id and not PID:START_TICKS", a)}
		}
		out = append(out, wire.Target{PID: n, StartTicks: t})
	}
	return out, nil
}

// confirm asks a person. Without a terminal and without --yes it refuses.
func confirm(c *cli.Context, question string) error {
	if c.Bool("yes") {
		return nil
	}
	if !terminal(os.Stdin) {
		return trouble{fmt.Errorf("nobody is there to ask: %s", question), "give --yes"}
	}
	fmt.Fprintf(c.App.ErrWriter, "%s [y/N] ", question)
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(line)); a == "y" || a == "yes" {
		return nil
	}
	return fmt.Errorf("nothing was ended")
}

func printReaped(c *cli.Context, r wire.ReapResult) error {
	if c.Bool("json") {
		return printJSON(c, r)
	}
	refused := 0
	for _, x := range r.Reaped {
		what := x.Target.ID
		if what == "" {
			what = fmt.Sprintf("%d:%d", x.Target.PID, x.Target.StartTicks)
		}
		if x.Refused != nil {
			refused++
			fmt.Fprintf(c.App.ErrWriter, "castctl: reap %s: %s\n", what, *x.Refused)
			continue
		}
		fmt.Fprintf(c.App.Writer, "%s ended, %s\n", what, plural(x.Ended, "process", "processes"))
	}
	if refused > 0 {
		return exit{exitRefused}
	}
	return nil
}

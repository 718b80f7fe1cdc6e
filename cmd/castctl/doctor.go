package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/lease"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "look for what is wrong around here, and say how to mend it",
		Description: "Starts and changes nothing. Exits 1 if something is wrong.",
		Flags:       []cli.Flag{jsonFlag},
		Action:      doctor,
	}
}

// diagnosis is one thing that was looked at.
type diagnosis struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Says string `json:"says"`
	Do   string `json:"do,omitzero"` // the one thing to do about it
}

func fine(what, format string, args ...any) diagnosis {
	return diagnosis{What: what, OK: true, Says: fmt.Sprintf(format, args...)}
}

func wrong(what, do, format string, args ...any) diagnosis {
	return diagnosis{What: what, Says: fmt.Sprintf(format, args...), Do: do}
}

func doctor(c *cli.Context) error {
	if c.NArg() > 0 {
		return usage{"doctor takes no arguments"}
	}
	dir, err := homeDir(c)
	if err != nil {
		return err
	}
	list := []diagnosis{examineHome(dir)}
	if home, err := lease.FindHome(dir); err == nil {
		list = append(list, examineFleet(c.Context, home)...)
	}
	list = append(list, examineMachine(dir)...)
	if c.Bool("json") {
		if err := printJSON(c, list); err != nil {
			return err
		}
	} else {
		printDiagnoses(c, list)
	}
	for _, d := range list {
		if !d.OK {
			return exit{exitRefused}
		}
	}
	return nil
}

func printDiagnoses(c *cli.Context, list []diagnosis) {
	for _, d := range list {
		mark := "ok   "
		if !d.OK {
			mark = "WRONG"
		}
		fmt.Fprintf(c.App.Writer, "%s  %s: %s\n", mark, d.What, d.Says)
		if d.Do != "" {
			fmt.Fprintf(c.App.Writer, "       %s\n", d.Do)
		}
	}
}

package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func eventsCommand() *cli.Command {
	return &cli.Command{
		Name: "events", Usage: "print events as JSON lines", ArgsUsage: "[NAME]",
		Description: "With a name: the numbered events of that instance, from its journal. Without: what happened to the fleet,\n" +
			"or with --follow every change of an instance's state, as the supervisor tells it.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on as more happens"},
			&cli.StringFlag{Name: "after", Usage: "only what came after `POSITION` (EPOCH:NUMBER)"},
			&cli.StringSliceFlag{Name: "type", Usage: "only events of `TYPE`"},
			jsonFlag,
		},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return fleetEvents(c)
			}
			return instanceEvents(c)
		},
	}
}

func instanceEvents(c *cli.Context) error {
	folder, err := instanceFolder(c)
	if err != nil {
		return err
	}
	types, err := eventTypes(c)
	if err != nil {
		return err
	}
	r := journal.NewReader(folder.Journal())
	defer r.Close()
	if after := c.String("after"); after != "" {
		if err := seekAfter(r, folder, after); err != nil {
			return err
		}
	}
	return followJournal(c.Context, folder, r, c.Bool("follow"), func(e journal.Entry) error {
		if len(types) > 0 && !types[e.Type] {
			return nil
		}
		_, err := c.App.Writer.Write(append(e.AppendJSON(nil), '\n'))
		return err
	})
}

func eventTypes(c *cli.Context) (map[wire.EventType]bool, error) {
	known := map[wire.EventType]bool{}
	for _, t := range wire.EventOutput.Enum() {
		known[wire.EventType(t)] = true
	}
	types := map[wire.EventType]bool{}
	for _, t := range c.StringSlice("type") {
		if !known[wire.EventType(t)] {
			return nil, usage{fmt.Sprintf("--type %s: there is no such event", t)}
		}
		types[wire.EventType(t)] = true
	}
	return types, nil
}

func seekAfter(r *journal.Reader, folder lease.Folder, after string) error {
	p, werr := wire.ParsePos(after)
	if werr != nil {
		return werr
	}
	bounds, err := journal.Find(folder.Journal())
	if err != nil {
		return err
	}
	if err := journal.Locate(folder.Journal(), p, bounds.Last.Seq); err != nil {
		return wire.Errorf(wire.NotFound, "--after %s: %v", after, err)
	}
	return r.SeekAfter(p.Seq)
}

// fleetEvents prints the lifecycle facts, or follows the overview.
func fleetEvents(c *cli.Context) error {
	home, ok, err := findHome(c)
	if err != nil || !ok {
		return err
	}
	cl, err := livingClient(c.Context, home)
	if err != nil {
		return err
	}
	if cl == nil {
		return trouble{fmt.Errorf("no supervisor runs, and the fleet's history is in its registry (%w)", errUnable), "castctl events NAME   reads an instance's own events"}
	}
	defer cl.Close()
	if c.Bool("follow") {
		return followFleet(c, cl)
	}
	after := c.String("after")
	for {
		var r wire.HistoryResult
		if err := cl.Call(c.Context, wire.NewID(), wire.History{After: after, Limit: 1000}, &r); err != nil {
			return err
		}
		for _, ev := range r.Events {
			if err := printJSON(c, ev); err != nil {
				return err
			}
		}
		if r.Next == nil {
			return nil
		}
		after = *r.Next
	}
}

func followFleet(c *cli.Context, cl *client.Client) error {
	s, err := cl.Follow(c.Context, "")
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		f, err := s.Next()
		if err != nil {
			if c.Context.Err() != nil {
				return nil
			}
			return wire.Errorf(wire.Unavailable, "the stream ended: %v", err)
		}
		fmt.Fprintf(c.App.Writer, `{"event":%q,"data":%s}`+"\n", f.Name, f.Data)
	}
}

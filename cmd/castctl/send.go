package main

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func sendCommand() *cli.Command {
	return &cli.Command{
		Name: "send", Usage: "give an agent something to do, and print the answer", ArgsUsage: "NAME TEXT",
		Description: "For an agent of dialect ndjson TEXT is the command object and the answer its result.\n" +
			"The same --id never reaches the agent twice: after a lost answer, send again with it.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "no-wait", Usage: "print the receipt and return"},
			&cli.StringFlag{Name: "if-busy", Usage: "queue or reject while a turn runs", Value: string(wire.IfBusyQueue)},
			&cli.StringFlag{Name: "id", Usage: "request `ID`; a new one by default"},
			jsonFlag,
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 2 {
				return usage{"send takes a name and a text"}
			}
			name := c.Args().First()
			if err := checkNames([]string{name}); err != nil {
				return err
			}
			return withSupervisor(c, func(home lease.Home, cl *client.Client) error {
				return send(c, home, cl, name, c.Args().Get(1))
			})
		},
	}
}

func send(c *cli.Context, home lease.Home, cl *client.Client, name, what string) error {
	var in wire.Instance
	if err := cl.Call(c.Context, wire.NewID(), wire.GetStatus{Instance: name}, &in); err != nil {
		return err
	}
	cmd, err := submitOf(in, what)
	if err != nil {
		return err
	}
	cmd.IfBusy = wire.IfBusy(c.String("if-busy"))
	id := c.String("id")
	if id == "" {
		id = wire.NewID()
	}
	if c.Bool("no-wait") {
		return submit(c, cl, id, cmd, nil)
	}
	// Listen first, speak after: the answer cannot be missed.
	ears, err := connectLiving(c.Context, home)
	if err != nil {
		return err
	}
	stream, err := ears.Follow(c.Context, "", in.ID)
	if err != nil {
		return err
	}
	defer stream.Close()
	return submit(c, cl, id, cmd, stream)
}

// submitOf makes the submit that fits the instance's dialect.
func submitOf(in wire.Instance, what string) (wire.Submit, error) {
	cmd := wire.Submit{Instance: in.ID}
	if in.Dialect != wire.NDJSON {
		cmd.Text = what
		return cmd, nil
	}
	v := jsontext.Value(what)
	if !v.IsValid() || v.Kind() != jsontext.KindBeginObject {
		return cmd, usage{fmt.Sprintf("%s speaks ndjson: the text must be a command object such as {\"op\":…}", in.Name)}
	}
	cmd.Command = v
	return cmd, nil
}

func submit(c *cli.Context, cl *client.Client, id string, cmd wire.Submit, stream *client.Stream) error {
	var r wire.SubmitResult
	if err := cl.Call(c.Context, id, cmd, &r); err != nil {
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Delivery == wire.DeliveryUnknown {
			return trouble{err, fmt.Sprintf("castctl send --id %s …   asks again; it never reaches the agent twice", id)}
		}
		return err
	}
	if r.Disposition == wire.TurnRejected {
		return wire.Errorf(wire.InvalidState, "the agent is busy, and the request was rejected")
	}
	if stream == nil || r.Turn == nil {
		return printJSON(c, r)
	}
	if c.String("id") != "" { // it may be a retry, and its turn over long ago
		ended, over, err := turnFromHistory(c, cl, cmd.Instance, *r.Turn)
		if err != nil {
			return err
		}
		if over {
			return printTurn(c, ended)
		}
	}
	ended, err := awaitTurn(stream, *r.Turn)
	if err != nil {
		return err
	}
	return printTurn(c, ended)
}

// awaitTurn reads the stream until the turn is over.
func awaitTurn(stream *client.Stream, turn string) (wire.TurnEndedData, error) {
	var d wire.TurnEndedData
	for {
		f, err := stream.Next()
		if err != nil {
			return d, wire.Unknownf(wire.Unavailable, "the stream ended before the turn did: %v", err)
		}
		if f.Name != "event" {
			continue
		}
		var ev wire.Event
		if json.Unmarshal(f.Data, &ev) == nil && ev.Type == wire.EventTurnEnded && ev.Turn != nil && *ev.Turn == turn {
			return d, json.Unmarshal(ev.Data, &d)
		}
	}
}

// turnFromHistory finds the end of a turn, if it is over.
func turnFromHistory(c *cli.Context, cl *client.Client, instance, turn string) (d wire.TurnEndedData, over bool, err error) {
	after := ""
	for {
		var r wire.HistoryResult
		cmd := wire.History{Instance: instance, After: after, Limit: 1000, Types: []wire.EventType{wire.EventTurnEnded}}
		if err := cl.Call(c.Context, wire.NewID(), cmd, &r); err != nil {
			return d, false, err
		}
		for _, ev := range r.Events {
			if ev.Turn != nil && *ev.Turn == turn {
				return d, true, json.Unmarshal(ev.Data, &d)
			}
		}
		if r.Next == nil {
			return d, false, nil
		}
		after = *r.Next
	}
}

// printTurn prints an agent's answer.
func printTurn(c *cli.Context, d wire.TurnEndedData) error {
	if c.Bool("json") {
		if err := printJSON(c, d); err != nil {
			return err
		}
	} else if d.Response != nil {
		r, err := wire.DecodeResponse(*d.Response)
		if err != nil {
			return err
		}
		if r.Error == nil {
			if err := printRaw(c, r.Result); err != nil {
				return err
			}
		}
	}
	if d.Outcome == wire.TurnCompleted {
		return nil
	}
	if d.Error != nil {
		return fmt.Errorf("the turn %s: %s", d.Outcome, d.Error.Message)
	}
	return fmt.Errorf("the turn %s", d.Outcome)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/supervisor"
	"github.com/castctl/castctl/wire"
)

type statusOptions struct{ json bool }

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "show instances, what they do and what keeps them",
		ArgsUsage:   "[NAME…]",
		Description: "Starts no supervisor. Without one it tells the truth from the instance folders.",
		Flags:       []cli.Flag{jsonFlag},
		Action:      func(c *cli.Context) error { return showStatus(c, statusOptions{json: c.Bool("json")}) },
	}
}

func showStatus(c *cli.Context, o statusOptions) error {
	if err := checkNames(plainOnly(c.Args().Slice())); err != nil {
		return err
	}
	home, ok, err := findHome(c)
	if err != nil {
		return err
	}
	st := wire.Status{Instances: []wire.Instance{}, Orphans: []wire.Orphan{}}
	if ok {
		raw, silent, err := fleetStatus(c.Context, home)
		if err != nil {
			return err
		}
		if silent != nil {
			fmt.Fprintf(c.App.ErrWriter, "castctl: the supervisor does not answer, so this is what the folders tell: %s\n", plain(oneLine(silent.Error())))
		}
		if o.json && c.NArg() == 0 {
			return printRaw(c, raw)
		}
		if err := json.Unmarshal(raw, &st); err != nil {
			return err
		}
	} else if st.Home, err = homeDir(c); err != nil {
		return err
	}
	if c.NArg() == 0 {
		if o.json {
			return printJSON(c, st)
		}
		return printFleet(c, st)
	}
	return showSome(c, st, o)
}

// askBound is how long a supervisor may take to answer a look before the folders
// are read instead.
const askBound = 300 * time.Millisecond

// fleetStatus is the fleet as JSON: from the supervisor if one answers, else
// from the folders. silent is why one that lives does not answer.
func fleetStatus(ctx context.Context, home lease.Home) (raw []byte, silent, err error) {
	quick, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	cl, err := client.Connect(quick, client.Config{Home: home})
	if err == nil {
		defer cl.Close()
		if raw, err = cl.Get(quick, "/v1/instances"); err == nil {
			return raw, nil, nil
		}
	}
	if !errors.Is(err, lease.ErrNoServer) {
		silent = err
	}
	st, err := supervisor.Offline(ctx, home)
	if err != nil {
		return nil, silent, err
	}
	raw, err = json.Marshal(st)
	return raw, silent, err
}

// offline is the fleet without a supervisor.
func offline(home lease.Home) wire.Status {
	st, err := supervisor.Offline(context.Background(), home)
	if err != nil {
		return wire.Status{}
	}
	return st
}

// hostsLive reports whether any host lives, or may.
func hostsLive(home lease.Home) bool {
	ids, err := home.InstanceIDs()
	if err != nil {
		return true
	}
	for _, id := range ids {
		state, err := lease.Probe(home.Instance(id).AliveLock())
		if err != nil || state.Held {
			return true
		}
	}
	return false
}

func findInstance(st wire.Status, ref string) (wire.Instance, bool) {
	for _, in := range st.Instances {
		if in.Name == ref || in.ID == ref {
			return in, true
		}
	}
	return wire.Instance{}, false
}

// showSome shows the named instances; as JSON, one object a line.
func showSome(c *cli.Context, st wire.Status, o statusOptions) error {
	names, err := expand(c.Args().Slice(), st.Instances)
	if err != nil {
		return err
	}
	var some []wire.Instance
	for _, name := range names {
		in, ok := findInstance(st, name)
		if !ok {
			return wire.Errorf(wire.NotFound, "there is no instance %q", name)
		}
		some = append(some, in)
	}
	if o.json {
		for _, in := range some {
			if err := printJSON(c, in); err != nil {
				return err
			}
		}
		return nil
	}
	if err := printInstances(c, some); err != nil {
		return err
	}
	for _, in := range some {
		printDetails(c, in)
	}
	return nil
}

func printFleet(c *cli.Context, st wire.Status) error {
	if len(st.Instances) == 0 {
		fmt.Fprintf(c.App.Writer, "no instances in %s\n", st.Home)
	} else if err := printInstances(c, st.Instances); err != nil {
		return err
	}
	for _, o := range st.Orphans {
		fmt.Fprintf(c.App.Writer, "orphan %s (%s), host %d, found %s: castctl adopt %s, or castctl reap %s\n", o.ID, plain(o.Name), o.HostPID, ago(o.Since), o.ID, o.ID)
	}
	if st.Supervisor == nil && len(st.Instances) > 0 {
		fmt.Fprintln(c.App.Writer, "no supervisor runs; the next command that needs one starts it")
	}
	return nil
}

func printInstances(c *cli.Context, list []wire.Instance) error {
	rows := make([][]string, 0, len(list))
	for _, in := range list {
		rows = append(rows, []string{
			in.Name, string(in.State), activityOf(in), number(in.PID), size(in.RSSBytes), number(in.Processes),
			ageOf(in.StartedAt), fmt.Sprint(in.Restarts), note(in),
		})
	}
	return table(c.App.Writer, []string{"NAME", "STATE", "ACTIVITY", "PID", "RSS", "PROCS", "UP", "RESTARTS", "NOTE"}, rows)
}

func activityOf(in wire.Instance) string {
	if in.Activity == nil {
		return nothing
	}
	return string(*in.Activity)
}

// note is the one thing that a person should know of an instance.
func note(in wire.Instance) string {
	switch {
	case in.Reason != nil:
		return plain(*in.Reason)
	case in.State.Over() && in.Exit != nil:
		return exitText(*in.Exit)
	}
	return ""
}

func exitText(e wire.Exit) string {
	switch {
	case e.Signal != nil:
		return fmt.Sprintf("signal %d, %s", *e.Signal, ago(e.At))
	case e.Code != nil:
		return fmt.Sprintf("exit code %d, %s", *e.Code, ago(e.At))
	}
	return "exit unknown, " + ago(e.At)
}

// printDetails adds what a table has no room for.
func printDetails(c *cli.Context, in wire.Instance) {
	w := c.App.Writer
	fmt.Fprintf(w, "\n%s: id %s, dialect %s, host %s, run %d, wanted %s\n", in.Name, in.ID, in.Dialect, number(in.HostPID), in.Run, in.Wanted)
	if in.Exit != nil {
		fmt.Fprintf(w, "  last exit: run %d, %s\n", in.Exit.Run, exitText(*in.Exit))
	}
	for _, h := range in.Holds {
		pid := ""
		if h.PID != nil {
			pid = fmt.Sprintf(" (pid %d)", *h.PID)
		}
		fmt.Fprintf(w, "  held by %s since %s: %s%s\n", h.Kind, age(h.Since), plain(h.Label), pid)
	}
}

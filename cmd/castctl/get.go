package main

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func getCommand() *cli.Command {
	return &cli.Command{
		Name: "get", Usage: "show an instance's spec", ArgsUsage: "NAME",
		Description: "Starts no supervisor.",
		Flags:       []cli.Flag{jsonFlag},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usage{"get takes one name"}
			}
			got, err := getInstance(c, c.Args().First())
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(c, got)
			}
			b, err := json.Marshal(got.Spec, jsontext.WithIndent("  "))
			if err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "%s, revision %d\n%s\n", got.Instance.Name, got.Revision, b)
			return nil
		},
	}
}

// getInstance reads one instance from the supervisor, or without one from its
// folder.
func getInstance(c *cli.Context, name string) (wire.GetResult, error) {
	var got wire.GetResult
	if err := checkNames([]string{name}); err != nil {
		return got, err
	}
	home, ok, err := findHome(c)
	if err != nil {
		return got, err
	}
	if !ok {
		return got, wire.Errorf(wire.NotFound, "there is no instance %q", name)
	}
	cl, err := livingClient(c.Context, home)
	if err != nil {
		return got, err
	}
	if cl != nil {
		defer cl.Close()
		return got, cl.Call(c.Context, wire.NewID(), wire.Get{Instance: name}, &got)
	}
	return getOffline(home, name)
}

func getOffline(home lease.Home, name string) (wire.GetResult, error) {
	in, ok := findInstance(offline(home), name)
	if !ok {
		return wire.GetResult{}, wire.Errorf(wire.NotFound, "there is no instance %q", name)
	}
	file, err := host.ReadSpec(home.Instance(in.ID))
	if err != nil {
		return wire.GetResult{}, err
	}
	return wire.GetResult{Instance: in, Spec: file.Spec, Revision: file.Revision, Sessions: []wire.Session{}}, nil
}

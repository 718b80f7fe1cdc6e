package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/updater"
	"github.com/castctl/castctl/wire"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the versions of this command, the supervisor and the hosts",
		Flags: []cli.Flag{jsonFlag}, Action: version,
	}
}

// versions is what version --json prints.
type versions struct {
	Version    string               `json:"version"`
	BuildID    string               `json:"build_id"`
	Protocol   wire.Versions        `json:"protocol"`
	Supervisor *wire.SupervisorInfo `json:"supervisor"`
	Hosts      []wire.HostBuild     `json:"hosts"`
}

func versionLine() string {
	return fmt.Sprintf("castctl %s, protocol %d, build %s", updater.Version, wire.Protocol, updater.Self())
}

func version(c *cli.Context) error {
	v := versions{
		Version: updater.Version, BuildID: updater.Self(), Protocol: wire.Versions{Min: wire.Protocol, Max: wire.Protocol}, Hosts: []wire.HostBuild{},
	}
	var skew error
	if home, ok, err := findHome(c); err == nil && ok {
		skew = askVersions(c, home, &v)
	}
	if c.Bool("json") {
		return printJSON(c, v)
	}
	w := c.App.Writer
	fmt.Fprintln(w, versionLine())
	if v.Supervisor != nil {
		fmt.Fprintf(w, "supervisor %s, build %s%s\n", v.Supervisor.Version, v.Supervisor.BuildID, differs(v.Supervisor.BuildID, v.BuildID))
	}
	for _, h := range v.Hosts {
		fmt.Fprintf(w, "host of %s, build %s%s\n", h.Name, h.BuildID, differs(h.BuildID, v.BuildID))
	}
	if skew != nil {
		report(os.Stderr, skew)
	}
	return nil
}

func differs(theirs, ours string) string {
	if theirs != ours {
		return " (another than this command's)"
	}
	return ""
}

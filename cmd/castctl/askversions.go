package main

import (
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// askVersions adds what the supervisor and the hosts run. A supervisor of
// another protocol is described from its record, and the mismatch returned.
func askVersions(c *cli.Context, home lease.Home, v *versions) error {
	server, err := home.Living()
	if errors.Is(err, lease.ErrNoServer) {
		return nil
	}
	if err != nil {
		return err
	}
	v.Supervisor = &wire.SupervisorInfo{
		PID: server.PID, InstanceID: server.InstanceID, Version: server.Version, BuildID: server.BuildID,
		Protocol: wire.Versions(server.Protocol), StartedAt: server.StartedAt, Foreground: server.Foreground, URL: server.URL(),
	}
	cl, err := connectLiving(c.Context, home)
	if err != nil {
		return err
	}
	defer cl.Close()
	var r wire.VersionResult
	if err := cl.Call(c.Context, wire.NewID(), wire.GetVersion{}, &r); err != nil {
		return err
	}
	v.Hosts = r.Hosts
	return nil
}

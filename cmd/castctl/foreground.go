package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// hostForeground is the host of an instance that the supervisor has committed
// and expects. Ctrl-C ends it like a stop does.
func hostForeground(c *cli.Context, home lease.Home, cl *client.Client, in wire.Instance) error {
	err := runHost(context.WithoutCancel(c.Context), host.Config{
		Home: home, ID: in.ID, Incarnation: *in.Incarnation, Foreground: true, Echo: os.Stdout,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Published: func([]byte) {
			// The supervisor cannot know when; it is told.
			go cl.Call(context.WithoutCancel(c.Context), wire.NewID(), wire.Adopt{ID: in.ID}, nil)
		},
	})
	if err != nil {
		return err
	}
	return c.Context.Err()
}

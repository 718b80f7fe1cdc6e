package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
)

// inMemory runs a command on a private temporary home, and stops and removes
// everything of it afterwards. The supervisor watches this process: if it is
// killed, the supervisor does the same.
func inMemory(c *cli.Context, do func(home lease.Home) error) error {
	dir, err := os.MkdirTemp("", "cast-")
	if err != nil {
		return err
	}
	home, err := lease.OpenHome(dir)
	if err != nil {
		os.Remove(dir)
		return err
	}
	self, err := proc.Self()
	if err != nil {
		return err
	}
	owner := fmt.Sprintf("%d:%s", self.PID, strconv.FormatUint(self.StartTicks, 10))
	ctx, cancel := context.WithTimeout(c.Context, 10*time.Second)
	err = spawnSupervisorWith(ctx, home, "--owner", owner)
	cancel()
	if err == nil {
		err = do(home)
	}
	// Also when the command was interrupted: nothing may be left.
	ctx, cancel = context.WithTimeout(context.WithoutCancel(c.Context), time.Minute)
	defer cancel()
	if derr := downAll(ctx, c, home); derr != nil {
		return derr
	}
	if rerr := os.RemoveAll(dir); rerr != nil {
		return rerr
	}
	return err
}

// superviseMemory is a supervisor on a private home, for as long as this command
// runs.
func superviseMemory(c *cli.Context) error {
	return inMemory(c, func(home lease.Home) error {
		fmt.Fprintf(c.App.Writer, "%s\n", home.Dir())
		<-c.Context.Done()
		return nil
	})
}

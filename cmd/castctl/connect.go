package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
)

// homeDir is the home that a command line means.
func homeDir(c *cli.Context) (string, error) {
	if dir := c.String("home"); dir != "" {
		return filepath.Abs(dir)
	}
	return lease.DefaultDir()
}

// openHome verifies the home and makes it if there is none.
func openHome(c *cli.Context) (lease.Home, error) {
	dir, err := homeDir(c)
	if err != nil {
		return lease.Home{}, err
	}
	return lease.OpenHome(dir)
}

// findHome verifies an existing home. For a command that only reads, a missing
// one is an empty one: ok is false then.
func findHome(c *cli.Context) (home lease.Home, ok bool, err error) {
	dir, err := homeDir(c)
	if err != nil {
		return home, false, err
	}
	home, err = lease.FindHome(dir)
	if errors.Is(err, lease.ErrNoHome) {
		return home, false, nil
	}
	return home, err == nil, err
}

// connectTo finds the home's supervisor, or starts one.
func connectTo(ctx context.Context, home lease.Home) (*client.Client, error) {
	return explained(client.Connect(ctx, client.Config{Home: home, Start: spawnSupervisor}))
}

// connectLiving finds the supervisor and starts none.
func connectLiving(ctx context.Context, home lease.Home) (*client.Client, error) {
	return explained(client.Connect(ctx, client.Config{Home: home}))
}

func explained(cl *client.Client, err error) (*client.Client, error) {
	if err == nil || errors.Is(err, lease.ErrNoServer) {
		return cl, err
	}
	if _, ok := errors.AsType[hinted](err); ok {
		return nil, err
	}
	return nil, trouble{fmt.Errorf("%w (%w)", err, errUnable), "castctl doctor   looks for the cause"}
}

// spawnSupervisor starts a detached supervisor from this very program and waits
// until it has published itself.
func spawnSupervisor(ctx context.Context, home lease.Home) error {
	return spawnSupervisorWith(ctx, home)
}

func spawnSupervisorWith(ctx context.Context, home lease.Home, flags ...string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	argv := append([]string{os.Args[0], "--home", home.Dir(), "supervise", "--detached"}, flags...)
	child, err := proc.Start(proc.Command{
		Path: proc.SelfExe(), Argv: argv, Env: supervisorEnv(), Dir: "/", Files: []*os.File{nil, nil, nil, w}, NewSession: true,
	})
	w.Close()
	if err != nil {
		return fmt.Errorf("the supervisor could not be started: %w", err)
	}
	go child.Wait(context.WithoutCancel(ctx)) // it outlives us; if it does not, it leaves no zombie
	if deadline, ok := ctx.Deadline(); ok {
		r.SetReadDeadline(deadline)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	line = strings.TrimSuffix(line, "\n")
	switch {
	case line == supervisorReady:
		return nil
	case line != "":
		return trouble{fmt.Errorf("the supervisor did not start: %s (%w)", line, errUnable), "castctl doctor   looks for the cause"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the supervisor did not publish itself in time (%w)", errUnable)
	}
	return trouble{
		fmt.Errorf("the supervisor ended before it was ready (%w)", errUnable),
		"see " + filepath.Join(home.LogDir(), supervisorLog),
	}
}

// supervisorReady is what a detached supervisor tells its starter; anything
// else is the reason why it did not start.
const supervisorReady = "ready"

// supervisorEnv is the supervisor's own environment, which is never an agent's.
func supervisorEnv() []string {
	env := crashpoint.Env()
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "LANG", graceVariable, journalsVariable} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

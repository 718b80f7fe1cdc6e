package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/updater"
	"github.com/castctl/castctl/wire"
)

// Exit codes of every command.
const (
	exitDone    = 0
	exitRefused = 1 // refused or failed
	exitUnable  = 2 // could not start or talk
	exitRunning = 75
	exitSignal  = 130 // interrupted
)

// exit ends a command with a code after everything was said.
type exit struct{ code int }

func (e exit) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// usage is a wrong command line.
type usage struct{ what string }

func (e usage) Error() string { return e.what }

// trouble is an error with what to do about it.
type trouble struct {
	err  error
	hint string
}

func (e trouble) Error() string { return e.err.Error() }
func (e trouble) Unwrap() error { return e.err }
func (e trouble) Hint() string  { return e.hint }

// hinted is implemented by errors that know what to do.
type hinted interface {
	error
	Hint() string
}

// cliMain runs one command and returns the exit code.
func cliMain(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	app := newApp()
	err := app.RunContext(ctx, flagsFirst(app, args))
	return report(os.Stderr, err)
}

func newApp() *cli.App {
	app := &cli.App{
		Name:            "castctl",
		Usage:           "the process manager for AI agents",
		Version:         updater.Version,
		HideVersion:     true,
		HideHelpCommand: true,
		// A comma is a part of a value, as in --env NO_PROXY=a,b.
		DisableSliceFlagSeparator: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "home", Usage: "keep everything in `DIR` instead of $CAST_HOME or ~/.cast"},
			&cli.BoolFlag{Name: "version", Usage: "print the version"},
		},
		Commands: []*cli.Command{
			startCommand(), stopCommand(), restartCommand(), rmCommand(), statusCommand(), getCommand(), setCommand(), logsCommand(),
			sendCommand(), eventsCommand(), waitCommand(), rpcCommand(), orphansCommand(), adoptCommand(), reapCommand(), sweepCommand(),
			applyCommand(), superviseCommand(), downCommand(), doctorCommand(), versionCommand(),
		},
		// Main alone decides what is printed and with which code it ends.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   wrongUsage,
		CommandNotFound: func(c *cli.Context, name string) {
			c.App.Metadata["unknown"] = name
		},
		Metadata: map[string]any{},
		Action:   bare,
	}
	for _, cmd := range app.Commands {
		cmd.OnUsageError, cmd.HideHelpCommand = wrongUsage, true
	}
	return app
}

// wrongUsage says in one line what is wrong with a flag, where the library would
// print the whole help.
func wrongUsage(c *cli.Context, err error, _ bool) error {
	name := c.App.Name
	if c.Command != nil && c.Command.Name != name {
		name += " " + c.Command.Name
	}
	return usage{fmt.Sprintf("%s: see %s --help", twoDashes.Replace(err.Error()), name)}
}

// twoDashes writes a flag's name in the library's messages as everywhere else.
var twoDashes = strings.NewReplacer("flag -", "flag --", "defined: -", "defined: --", "argument: -", "argument: --")

// bare is castctl without a command.
func bare(c *cli.Context) error {
	if name := c.Args().First(); name != "" {
		return usage{fmt.Sprintf("there is no command %q: see castctl --help", name)}
	}
	if c.Bool("version") {
		fmt.Fprintln(c.App.Writer, versionLine())
		return nil
	}
	return showStatus(c, statusOptions{})
}

// report prints an error as one line and what to do, and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	if e, ok := errors.AsType[exit](err); ok {
		return e.code
	}
	if errors.Is(err, context.Canceled) {
		return exitSignal
	}
	fmt.Fprintf(w, "castctl: %s\n", plain(oneLine(err.Error())))
	if h, ok := errors.AsType[hinted](err); ok && h.Hint() != "" {
		fmt.Fprintf(w, "  %s\n", h.Hint())
	}
	return codeOf(err)
}

func oneLine(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", ": ") }

// codeOf tells what was refused or failed from what could not be tried.
func codeOf(err error) int {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		if e.Code == wire.Unavailable && e.Delivery == wire.NotSent {
			return exitUnable
		}
		return exitRefused
	}
	var mismatch *client.Mismatch
	var home *lease.BadHome
	switch {
	case errors.As(err, &mismatch), errors.As(err, &home), errors.Is(err, lease.ErrNoServer), errors.Is(err, client.ErrInside),
		errors.Is(err, client.ErrImpostor), errors.Is(err, errUnable):
		return exitUnable
	}
	return exitRefused
}

// errUnable marks what could not be started or talked to.
var errUnable = errors.New("unable")

// flagsFirst puts a command's flags in front of its arguments, because the
// parser stops at the first argument and would take a flag behind it for
// another. What follows -- is arguments.
func flagsFirst(app *cli.App, args []string) []string {
	cmd, at := commandAt(app, args)
	if cmd == nil {
		return args
	}
	takesValue := map[string]bool{}
	for _, f := range cmd.Flags {
		_, boolean := f.(*cli.BoolFlag)
		for _, n := range f.Names() {
			takesValue[n] = !boolean
		}
	}
	var flags, rest []string
	for i := at; i < len(args); i++ {
		a := args[i]
		if a == "--" && cmd.Name == "start" {
			rest = append(rest, args[i:]...) // it parts the names from the command
			break
		}
		if a == "--" {
			rest = append(append([]string{"--"}, rest...), args[i+1:]...)
			break
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			rest = append(rest, a)
			continue
		}
		flags = append(flags, a)
		name, _, given := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !takesValue[name] || given {
			continue
		}
		if i++; i == len(args) {
			rest = nil // nothing may be taken for the value that is missing
			break
		}
		flags = append(flags, args[i])
	}
	return append(append(append([]string{}, args[:at]...), flags...), rest...)
}

// commandAt finds the command that a line names, and where its own part begins.
func commandAt(app *cli.App, args []string) (*cli.Command, int) {
	for i := 1; i < len(args); i++ {
		a := args[i]
		if a == "--home" || a == "-home" {
			i++
			continue
		}
		if strings.HasPrefix(a, "-") {
			continue
		}
		for _, c := range app.Commands {
			if c.HasName(a) {
				return c, i + 1
			}
		}
		return nil, 0
	}
	return nil, 0
}

// Command supercast-agent is a ledger of forecasts that speaks
// newline-delimited JSON: the reference agent of the ndjson dialect. What it
// does is in package forecast; here are its flags, signals and exit codes.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

// Exit codes.
const (
	allSucceeded = 0
	someFailed   = 1
	cannotServe  = 2
)

// version is set by the linker.
var version = ""

func main() {
	// A reader that went away is an error of a write, not a signal.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// The first signal lets the command at hand be answered, the second kills.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program without the process. Whatever goes wrong outside the
// protocol is one line on stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	fail := func(err error) int {
		fmt.Fprintf(stderr, "supercast-agent: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return cannotServe
	}
	o, err := parse(args)
	if err != nil {
		return fail(err)
	}
	if text := o.information(); text != "" {
		if _, err := io.WriteString(stdout, text); err != nil {
			return fail(fmt.Errorf("stdout: %w", err))
		}
		return allSucceeded
	}
	ledger, err := o.ledger()
	if err != nil {
		return fail(err)
	}
	defer ledger.Close()
	agent := forecast.Agent{Ledger: ledger}
	clean, err := agent.Serve(ctx, stdin, stdout)
	switch {
	case err != nil:
		return fail(err)
	case !clean:
		return someFailed
	}
	return allSucceeded
}

type options struct {
	db                    string
	memory                bool
	help, version, schema bool
}

func misused(format string, args ...any) error {
	return fmt.Errorf("arguments: "+format+" (see supercast-agent --help)", args...)
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("supercast-agent", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.db, "db", "", "")
	f.BoolVar(&o.memory, "memory", false, "")
	f.BoolVar(&o.help, "help", false, "")
	f.BoolVar(&o.help, "h", false, "")
	f.BoolVar(&o.version, "version", false, "")
	f.BoolVar(&o.schema, "schema", false, "")
	if err := f.Parse(args); err != nil {
		return o, misused("%w", err)
	}
	switch {
	case o.help, o.version, o.schema:
		return o, nil
	case f.NArg() > 0:
		return o, misused("%q is not understood", f.Arg(0))
	case o.memory && o.db != "":
		return o, misused("--db and --memory exclude each other")
	case !o.memory && o.db == "":
		return o, misused("give --db PATH or --memory")
	}
	return o, nil
}

// information is what the informational modes print.
func (o options) information() string {
	switch {
	case o.help:
		return help
	case o.version:
		return fmt.Sprintf("supercast-agent %s (protocol %d)\n", release(), wire.Protocol)
	case o.schema:
		return string(forecast.Ops.Schema("supercast-agent protocol"))
	}
	return ""
}

func (o options) ledger() (*forecast.Ledger, error) {
	if o.memory {
		return forecast.Memory()
	}
	return forecast.Open(o.db)
}

func release() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

// Command castctl is the process manager for AI agents: it keeps each agent as
// a named instance that outlives the terminal, the supervisor and the upgrade of
// both.
//
// There is one file for each command: its flags, its calls, its printing, and
// nothing else.
package main

import (
	"errors"
	"os"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/supervisor"
)

// programName is what the processes are called in listings.
const programName = "castctl"

func main() { os.Exit(run(os.Args)) }

// run dispatches the programs that castctl is made of. A host comes first and
// by itself: there are many, and each pays for what is built before it.
func run(args []string) int {
	proc.Isolate()
	if len(args) > 1 {
		switch args[1] {
		case "host":
			return hostMain(args[2:])
		case "check-registry":
			return checkRegistry(args[2:])
		}
	}
	return cliMain(args)
}

// checkRegistry reads a registry file in a process of its own, because a damaged
// one faults whoever maps it.
func checkRegistry(args []string) int {
	if len(args) != 1 {
		return exitUnable
	}
	switch err := registry.Check(args[0]); {
	case err == nil:
		return exitDone
	case errors.Is(err, registry.ErrDamaged):
		return supervisor.CheckDamaged
	}
	return supervisor.CheckUnread
}

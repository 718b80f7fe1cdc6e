// Package servertest opens real supervisors for tests: on a home of their own,
// with a real door, and with hosts and agents that are real processes.
//
// A supervisor spawns hosts from the very file that it runs itself, so the test
// program must be able to be one. A package that uses [Open] says so:
//
//	func TestMain(m *testing.M) { servertest.Main(m) }
//
// Whatever a test starts is ended and looked for at its end: processes and
// goroutines that are left fail the test.
package servertest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/updater"
)

// Main is the main function of a test program that may also be started as a
// host, as the check of a registry, or as one of the agents of this package.
func Main(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "host":
			exit(hostMain(os.Args[2:]))
		case "check-registry":
			if registry.Check(os.Args[2]) != nil {
				exit(1)
			}
			exit(0)
		case chatterMode:
			exit(chatterMain(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// exit is not os.Exit, with which the race detector lingers for a second.
func exit(code int) { syscall.Exit(code) }

// Descriptors that a supervisor hands down to a host.
const (
	readyFD = 3
	aliveFD = 4
)

// hostMain is a host's whole program, as castctl's is. It asks no registry
// whether it is an orphan: no test here leaves one.
func hostMain(args []string) int {
	os.Unsetenv("CAST_INSTANCE")
	home, err := lease.FindHome(args[0])
	if err == nil {
		ready := handedDown(readyFD)
		err = host.Run(context.Background(), host.Config{
			Home: home, ID: args[1], Incarnation: args[2], Version: updater.Version, BuildID: updater.Self,
			Alive: handedDown(aliveFD), Published: func(record []byte) { tellReady(ready, record) },
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func handedDown(fd int) *os.File {
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "handed down")
}

func tellReady(ready io.WriteCloser, record []byte) {
	ready.Write(append(record, '\n'))
	ready.Close()
}

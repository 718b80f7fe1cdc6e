// Package transporttest judges implementations of [transport.Transport], and
// has one that needs no process.
//
// # Judging a transport
//
// [Run] runs every case of the contract. It needs to play the agent, so it
// asks a [Factory] for a transport together with its [Far] end. A transport
// that starts programs gets one from [NewProcess]: the test binary itself,
// executed again, which [Main] turns into an agent that does what it is told.
//
//	func TestMain(m *testing.M) {
//		transporttest.Main()
//		os.Exit(m.Run())
//	}
//
//	func TestSandbox(t *testing.T) {
//		transporttest.Run(t, func(t testing.TB, on transport.Handlers, maxLine int) (transport.Transport, transporttest.Far) {
//			p := transporttest.NewProcess(t)
//			return sandbox.New(p.Path(), p.Env(), maxLine, on), p
//		})
//	}
//
// A transport whose agent cannot be a program brings a Far of its own.
//
// # Testing a program that uses transports
//
// [NewMemory] makes a transport and its agent within the same process. It keeps
// the whole contract, Run says so, and it works in virtual time
// (testing/synctest).
package transporttest

import (
	"testing"

	"github.com/castctl/castctl/transport"
)

// Far is the far end of a transport: an agent that does what the test tells it
// and nothing else. It stays when its input ends.
//
// Its methods may be called before the transport was started; they then wait
// for that. Once the agent is gone they do nothing.
type Far interface {
	// Say writes to the agent's output exactly these bytes. It returns when the
	// transport has read them, so that two calls are two reads.
	Say(b string)
	// Complain writes to its standard error.
	Complain(b string)
	// CloseOutput ends its output; it lives on.
	CloseOutput()
	// Hear returns the next line of its input, without its end. ok is false at
	// the end of the input.
	Hear() (line string, ok bool)
	// Exit ends it with a code.
	Exit(code int)
	// Die ends it by a signal.
	Die(signal int)
	// Gone is closed when it has ended, whoever ended it.
	Gone() <-chan struct{}
}

// Factory makes a transport that was not started yet, and its far end. The
// transport must drop lines of more than maxLine bytes.
type Factory func(t testing.TB, on transport.Handlers, maxLine int) (transport.Transport, Far)

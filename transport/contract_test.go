package transport_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/castctl/castctl/transport"
	"github.com/castctl/castctl/transport/transporttest"
)

func TestMain(m *testing.M) {
	transporttest.Main()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removeFake()
		os.Exit(code)
	}))
}

func TestSubprocessKeepsTheContract(t *testing.T) {
	transporttest.Run(t, func(t testing.TB, on transport.Handlers, maxLine int) (transport.Transport, transporttest.Far) {
		far := transporttest.NewProcess(t)
		return transport.NewSubprocess(transport.Config{
			Path: far.Path(), Argv: []string{"far"}, Env: far.Env(), MaxLine: maxLine,
		}, on), far
	})
}

func TestMemoryKeepsTheContract(t *testing.T) {
	transporttest.Run(t, func(t testing.TB, on transport.Handlers, maxLine int) (transport.Transport, transporttest.Far) {
		return transporttest.NewMemory(maxLine, on)
	})
}

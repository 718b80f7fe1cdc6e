package dialect

import "github.com/castctl/castctl/wire"

// plain is any process at all: its output is a log, its input is left alone,
// and nothing is claimed of what it does.
type plain struct{}

func (plain) Traits() Traits { return Traits{Bytes: true} }

func (plain) Begin(Turn) ([]byte, *wire.Error) {
	err := wire.Errorf(wire.UnsupportedMethod, "an instance of dialect plain takes no messages")
	err.Details.Method = wire.Submit{}.Op()
	return nil, err
}

func (plain) Read([]byte) []Fact { return nil }

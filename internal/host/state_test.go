package host

import (
	"testing"

	"github.com/castctl/castctl/wire"
)

// TestState: the state follows from the facts alone, and the first fact that
// decides wins.
func TestState(t *testing.T) {
	for _, tt := range []struct {
		name string
		facts
		want wire.State
	}{
		{"before the first start", facts{}, wire.Starting},
		{"an agent lives", facts{agent: true}, wire.Running},
		{"its predecessor's tree is being ended", facts{agent: true, clearing: true}, wire.Starting},
		{"an old tree is being ended, and then it waits", facts{clearing: true, backoff: true}, wire.BackingUp},
		{"waits before the next start", facts{backoff: true}, wire.BackingUp},
		{"the ladder runs", facts{agent: true, stopping: true}, wire.Stopping},
		{"the ladder ends what is left", facts{stopping: true, clearing: true}, wire.Stopping},
		{"stopped during a backoff", facts{stopping: true, backoff: true}, wire.Stopping},
		{"over outranks all", facts{over: wire.Failed, agent: true, stopping: true, clearing: true, backoff: true}, wire.Failed},
		{"finished", facts{over: wire.Finished}, wire.Finished},
	} {
		if got := next(tt.facts); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

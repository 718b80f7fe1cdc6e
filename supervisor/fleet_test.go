package supervisor

import (
	"testing"

	"github.com/castctl/castctl/wire"
)

// TestState (4.6, 16.4): what an instance is called follows from the facts
// alone, and the first fact that decides wins.
func TestState(t *testing.T) {
	up, down := wire.WantRunning, wire.WantStopped
	for _, tt := range []struct {
		name string
		facts
		want wire.State
	}{
		{"another machine's host", facts{host: hostForeign, told: wire.Running, wanted: up}, wire.Foreign},
		{"a host that cannot be judged", facts{host: hostUnknown, told: wire.Running, wanted: up}, wire.Unknown},
		{"unknown outranks a wish", facts{host: hostUnknown, wanted: down}, wire.Unknown},
		{"a dead host's tree is being ended", facts{host: hostLost, told: wire.Running, wanted: up}, wire.Lost},
		{"lost, and unwanted meanwhile", facts{host: hostLost, wanted: down}, wire.Lost},
		{"a host on its way", facts{host: hostSpawning, wanted: up}, wire.Starting},
		{"a spawned host that said nothing yet", facts{host: hostAlive, fresh: true, wanted: up}, wire.Starting},
		{"an adopted host that said nothing yet", facts{host: hostAlive, wanted: up}, wire.Unknown},
		{"a host that says running", facts{host: hostAlive, told: wire.Running, wanted: up}, wire.Running},
		{"a stop that waits for idleness", facts{host: hostAlive, told: wire.Running, wanted: down}, wire.Running},
		{"a stop under way", facts{host: hostAlive, told: wire.Stopping, wanted: down}, wire.Stopping},
		{"a stopped agent whose host is about to leave", facts{host: hostAlive, told: wire.Stopped, wanted: down}, wire.Stopped},
		{"a host that leaves unasked", facts{host: hostAlive, told: wire.Stopped, wanted: up}, wire.Stopping},
		{"an agent that failed", facts{host: hostAlive, told: wire.Failed, wanted: up}, wire.Failed},
		{"an agent between two runs", facts{host: hostAlive, told: wire.BackingUp, wanted: up}, wire.BackingUp},
		{"failed before", facts{host: noHost, over: wire.Failed, wanted: up}, wire.Failed},
		{"finished before, and stopped since", facts{host: noHost, over: wire.Finished, wanted: down}, wire.Finished},
		{"stopped", facts{host: noHost, wanted: down}, wire.Stopped},
		{"a spawn that is put off", facts{host: noHost, wanted: up, waiting: true}, wire.BackingUp},
		{"a spawn that is due", facts{host: noHost, wanted: up}, wire.Starting},
		{"what a dead host said counts no more", facts{host: noHost, told: wire.Running, wanted: down}, wire.Stopped},
	} {
		if got := next(tt.facts); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

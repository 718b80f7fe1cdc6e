package host

import (
	"testing"
	"time"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/wire"
)

// TestBackoff (P24, P25): the first restart is at once, then the pauses double
// up to a minute; a healthy run forgives; the limit ends it with a reason.
func TestBackoff(t *testing.T) {
	crash := proc.Exit{Code: 1}
	none := func(n int) *wire.Restart { return &wire.Restart{Limit: &n} }
	for name, tc := range map[string]struct {
		restart *wire.Restart
		lived   time.Duration // of each run
		want    []time.Duration
		over    int // the run after which it is failed; 0 for never
	}{
		"the usual":    {nil, 0, []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, 6},
		"no limit":     {none(0), 0, []time.Duration{0, 1e9, 2e9, 4e9, 8e9, 16e9, 32e9, 60e9, 60e9, 60e9}, 0},
		"healthy runs": {none(0), 11 * time.Second, []time.Duration{0, 0, 0, 0}, 0},
		"no backoff":   {&wire.Restart{Limit: new(int), BackoffMS: new(int64)}, 0, []time.Duration{0, 0, 0, 0, 0, 0}, 0},
		"limit of two": {none(2), 0, []time.Duration{0, time.Second}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := Restarts{jitter: func() float64 { return 1 }}
			spec := wire.Spec{Restart: tc.restart}
			now := time.Unix(0, 0)
			for i, want := range tc.want {
				d := r.Next(spec, crash, now.Add(-tc.lived), now)
				if d.Over != "" || d.After != want {
					t.Fatalf("after run %d: %+v, want a pause of %v", i+1, d, want)
				}
				now = now.Add(d.After + time.Millisecond + tc.lived)
			}
			if tc.over == 0 {
				return
			}
			d := r.Next(spec, crash, now, now)
			if d.Over != wire.Failed || d.Reason == "" {
				t.Errorf("after run %d: %+v, want failed", tc.over, d)
			}
			r.Clear()
			if d := r.Next(spec, crash, now, now); d.Over != "" || d.After != 0 {
				t.Errorf("after a start by hand: %+v", d)
			}
		})
	}
}

// TestJitter: the pause is between half and the whole of what it doubles to.
func TestJitter(t *testing.T) {
	for _, j := range []float64{0, 0.5, 1} {
		r := Restarts{jitter: func() float64 { return j }, failures: 2}
		if got, want := r.pause(time.Second), time.Duration((0.5+j/2)*float64(time.Second)); got != want {
			t.Errorf("jitter %v: %v, want %v", j, got, want)
		}
	}
}

// TestPolicies: which end asks for another run.
func TestPolicies(t *testing.T) {
	for _, tc := range []struct {
		policy wire.Policy
		exit   proc.Exit
		over   wire.State
	}{
		{wire.Never, proc.Exit{}, wire.Finished},
		{wire.Never, proc.Exit{Code: 1}, wire.Finished},
		{wire.Never, proc.Exit{Signal: 9}, wire.Finished},
		{wire.OnFailure, proc.Exit{}, wire.Finished},
		{wire.OnFailure, proc.Exit{Code: 1}, ""},
		{wire.OnFailure, proc.Exit{Signal: 15}, ""},
		{wire.Always, proc.Exit{}, ""},
		{wire.Always, proc.Exit{Code: 1}, ""},
		{"", proc.Exit{}, wire.Finished},
		{"", proc.Exit{Code: 1}, ""},
	} {
		var r Restarts
		d := r.Next(wire.Spec{Restart: &wire.Restart{Policy: tc.policy}}, tc.exit, time.Now(), time.Now())
		if d.Over != tc.over {
			t.Errorf("%s after %s: %q, want %q", tc.policy, tc.exit, d.Over, tc.over)
		}
	}
}

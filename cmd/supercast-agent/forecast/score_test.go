package forecast_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

func TestBinaryScore(t *testing.T) {
	a := &forecast.Agent{Ledger: memory(t)}
	for _, c := range []struct {
		name       string
		p          float64
		outcome    bool
		brier, log float64
	}{
		{"the example of the protocol", 0.3, true, 0.49, 1.2039728043259361},
		{"the other outcome", 0.3, false, 0.09, 0.35667494393873245},
		{"a coin", 0.5, true, 0.25, math.Ln2},
		{"sure and right", 1, true, 0, 0},
		{"sure of not and right", 0, false, 0, 0},
		{"nearly sure and wrong", 5e-324, true, 1, 744.4400719213812},
		{"a small probability and right", 0x1p-60, false, 0x1p-120, 0x1p-60},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := must(t, a, "x", forecast.BinaryScore{Probability: c.p, Outcome: c.outcome})
			got := decode[forecast.Score](t, answer)
			if got.Brier != c.brier || math.Abs(got.Log-c.log) > 1e-15*c.log {
				t.Errorf("%v, want %v and %v", got, c.brier, c.log)
			}
			if math.Signbit(got.Log) || math.Signbit(got.Brier) {
				t.Errorf("%s has a minus", answer.Result)
			}
		})
	}
}

// The edge of the log score: a probability of 0 for what happened.
func TestBinaryScoreInfinite(t *testing.T) {
	a := &forecast.Agent{Ledger: memory(t)}
	for _, c := range []forecast.BinaryScore{{Probability: 0, Outcome: true}, {Probability: 1, Outcome: false}} {
		answer := call(t, a, "x", c)
		if answer.Error == nil || answer.Error.Code != wire.InvalidRequest || answer.Error.Details.Pointer != "/command/probability" || answer.Error.Delivery != wire.NotSent {
			t.Errorf("%+v: %s %+v", c, answer.Result, answer.Error)
		}
	}
}

// Both scores are never negative, Brier is at most 1, and it is the double
// nearest to the exact square.
func TestScoresOfAnyProbability(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.Float64Range(0, 1).Draw(t, "p")
		outcome := rapid.Bool().Draw(t, "outcome")
		exact := new(big.Rat).SetFloat64(p)
		if outcome {
			exact.Sub(exact, big.NewRat(1, 1))
		}
		want, _ := exact.Mul(exact, exact).Float64()
		if got := forecast.Brier(p, outcome); got != want || got < 0 || got > 1 {
			t.Errorf("brier(%v, %v) = %v, want %v", p, outcome, got, want)
		}
		if got := forecast.LogScore(p, outcome); math.Signbit(got) || math.IsNaN(got) {
			t.Errorf("log(%v, %v) = %v", p, outcome, got)
		}
	})
}

// The leaderboard: the last forecast of each, resolved events only, an infinite
// log is null, ties by name, the same every time.
func TestLeaderboard(t *testing.T) {
	a := &forecast.Agent{Ledger: memory(t)}
	n := 0
	do := func(c wire.Command) {
		t.Helper()
		n++
		must(t, a, string(rune('a'+n)), c)
	}
	for _, e := range []string{"e1", "e2", "open", "void"} {
		do(forecast.EventCreate{EventID: e, Question: "?"})
	}
	for _, f := range []forecast.ForecastRecord{
		{EventID: "e1", Forecaster: "ann", Probability: 0.9},
		{EventID: "e1", Forecaster: "ann", Probability: 0.3}, // this one counts
		{EventID: "e2", Forecaster: "ann", Probability: 0.3},
		{EventID: "e1", Forecaster: "bob", Probability: 0},
		{EventID: "e1", Forecaster: "cy", Probability: 0.3},
		{EventID: "e2", Forecaster: "cy", Probability: 0.3},
		{EventID: "open", Forecaster: "dee", Probability: 1},
		{EventID: "void", Forecaster: "dee", Probability: 1},
		{EventID: "open", Forecaster: "ann", Probability: 1},
	} {
		do(f)
	}
	do(forecast.EventResolve{EventID: "e1", Outcome: true})
	do(forecast.EventResolve{EventID: "e2", Outcome: false})
	do(forecast.EventVoid{EventID: "void", Reason: "never asked"})

	first := must(t, a, "x", forecast.Leaderboard{})
	board := decode[forecast.Ranking](t, first)
	if board.Resolved != 2 || board.Forecasters != 3 || len(board.Leaderboard) != 3 {
		t.Fatalf("%s", first.Result)
	}
	for i, want := range []struct {
		name   string
		events int
		brier  float64
	}{{"ann", 2, 0.29}, {"cy", 2, 0.29}, {"bob", 1, 1}} {
		got := board.Leaderboard[i]
		if got.Forecaster != want.name || got.Events != want.events || math.Abs(got.Brier-want.brier) > 1e-15 {
			t.Errorf("place %d: %+v, want %+v", i+1, got, want)
		}
	}
	if log := board.Leaderboard[2].Log; log != nil {
		t.Errorf("bob was sure and wrong, and has the log score %v", *log)
	}
	if log := board.Leaderboard[0].Log; log == nil || math.Abs(*log-(1.2039728043259361+0.35667494393873245)/2) > 1e-15 {
		t.Errorf("ann's log score is %v", log)
	}
	for range 20 {
		if again := must(t, a, "x", forecast.Leaderboard{}); string(again.Result) != string(first.Result) {
			t.Fatalf("another leaderboard:\n%s\n%s", first.Result, again.Result)
		}
	}
	short := decode[forecast.Ranking](t, must(t, a, "x", forecast.Leaderboard{Limit: 1}))
	if len(short.Leaderboard) != 1 || short.Forecasters != 3 {
		t.Errorf("%+v", short)
	}
}

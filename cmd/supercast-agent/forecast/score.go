package forecast

import (
	"math"
	"math/big"

	"github.com/castctl/castctl/wire"
)

func (c BinaryScore) score() (any, error) {
	log := logScore(c.Probability, c.Outcome)
	if math.IsInf(log, 0) {
		return nil, wire.Errorf(wire.InvalidRequest,
			"the log score is infinite when what happened was given the probability 0, and JSON has no infinity").At("/command/probability")
	}
	return Score{Brier: brier(c.Probability, c.Outcome), Log: log}, nil
}

// brier is (p-o)², rounded once: in plain floating point the difference is
// rounded too, and 0.3 against true scores 0.48999999999999994 instead of 0.49.
func brier(p float64, outcome bool) float64 {
	o := 0.0
	if outcome {
		o = 1
	}
	d := new(big.Float).SetPrec(256).Sub(big.NewFloat(p), big.NewFloat(o))
	score, _ := d.Mul(d, d).Float64()
	return score
}

// logScore is -ln of the probability that was given to what happened.
func logScore(p float64, outcome bool) float64 {
	if outcome && p > 0 && p < 0x1p-1022 {
		// math.Log of a subnormal number is off by up to 5 % on amd64.
		return 52*math.Ln2 - math.Log(p*0x1p52)
	}
	if outcome {
		return 0 - math.Log(p) // not -0 for a sure and right forecast
	}
	return 0 - math.Log1p(-p) // 1-p would lose the digits of a small p
}

// tally sums the scores of one forecaster.
type tally struct {
	events     int
	brier, log float64
}

func (t *tally) add(p float64, outcome bool) {
	t.events++
	t.brier += brier(p, outcome)
	t.log += logScore(p, outcome)
}

func (t *tally) mean(forecaster string) Ranked {
	n := float64(t.events)
	r := Ranked{Forecaster: forecaster, Events: t.events, Brier: t.brier / n}
	if log := t.log / n; !math.IsInf(log, 0) {
		r.Log = &log
	}
	return r
}

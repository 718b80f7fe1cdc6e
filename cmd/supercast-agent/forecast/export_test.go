package forecast

import "time"

// SetWait changes how long the ledger waits for its lock.
func (l *Ledger) SetWait(d time.Duration) { l.wait = d }

// Brier and LogScore are the scores alone.
var (
	Brier    = brier
	LogScore = logScore
)

package host

import "github.com/castctl/castctl/wire"

// facts is all that the state depends on.
type facts struct {
	over     wire.State // stopped, finished or failed: no further run follows
	stopping bool       // the ladder runs, and no run follows it
	agent    bool       // an agent's process lives
	clearing bool       // the old run's tree is being ended before the next start
	backoff  bool       // waits before the next start
}

// next is the state as a function of the facts. The order of the cases is the
// precedence.
func next(f facts) wire.State {
	switch {
	case f.over != "":
		return f.over
	case f.stopping:
		return wire.Stopping
	case f.agent && !f.clearing:
		return wire.Running
	case f.backoff:
		return wire.BackingUp
	default:
		return wire.Starting
	}
}

package host

import (
	"path/filepath"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
)

// CastProcesses returns a test for the home's own processes: the supervisor and
// the hosts, as their records name them. The records are read once, and only if
// some process's program looks like Cast's at all.
func CastProcesses(home lease.Home) func(pid int) bool {
	var known map[int]proc.Identity
	return func(pid int) bool {
		if !proc.SameProgram(pid) {
			return false
		}
		if known == nil {
			known = recorded(home)
		}
		id, ok := known[pid]
		return ok && id.Verdict() == proc.Alive
	}
}

// recorded lists the processes that the home's records name.
func recorded(home lease.Home) map[int]proc.Identity {
	out := map[int]proc.Identity{}
	if s, err := home.ReadServer(); err == nil {
		out[s.PID] = s.Identity
	}
	records, _ := filepath.Glob(filepath.Join(home.Instances(), "*", "host.json"))
	for _, path := range records {
		if r, err := lease.Folder(filepath.Dir(path)).ReadHost(); err == nil {
			out[r.PID] = r.Identity
		}
	}
	return out
}

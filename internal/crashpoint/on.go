//go:build crashpoints

package crashpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

var state struct {
	sync.Mutex // guards passed
	passed     int
}

// At marks a crash point, and dies there if it is the one asked for.
func At(name string) {
	want, nth, _ := strings.Cut(os.Getenv("CAST_CRASHPOINT"), "@")
	if want != name {
		return
	}
	state.Lock()
	state.passed++
	passed := state.passed
	state.Unlock()
	if n, err := strconv.Atoi(nth); err == nil && passed != n {
		return
	}
	if once := os.Getenv("CAST_CRASHPOINT_ONCE"); once != "" {
		f, err := os.OpenFile(once, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return
		}
		f.Close()
	}
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // never past the point
}

// Env returns the variables that a child needs to know the point too, and where
// the race detector is to report.
func Env() []string {
	var env []string
	for _, name := range []string{"CAST_CRASHPOINT", "CAST_CRASHPOINT_ONCE", "GORACE"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

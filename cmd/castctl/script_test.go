package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/script/*.txtar: the command line as it is specified,
// each in a home of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("..", "..", "testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			base, err := os.MkdirTemp("", "cast")
			if err != nil {
				return err
			}
			e.Setenv("PATH", programs+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("CAST_HOME", filepath.Join(base, "home"))
			e.Setenv("HOME", base)
			e.Setenv("TMPDIR", base)
			e.Setenv("CASTTEST_SCRIPT", base)
			e.Defer(func() {
				cmd := exec.Command(filepath.Join(programs, "castctl"), "down", "--all")
				cmd.Env = e.Vars
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("down --all: %v: %s", err, out)
				}
				os.RemoveAll(base)
			})
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// code N ARGS…: castctl ends with that exit code; its output is kept for
			// stdout and stderr.
			"code": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: code N ARGS…")
				}
				err := ts.Exec("castctl", args[1:]...)
				got := "0"
				if err != nil {
					got = strings.TrimPrefix(err.Error(), "exit status ")
				}
				if got != args[0] {
					ts.Fatalf("castctl %s: exit code %s, want %s", strings.Join(args[1:], " "), got, args[0])
				}
			},
		},
	})
}

package host

import (
	"os"
	"testing"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func exitOf(run int) ExitFile {
	return ExitFile{Exit: wire.Exit{Run: run, At: wire.Now(), Code: wire.Ptr(run)}, StderrTail: []string{}}
}

func runsOf(e ExitFile) []int {
	var runs []int
	for _, u := range e.Untold {
		runs = append(runs, u.Run)
	}
	return append(runs, e.Run)
}

// An exit is known from the moment it was noted, also beside a file that is
// older, and a note that a kill tore does not hide the next.
func TestExitNotes(t *testing.T) {
	f := lease.Folder(t.TempDir())
	check := func(what string, want ...int) {
		t.Helper()
		e, ok := ReadExit(f)
		if ok != (len(want) > 0) {
			t.Fatalf("%s: known is %v", what, ok)
		}
		got := runsOf(e)
		if !ok {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("%s: the runs are %v, want %v", what, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: the runs are %v, want %v", what, got, want)
			}
		}
		if *e.Code != e.Run {
			t.Errorf("%s: run %d has the code %d", what, e.Run, *e.Code)
		}
	}
	note := func(e ExitFile) {
		t.Helper()
		if err := appendNote(f, e); err != nil {
			t.Fatal(err)
		}
	}
	check("nothing")
	note(exitOf(1))
	check("a note alone", 1)
	if err := lease.WriteJSON(f.ExitFile(), exitOf(1)); err != nil {
		t.Fatal(err)
	}
	check("a note of what the file says", 1)
	note(exitOf(2))
	note(exitOf(3))
	check("newer notes", 1, 2, 3)

	torn, err := os.OpenFile(f.ExitNotes(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	torn.WriteString(`{"run":4,"code"`)
	torn.Close()
	check("a torn note", 1, 2, 3)
	note(exitOf(5))
	check("a note after a torn one", 1, 2, 3, 5)

	if err := lease.WriteJSON(f.ExitFile(), exitOf(5)); err != nil {
		t.Fatal(err)
	}
	check("a newer file", 5)
	if err := clearNotes(f); err != nil {
		t.Fatal(err)
	}
	check("no notes", 5)
	os.Remove(f.ExitFile())
	check("nothing again")
}

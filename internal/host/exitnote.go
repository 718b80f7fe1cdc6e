package host

import (
	"bytes"
	"os"
	"syscall"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/crashpoint"
	"github.com/castctl/castctl/lease"
)

// An exit is noted before anything else is started, and made durable after that:
// a restart does not wait for the disk. A note is a line in exits.log, appended
// at once. Nothing but the kernel must survive for it, so whoever kills the host
// cannot undo it. The notes are cleared when exit.json holds what they say.

// appendNote notes an exit.
func appendNote(f lease.Folder, file ExitFile) error {
	file.Untold = nil // they have notes of their own
	b, err := json.Marshal(file)
	if err != nil {
		return err
	}
	crashpoint.At("host.exit.note")
	out, err := os.OpenFile(f.ExitNotes(), os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	// A line that a killed writer left torn must not swallow this one.
	_, err = out.Write(append(append([]byte{'\n'}, b...), '\n'))
	return err
}

// clearNotes forgets all notes.
func clearNotes(f lease.Folder) error { return os.Truncate(f.ExitNotes(), 0) }

// readNotes reads the notes, except those that a kill tore.
func readNotes(f lease.Folder) []ExitFile {
	b, err := os.ReadFile(f.ExitNotes())
	if err != nil {
		return nil
	}
	var notes []ExitFile
	for line := range bytes.Lines(b) {
		var note ExitFile
		if json.Unmarshal(line, &note) == nil {
			notes = append(notes, note)
		}
	}
	return notes
}

// withNotes adds to what exit.json says the later exits that were noted: the
// last one is the result, and all before it are among its untold.
func withNotes(last ExitFile, notes []ExitFile) ExitFile {
	untold := last.Untold
	for _, note := range notes {
		if note.Run <= last.Run {
			continue
		}
		if last.Run > 0 {
			last.Untold = nil
			untold = append(untold, last)
		}
		last = note
	}
	last.Untold = untold
	return last
}

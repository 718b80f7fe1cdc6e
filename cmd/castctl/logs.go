package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/internal/journal"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print what an instance's agent said", ArgsUsage: "NAME",
		Description: "Reads the journal itself: it needs no supervisor, and works when the agent is long gone.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on as more is said"},
			&cli.IntFlag{Name: "n", Usage: "only the last `N` lines"},
			&cli.DurationFlag{Name: "since", Usage: "only what was said in the last `DURATION`"},
			&cli.BoolFlag{Name: "stderr", Usage: "its standard error instead of its output"},
			jsonFlag,
		},
		Action: logs,
	}
}

func logs(c *cli.Context) error {
	folder, err := instanceFolder(c)
	if err != nil {
		return err
	}
	l := &logPrinter{w: c.App.Writer, json: c.Bool("json"), types: outputTypes}
	if c.Bool("stderr") {
		l.types = stderrTypes
	}
	if d := c.Duration("since"); d > 0 {
		l.since = time.Now().Add(-d)
	}
	r := journal.NewReader(folder.Journal())
	defer r.Close()
	if n := c.Int("n"); n > 0 {
		if err := seekLines(r, folder, l, n); err != nil {
			return err
		}
	}
	return followJournal(c.Context, folder, r, c.Bool("follow"), l.print)
}

// instanceFolder finds the folder of the one instance that a command names.
func instanceFolder(c *cli.Context) (lease.Folder, error) {
	if c.NArg() != 1 {
		return "", usage{c.Command.Name + " takes one name"}
	}
	name := c.Args().First()
	if err := checkNames([]string{name}); err != nil {
		return "", err
	}
	home, ok, err := findHome(c)
	if err != nil {
		return "", err
	}
	if ok {
		if id, found := folderByName(home, name); found {
			return home.Instance(id), nil
		}
	}
	return "", wire.Errorf(wire.NotFound, "there is no instance %q", name)
}

var (
	outputTypes = map[wire.EventType]bool{
		wire.EventOutput: true, wire.EventTurnStarted: true, wire.EventTurnEnded: true, wire.EventNotice: true, wire.EventMessage: true,
	}
	stderrTypes = map[wire.EventType]bool{wire.EventStderr: true, wire.EventNotice: true}
)

// logPrinter prints events as lines for a person, or as they are.
type logPrinter struct {
	w     io.Writer
	json  bool
	since time.Time
	types map[wire.EventType]bool
	skip  int // lines of the first raw entry that are older than asked for
}

func (l *logPrinter) wants(e journal.Entry) bool {
	return l.types[e.Type] && !e.Time.Before(l.since)
}

func (l *logPrinter) print(e journal.Entry) error {
	if !l.wants(e) {
		return nil
	}
	if l.json {
		_, err := l.w.Write(append(e.AppendJSON(nil), '\n'))
		return err
	}
	if b, raw := e.Raw(); raw {
		b = dropLines(b, l.skip)
		l.skip = 0
		_, err := l.w.Write(b)
		return err
	}
	line, err := logLine(e)
	if err != nil || line == "" {
		return err
	}
	_, err = fmt.Fprintln(l.w, line)
	return err
}

// logLine is an event that is not raw output, for a person.
func logLine(e journal.Entry) (string, error) {
	ev, err := e.Event()
	if err != nil {
		return "", err
	}
	switch ev.Type {
	case wire.EventTurnEnded:
		var d wire.TurnEndedData
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return "", err
		}
		if d.Response != nil {
			return string(*d.Response), nil
		}
		if d.Error != nil {
			return fmt.Sprintf("[turn %s %s: %s]", *ev.Turn, d.Outcome, d.Error.Message), nil
		}
	case wire.EventNotice:
		var d wire.NoticeData
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return "", err
		}
		return "[" + d.Message + "]", nil
	case wire.EventOutput:
		var d wire.OutputData
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return "", err
		}
		return text(d.Text), nil
	}
	return "", nil
}

func dropLines(b []byte, n int) []byte {
	for i := 0; n > 0 && i < len(b); i++ {
		if b[i] == '\n' {
			if n--; n == 0 {
				return b[i+1:]
			}
		}
	}
	return b
}

// seekLines positions the reader so that about the last n lines follow, exactly
// n of raw output.
func seekLines(r *journal.Reader, folder lease.Folder, l *logPrinter, n int) error {
	type mark struct {
		seq   uint64
		lines int
	}
	var marks []mark
	total := 0
	scan := journal.NewReader(folder.Journal())
	defer scan.Close()
	for {
		e, err := scan.Next()
		if err != nil {
			break
		}
		if !l.wants(e) {
			continue
		}
		lines := 1
		if b, raw := e.Raw(); raw {
			lines = countLines(b)
		}
		marks = append(marks, mark{e.Seq, lines})
		total += lines
		for total-marks[0].lines >= n {
			total -= marks[0].lines
			marks = marks[1:]
		}
	}
	if len(marks) == 0 {
		return nil
	}
	l.skip = max(0, total-n)
	return r.SeekAfter(marks[0].seq - 1)
}

func countLines(b []byte) int {
	n := 0
	for _, c := range b {
		if c == '\n' {
			n++
		}
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return n
}

// followJournal gives each event from the reader's position on to do, and with
// follow goes on as the journal grows.
func followJournal(ctx context.Context, folder lease.Folder, r *journal.Reader, follow bool, do func(journal.Entry) error) error {
	var grown <-chan struct{}
	if follow {
		var err error
		if grown, err = lease.WatchDir(ctx, folder.Journal()); err != nil {
			return err
		}
	}
	for {
		e, err := r.Next()
		switch {
		case err == nil:
			if err := do(e); err != nil {
				return err
			}
			continue
		case errors.Is(err, journal.ErrExpired):
			bounds, err := journal.Find(folder.Journal())
			if err != nil {
				return err
			}
			if err := r.SeekAfter(bounds.First - 1); err != nil {
				return err
			}
			continue
		case !errors.Is(err, io.EOF):
			return err
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-grown:
			if !ok {
				return nil
			}
		}
	}
}

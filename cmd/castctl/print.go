package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/wire"
)

// jsonFlag is on every command that prints something worth reading by a
// program.
var jsonFlag = &cli.BoolFlag{Name: "json", Usage: "print JSON"}

// printJSON prints a value as one line.
func printJSON(c *cli.Context, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.App.Writer.Write(append(b, '\n'))
	return err
}

// printRaw prints JSON that is encoded already.
func printRaw(c *cli.Context, v jsontext.Value) error {
	_, err := c.App.Writer.Write(append(v, '\n'))
	return err
}

// table prints aligned columns, in one write.
func table(w io.Writer, header []string, rows [][]string) error {
	out := bufio.NewWriterSize(w, 64<<10)
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(header, "\t"))
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return out.Flush()
}

const nothing = "-"

func number(n *int) string {
	if n == nil {
		return nothing
	}
	return strconv.Itoa(*n)
}

func text(s *string) string {
	if s == nil {
		return nothing
	}
	return *s
}

func size(n *int64) string {
	if n == nil {
		return nothing
	}
	return humanize.IBytes(uint64(*n))
}

// age is how long ago something was, in one unit that a person reads at a
// glance.
func age(t time.Time) string {
	switch d := time.Since(t); {
	case d < time.Second:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// ago is age as a phrase.
func ago(t time.Time) string {
	if a := age(t); a != "now" {
		return a + " ago"
	}
	return "just now"
}

func ageOf(t *time.Time) string {
	if t == nil {
		return nothing
	}
	return age(*t)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// named puts an instance's name in front of what went wrong with it.
func named(name string, err error) error {
	if e, ok := err.(*wire.Error); ok && !strings.Contains(e.Message, name) {
		copied := *e
		copied.Message = name + ": " + e.Message
		return &copied
	}
	return err
}

// terminal reports whether a file is a terminal: only there is it coloured, and
// only there is a person asked.
func terminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// plain makes an agent's words safe for a terminal: control characters other
// than tab are shown, not obeyed.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, s)
}

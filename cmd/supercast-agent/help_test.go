package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
)

// The help names every operation with its members, and every flag.
func TestHelp(t *testing.T) {
	for _, c := range []any{
		forecast.BinaryScore{},
		forecast.EventGet{},
		forecast.EventList{},
		forecast.ForecastList{},
		forecast.Leaderboard{},
		forecast.EventCreate{},
		forecast.ForecastRecord{},
		forecast.EventResolve{},
		forecast.EventVoid{},
	} {
		op := c.(interface{ Op() string }).Op()
		want := "  " + op
		for f := range reflect.TypeOf(c).Fields() {
			name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			if opts != "" {
				name += "?"
			}
			want += " " + name
		}
		var found bool
		for line := range strings.Lines(help) {
			found = found || strings.Join(strings.Fields(line), " ") == strings.TrimSpace(want)
		}
		if !found {
			t.Errorf("the help does not have %q", want)
		}
	}
	if n := len(forecast.Ops.Names()); n != 9 {
		t.Errorf("%d operations: this test knows 9", n)
	}
	for _, flag := range []string{"--db PATH", "--memory", "--help", "--version", "--schema"} {
		if !strings.Contains(help, flag) {
			t.Errorf("the help does not have %s", flag)
		}
	}
	for line := range strings.Lines(help) {
		if len(line) > 100 {
			t.Errorf("too wide: %s", line)
		}
	}
}

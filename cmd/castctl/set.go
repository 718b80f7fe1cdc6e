package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func setCommand() *cli.Command {
	return &cli.Command{
		Name: "set", Usage: "change an instance's spec", ArgsUsage: "NAME KEY=VALUE…",
		Description: "Keys: " + strings.Join(settingNames(), ", ") + ".\nAn empty value takes the default back.",
		Flags:       []cli.Flag{jsonFlag},
		Action: func(c *cli.Context) error {
			if c.NArg() < 2 {
				return usage{"set needs a name and KEY=VALUE"}
			}
			name, pairs := c.Args().First(), c.Args().Tail()
			if err := checkNames([]string{name}); err != nil {
				return err
			}
			return withSupervisor(c, func(_ lease.Home, cl *client.Client) error { return set(c, cl, name, pairs) })
		},
	}
}

func set(c *cli.Context, cl *client.Client, name string, pairs []string) error {
	var got wire.GetResult
	if err := cl.Call(c.Context, wire.NewID(), wire.Get{Instance: name}, &got); err != nil {
		return err
	}
	spec := got.Spec
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		change, known := settings[key]
		if !ok || !known {
			return usage{fmt.Sprintf("%s: the keys are %s", p, strings.Join(settingNames(), ", "))}
		}
		if err := change(&spec, value); err != nil {
			return usage{fmt.Sprintf("%s: %v", p, err)}
		}
	}
	if err := checkEnums(&spec); err != nil {
		return err
	}
	var r wire.ConfigureResult
	if err := cl.Call(c.Context, wire.NewID(), wire.Configure{Instance: name, Spec: spec, IfRevision: got.Revision}, &r); err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, r)
	}
	fmt.Fprintf(c.App.Writer, "%s is at revision %d\n", name, r.Revision)
	if r.NeedsRestart {
		fmt.Fprintf(c.App.Writer, "it takes effect with the next start: castctl restart %s\n", name)
	}
	return nil
}

// settings is how each key changes a spec. An empty value takes the default
// back.
var settings = map[string]func(*wire.Spec, string) error{
	"cwd":          func(s *wire.Spec, v string) error { s.Cwd = v; return nil },
	"dialect":      func(s *wire.Spec, v string) error { s.Dialect = wire.Dialect(v); return nil },
	"children":     func(s *wire.Spec, v string) error { s.Children = wire.Children(v); return nil },
	"env_file":     func(s *wire.Spec, v string) error { s.EnvFile = v; return nil },
	"stop_timeout": func(s *wire.Spec, v string) error { return setMS(&s.StopTimeoutMS, v) },
	"journal_max":  func(s *wire.Spec, v string) error { return setBytes(&s.JournalMax, v) },
	"resume":       setResume,
	"restart":      func(s *wire.Spec, v string) error { restartOf(s).Policy = wire.Policy(v); return nil },
	"restart.backoff": func(s *wire.Spec, v string) error {
		return setOptional(&restartOf(s).BackoffMS, v, func(v string) (int64, error) { return milliseconds(v) })
	},
	"restart.limit": func(s *wire.Spec, v string) error { return setOptional(&restartOf(s).Limit, v, strconv.Atoi) },
	"restart.window": func(s *wire.Spec, v string) error {
		return setOptional(&restartOf(s).WindowMS, v, func(v string) (int64, error) { return milliseconds(v) })
	},
}

func settingNames() []string { return slices.Sorted(maps.Keys(settings)) }

func restartOf(s *wire.Spec) *wire.Restart {
	if s.Restart == nil {
		s.Restart = new(wire.Restart)
	} else {
		copied := *s.Restart
		s.Restart = &copied
	}
	return s.Restart
}

func milliseconds(v string) (int64, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("not a duration such as 1.5s")
	}
	return d.Milliseconds(), nil
}

func setMS(to *int64, v string) error {
	if v == "" {
		*to = 0
		return nil
	}
	ms, err := milliseconds(v)
	*to = ms
	return err
}

func setBytes(to *int64, v string) error {
	if v == "" {
		*to = 0
		return nil
	}
	n, err := humanize.ParseBytes(v)
	if err != nil || n > math.MaxInt64 {
		return fmt.Errorf("not a size such as 64MiB")
	}
	*to = int64(n)
	return nil
}

func setOptional[T any](to **T, v string, parse func(string) (T, error)) error {
	if v == "" {
		*to = nil
		return nil
	}
	n, err := parse(v)
	if err != nil {
		return err
	}
	*to = &n
	return nil
}

func setResume(s *wire.Spec, v string) error { return setOptional(&s.Resume, v, strconv.ParseBool) }

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func applyCommand() *cli.Command {
	return &cli.Command{
		Name: "apply", Usage: "make the fleet what a file says, in one transaction",
		Description: "The file has one [[instance]] table for each instance: name, argv, cwd, env = {…} and the other fields of a spec.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "the `FILE`", Value: "cast.toml"},
			&cli.BoolFlag{Name: "prune", Usage: "stop the instances that the file does not name"},
			&cli.BoolFlag{Name: "dry-run", Usage: "only show what would be done"},
			&cli.BoolFlag{Name: "memory", Usage: "use a private temporary home, removed at the end"},
			jsonFlag,
		},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return usage{"apply takes no arguments: give the file with -f"}
			}
			list, err := readFleet(c.String("file"))
			if err != nil {
				return err
			}
			if c.Bool("memory") {
				return inMemory(c, func(home lease.Home) error {
					if err := applyTo(c, home, list); err != nil || c.Bool("dry-run") {
						return err
					}
					<-c.Context.Done() // the fleet lives as long as this command
					return nil
				})
			}
			home, err := openHome(c)
			if err != nil {
				return err
			}
			return applyTo(c, home, list)
		},
	}
}

func applyTo(c *cli.Context, home lease.Home, list []wire.Declared) error {
	cl, err := connectTo(c.Context, home)
	if err != nil {
		return err
	}
	defer cl.Close()
	return apply(c, cl, list)
}

func apply(c *cli.Context, cl *client.Client, list []wire.Declared) error {
	var r wire.ApplyResult
	cmd := wire.Apply{Instances: list, Prune: c.Bool("prune"), DryRun: c.Bool("dry-run")}
	if err := cl.Call(c.Context, wire.NewID(), cmd, &r); err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, r)
	}
	would := ""
	if c.Bool("dry-run") {
		would = "would be "
	}
	for _, part := range []struct {
		what  string
		names []string
	}{{"started", r.Started}, {"changed", r.Changed}, {"stopped", r.Stopped}} {
		for _, n := range part.names {
			fmt.Fprintf(c.App.Writer, "%s %s%s\n", n, would, part.what)
		}
	}
	fmt.Fprintf(c.App.Writer, "%d unchanged\n", len(r.Unchanged))
	return failures(c, cl, append(r.Started, r.Changed...), r.Stopped)
}

// failures names the instances that did not come up, or did not end.
func failures(c *cli.Context, cl *client.Client, up, down []string) error {
	if c.Bool("dry-run") || len(up)+len(down) == 0 {
		return nil
	}
	st, err := fleetOf(c.Context, cl)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range up {
		in, ok := findInstance(st, name)
		switch {
		case ok && in.State == wire.Failed:
			errs = append(errs, fmt.Errorf("%s failed: %s", name, text(in.Reason)))
		case ok && in.State == wire.Starting:
			errs = append(errs, fmt.Errorf("%s is still starting", name))
		}
	}
	for _, name := range down {
		if in, ok := findInstance(st, name); ok && in.HostPID != nil {
			errs = append(errs, fmt.Errorf("%s is still %s", name, in.State))
		}
	}
	return joinErrors(errs)
}

// fleetFile is cast.toml.
type fleetFile struct {
	Instance []fleetInstance `toml:"instance"`
}

// fleetInstance is one [[instance]] table.
type fleetInstance struct {
	Name        string            `toml:"name"`
	Argv        []string          `toml:"argv"`
	Cwd         string            `toml:"cwd"`
	Env         map[string]string `toml:"env"`
	EnvClean    bool              `toml:"env_clean"`
	EnvFile     string            `toml:"env_file"`
	Dialect     string            `toml:"dialect"`
	Restart     *fleetRestart     `toml:"restart"`
	StopTimeout fleetDuration     `toml:"stop_timeout"`
	Children    string            `toml:"children"`
	JournalMax  fleetSize         `toml:"journal_max"`
	Resume      *bool             `toml:"resume"`
}

type fleetRestart struct {
	Policy  string         `toml:"policy"`
	Backoff *fleetDuration `toml:"backoff"`
	Limit   *int           `toml:"limit"`
	Window  *fleetDuration `toml:"window"`
}

// fleetDuration is a duration in milliseconds, written as "1.5s".
type fleetDuration int64

// UnmarshalText reads the duration.
func (d *fleetDuration) UnmarshalText(b []byte) error {
	ms, err := milliseconds(string(b))
	*d = fleetDuration(ms)
	return err
}

// fleetSize is a number of bytes, written as "64MiB".
type fleetSize int64

// UnmarshalText reads the size.
func (s *fleetSize) UnmarshalText(b []byte) error {
	return setBytes((*int64)(s), string(b))
}

// readFleet reads the file strictly: an unknown key is an error with its place.
func readFleet(path string) ([]wire.Declared, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f fleetFile
	meta, err := toml.Decode(string(b), &f)
	if err != nil {
		return nil, tomlError(path, err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, usage{fmt.Sprintf("%s:%s: the key %s is not known", path, placeOf(string(b), unknown[0]), unknown[0])}
	}
	list := []wire.Declared{}
	for i, in := range f.Instance {
		d, err := in.declare(filepath.Dir(path))
		if err != nil {
			return nil, usage{fmt.Sprintf("%s: instance %d (%s): %v", path, i+1, in.Name, err)}
		}
		list = append(list, d)
	}
	return list, nil
}

func tomlError(path string, err error) error {
	if pe, ok := err.(toml.ParseError); ok {
		return usage{fmt.Sprintf("%s:%d:%d: %s", path, pe.Position.Line, pe.Position.Col, pe.Message)}
	}
	return usage{fmt.Sprintf("%s: %v", path, err)}
}

// placeOf finds the line and column of an undecoded key. The parser does not
// tell them, so the first line that sets such a key is taken.
func placeOf(content string, key toml.Key) string {
	last := key[len(key)-1]
	for i, line := range strings.Split(content, "\n") {
		trimmed := strings.TrimLeft(line, " \t[")
		if rest, ok := strings.CutPrefix(trimmed, last); ok && (strings.HasPrefix(strings.TrimSpace(rest), "=") || strings.HasPrefix(rest, "]")) {
			return fmt.Sprintf("%d:%d", i+1, len(line)-len(trimmed)+1)
		}
	}
	return "?"
}

// declare makes the wire form. Relative paths are relative to the file.
func (in fleetInstance) declare(dir string) (wire.Declared, error) {
	d := wire.Declared{Name: in.Name, Spec: wire.Spec{
		Argv: in.Argv, Cwd: absolute(dir, in.Cwd), Dialect: wire.Dialect(in.Dialect), StopTimeoutMS: int64(in.StopTimeout),
		Children: wire.Children(in.Children), JournalMax: int64(in.JournalMax), Resume: in.Resume,
	}}
	if d.Spec.Dialect == wire.Auto {
		d.Spec.Dialect = ""
	}
	if err := checkNames([]string{in.Name}); err != nil {
		return d, err
	}
	if len(in.Argv) == 0 {
		return d, fmt.Errorf("argv is missing")
	}
	if in.EnvFile != "" {
		d.Spec.EnvFile = absolute(dir, in.EnvFile)
	}
	if r := in.Restart; r != nil {
		d.Spec.Restart = &wire.Restart{Policy: wire.Policy(r.Policy), BackoffMS: (*int64)(r.Backoff), Limit: r.Limit, WindowMS: (*int64)(r.Window)}
	}
	env, err := in.environment(d.Spec.EnvFile)
	d.Env = env
	if err != nil {
		return d, err
	}
	return d, checkEnums(&d.Spec)
}

func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func (in fleetInstance) environment(file string) (map[string]string, error) {
	env := map[string]string{}
	if !in.EnvClean {
		env = host.CallerEnv(os.Environ())
	}
	if file != "" {
		read, err := host.ReadEnvFile(file)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(env, func(name, _ string) bool { _, ok := read[name]; return ok })
	}
	maps.Copy(env, in.Env)
	return env, nil
}

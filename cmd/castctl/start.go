package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

func startCommand() *cli.Command {
	return &cli.Command{
		Name:      "start",
		Usage:     "start an agent as a new instance, or stopped instances again",
		ArgsUsage: "NAME -- COMMAND ARGS…  |  NAME…",
		Description: "Returns when the agent runs, or says why it does not. The agent gets this command's environment.\n" +
			"castctl start demo, without a command, starts the built-in demo agent.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dialect", Usage: "how to read the agent: auto, plain or ndjson"},
			&cli.StringFlag{Name: "restart", Usage: "when to start it again: never, on-failure or always"},
			&cli.StringFlag{Name: "cwd", Usage: "run it in `DIR`", DefaultText: "here"},
			&cli.StringSliceFlag{Name: "env", KeepSpace: true, Usage: "set `NAME=VALUE` in its environment"},
			&cli.StringFlag{Name: "env-file", Usage: "read more variables from `FILE` at each start"},
			&cli.BoolFlag{Name: "env-clean", Usage: "give it only the variables of --env and --env-file"},
			&cli.DurationFlag{Name: "stop-timeout", Usage: "bound of the whole stop", DefaultText: "10s"},
			&cli.StringFlag{Name: "children", Usage: "hold or ignore: whether processes that it leaves running keep it busy"},
			&cli.BoolFlag{Name: "foreground", Usage: "run its host in this terminal"},
			&cli.BoolFlag{Name: "wait-ready", Usage: "return when its handshake is done"},
			&cli.DurationFlag{Name: "timeout", Usage: "how long to wait for it to run", Value: 30 * time.Second},
			jsonFlag,
		},
		Action: start,
	}
}

func start(c *cli.Context) error {
	names, argv := splitCommand(c.Args().Slice())
	if len(names) == 0 {
		return usage{"start needs a name: castctl start NAME -- COMMAND ARGS…"}
	}
	if len(argv) > 0 && len(names) > 1 {
		return usage{fmt.Sprintf("one command makes one instance, not %d", len(names))}
	}
	if err := checkNames(plainOnly(names)); err != nil {
		return err
	}
	env, err := callerEnv(c)
	if err != nil {
		return err
	}
	var spec *wire.Spec
	if len(argv) > 0 {
		if spec, err = specFromFlags(c, argv); err != nil {
			return err
		}
	}
	return withSupervisor(c, func(home lease.Home, cl *client.Client) error {
		if spec == nil {
			if names, err = targets(c, cl, names); err != nil {
				return err
			}
			if spec, err = demoSpec(c, cl, home, names); err != nil {
				return err
			}
			if flag := specFlag(c); spec == nil && flag != "" {
				return usage{fmt.Sprintf("--%s is for a new instance: give it a command, or change this one with castctl set", flag)}
			}
		}
		if c.Bool("foreground") {
			return startForeground(c, home, cl, names, spec, env)
		}
		return each(c.Context, home, cl, names, func(cl *client.Client, name string) error {
			return startOne(c, cl, wire.Start{Name: name, Spec: spec, Env: env, Wait: waitOf(c)})
		})
	})
}

// specFlag is the first flag given that says how a new instance is to be.
func specFlag(c *cli.Context) string {
	for _, name := range []string{"dialect", "restart", "cwd", "env-file", "stop-timeout", "children"} {
		if c.IsSet(name) {
			return name
		}
	}
	return ""
}

// plainOnly leaves out the globs.
func plainOnly(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.ContainsAny(n, "*?[") })
}

// splitCommand parts the names from the command behind --.
func splitCommand(args []string) (names, argv []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

func waitOf(c *cli.Context) wire.Wait {
	return wire.Wait{WaitMS: max(1, c.Duration("timeout").Milliseconds())}
}

func startOne(c *cli.Context, cl *client.Client, cmd wire.Start) error {
	var r wire.InstanceResult
	if err := cl.Call(c.Context, wire.NewID(), cmd, &r); err != nil {
		return named(cmd.Name, err)
	}
	if c.Bool("json") {
		return printJSON(c, r)
	}
	return startOutcome(c, r.Instance)
}

// startOutcome says how a start went.
func startOutcome(c *cli.Context, in wire.Instance) error {
	switch in.State {
	case wire.Running, wire.Unloaded:
		fmt.Fprintf(c.App.Writer, "%s runs (pid %s)\n", in.Name, number(in.PID))
		return nil
	case wire.Finished:
		fmt.Fprintf(c.App.Writer, "%s ran and finished: %s\n", in.Name, text(in.Reason))
		return nil
	}
	return trouble{fmt.Errorf("%s: %s: %s", in.Name, in.State, text(in.Reason)), "castctl logs --stderr " + in.Name + "   shows what it said"}
}

// callerEnv is the environment that a start carries.
func callerEnv(c *cli.Context) (map[string]string, error) {
	env := map[string]string{}
	if !c.Bool("env-clean") {
		env = host.CallerEnv(os.Environ())
	}
	if file := c.String("env-file"); file != "" {
		read, err := host.ReadEnvFile(file)
		if err != nil {
			return nil, fmt.Errorf("--env-file: %w", err)
		}
		// The file is read anew at each start, so its variables are left to it.
		maps.DeleteFunc(env, func(name, _ string) bool { _, ok := read[name]; return ok })
	}
	for _, v := range c.StringSlice("env") {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, usage{fmt.Sprintf("--env %s: not NAME=VALUE", v)}
		}
		env[name] = value
	}
	return env, nil
}

// specFromFlags makes the spec of a new instance.
func specFromFlags(c *cli.Context, argv []string) (*wire.Spec, error) {
	s := &wire.Spec{Argv: argv, Dialect: wire.Dialect(c.String("dialect")), Children: wire.Children(c.String("children"))}
	if s.Dialect == wire.Auto {
		s.Dialect = ""
	}
	var err error
	if s.Cwd, err = filepath.Abs(c.String("cwd")); err != nil {
		return nil, err
	}
	if file := c.String("env-file"); file != "" {
		if s.EnvFile, err = filepath.Abs(file); err != nil {
			return nil, err
		}
	}
	if p := c.String("restart"); p != "" {
		s.Restart = &wire.Restart{Policy: wire.Policy(p)}
	}
	if d := c.Duration("stop-timeout"); d != 0 {
		s.StopTimeoutMS = d.Milliseconds()
	}
	return s, checkEnums(s)
}

// checkEnums refuses unknown words with the flag's own name, before anything is
// started.
func checkEnums(s *wire.Spec) error {
	check := func(flag, value string, allowed []string) error {
		if value == "" || slices.Contains(allowed, value) {
			return nil
		}
		return usage{fmt.Sprintf("--%s %s: must be one of %s", flag, value, strings.Join(allowed, ", "))}
	}
	policy := ""
	if s.Restart != nil {
		policy = string(s.Restart.Policy)
	}
	for _, err := range []error{
		check("dialect", string(s.Dialect), s.Dialect.Enum()),
		check("children", string(s.Children), s.Children.Enum()),
		check("restart", policy, wire.OnFailure.Enum()),
	} {
		if err != nil {
			return err
		}
	}
	if s.StopTimeoutMS < 0 || s.StopTimeoutMS > wire.MaxWaitMS {
		return usage{"--stop-timeout must be more than 0 and at most 10m"}
	}
	return nil
}

// demoName is the instance that needs no command.
const demoName = "demo"

// demoSpec is the built-in demo agent, if that is what is asked for: a name
// without a command that is no instance yet.
func demoSpec(c *cli.Context, cl *client.Client, home lease.Home, names []string) (*wire.Spec, error) {
	if !slices.Equal(names, []string{demoName}) {
		return nil, nil
	}
	var got wire.GetResult
	if err := cl.Call(c.Context, wire.NewID(), wire.Get{Instance: demoName}, &got); err == nil {
		return nil, nil
	}
	program, err := demoProgram()
	if err != nil {
		return nil, err
	}
	return &wire.Spec{Argv: []string{program, "--db", filepath.Join(home.Dir(), "demo.db")}, Cwd: home.Dir()}, nil
}

// demoProgram finds the demo agent beside this program.
func demoProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	program := filepath.Join(filepath.Dir(self), "supercast-agent")
	if _, err := os.Stat(program); err != nil {
		return "", trouble{fmt.Errorf("the demo agent is not installed: there is no %s", program), "make install   puts both programs side by side"}
	}
	return program, nil
}

// startForeground runs the host of a new instance in this terminal, registered
// like any other.
func startForeground(c *cli.Context, home lease.Home, cl *client.Client, names []string, spec *wire.Spec, env map[string]string) error {
	if len(names) != 1 {
		return usage{"--foreground takes one instance"}
	}
	var r wire.InstanceResult
	if err := cl.Call(c.Context, wire.NewID(), wire.Start{Name: names[0], Spec: spec, Env: env, Foreground: true}, &r); err != nil {
		return err
	}
	if r.Instance.State != wire.Starting {
		return wire.Errorf(wire.Conflict, "instance %s runs already", names[0])
	}
	return hostForeground(c, home, cl, r.Instance)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/castctl/castctl/client"
	"github.com/castctl/castctl/internal/host"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// expand resolves names and globs against the instances that there are. A plain
// name stays as it is; a glob that matches nothing is an error.
func expand(patterns []string, known []wire.Instance) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	for _, p := range patterns {
		if !strings.ContainsAny(p, "*?[") {
			add(p)
			continue
		}
		found := false
		for _, in := range known {
			ok, err := path.Match(p, in.Name)
			if err != nil {
				return nil, usage{fmt.Sprintf("%s is not a pattern: %v", p, err)}
			}
			if ok {
				found = true
				add(in.Name)
			}
		}
		if !found {
			return nil, wire.Errorf(wire.NotFound, "no instance matches %s", p)
		}
	}
	return out, nil
}

// checkNames refuses names that no instance can have, before anything happens.
// Ids are names too where an instance is looked up.
func checkNames(names []string) error {
	for _, n := range names {
		if !wire.ValidName(n) {
			return wire.Errorf(wire.InvalidRequest, "the name %q %s", n, wire.NameRule)
		}
	}
	return nil
}

// targets are the instances that a command line names, one or more.
func targets(c *cli.Context, cl *client.Client, patterns []string) ([]string, error) {
	if len(patterns) == 0 {
		return nil, usage{fmt.Sprintf("%s needs the name of an instance", c.Command.Name)}
	}
	if !strings.ContainsAny(strings.Join(patterns, ""), "*?[") {
		return patterns, checkNames(patterns)
	}
	st, err := fleetOf(c.Context, cl)
	if err != nil {
		return nil, err
	}
	names, err := expand(patterns, st.Instances)
	if err != nil {
		return nil, err
	}
	return names, checkNames(names)
}

func fleetOf(ctx context.Context, cl *client.Client) (wire.Status, error) {
	var st wire.Status
	return st, cl.Call(ctx, wire.NewID(), wire.GetStatus{}, &st)
}

// parallel is how many connections a command on many instances uses.
const parallel = 16

// each runs one request for each name, several at a time, and joins what went
// wrong in the order of the names.
func each(ctx context.Context, home lease.Home, first *client.Client, names []string, do func(cl *client.Client, name string) error) error {
	errs := make([]error, len(names))
	work := make(chan int)
	var wg sync.WaitGroup
	worker := func(cl *client.Client) {
		for i := range work {
			errs[i] = do(cl, names[i])
		}
	}
	wg.Go(func() { worker(first) })
	for range min(parallel, len(names)) - 1 {
		wg.Go(func() {
			cl, err := connectLiving(ctx, home)
			if err != nil {
				return // the others do the work
			}
			defer cl.Close()
			worker(cl)
		})
	}
	for i := range names {
		work <- i
	}
	close(work)
	wg.Wait()
	return joinErrors(errs)
}

// several is what went wrong with several instances, a line each.
type several struct{ errs []error }

func (s several) Error() string {
	lines := make([]string, len(s.errs))
	for i, e := range s.errs {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "; ")
}

func (s several) Unwrap() []error { return s.errs }

func joinErrors(errs []error) error {
	var left []error
	for _, err := range errs {
		if err != nil {
			left = append(left, err)
		}
	}
	switch len(left) {
	case 0:
		return nil
	case 1:
		return left[0]
	}
	return several{left}
}

// withSupervisor runs a command that needs a supervisor.
func withSupervisor(c *cli.Context, do func(home lease.Home, cl *client.Client) error) error {
	home, err := openHome(c)
	if err != nil {
		return err
	}
	cl, err := connectTo(c.Context, home)
	if err != nil {
		return err
	}
	defer cl.Close()
	return do(home, cl)
}

// livingClient connects to a living supervisor; nil without an error if there
// is none.
func livingClient(ctx context.Context, home lease.Home) (*client.Client, error) {
	cl, err := connectLiving(ctx, home)
	if errors.Is(err, lease.ErrNoServer) {
		return nil, nil
	}
	return cl, err
}

// folderByName finds an instance's folder by name or id, without a supervisor.
func folderByName(home lease.Home, ref string) (id string, ok bool) {
	ids, err := home.InstanceIDs()
	if err != nil {
		return "", false
	}
	for _, id := range ids {
		file, err := host.ReadSpec(home.Instance(id))
		if err == nil && (file.Name == ref || id == ref) {
			return id, true
		}
	}
	return "", false
}

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/registry"
	"github.com/castctl/castctl/updater"
	"github.com/castctl/castctl/wire"
)

func examineHome(dir string) diagnosis {
	_, err := lease.FindHome(dir)
	switch {
	case errors.Is(err, lease.ErrNoHome):
		return fine("home", "%s does not exist yet", dir)
	case err != nil:
		do := ""
		if h, ok := errors.AsType[hinted](err); ok {
			do = h.Hint()
		}
		return wrong("home", do, "%v", err)
	}
	if kind := registry.NetworkFS(dir); kind != "" {
		return wrong("home", "set CAST_HOME to a directory on a local disk", "%s lies on a network file system (%s)", dir, kind)
	}
	return fine("home", "%s", dir)
}

// examineFleet looks at the supervisor and the instances.
func examineFleet(ctx context.Context, home lease.Home) []diagnosis {
	list := []diagnosis{examineSupervisor(ctx, home), examineRegistry(home)}
	st := offline(home)
	for _, in := range st.Instances {
		switch in.State {
		case wire.Foreign:
			list = append(list, wrong("instance "+in.Name, "end it on its own machine; if that is gone for ever, remove "+home.Instance(in.ID).Path(), "%s", text(in.Reason)))
		case wire.Unknown:
			list = append(list, wrong("instance "+in.Name, "castctl sweep   judges it again; castctl stop "+in.Name+" ends it", "%s", text(in.Reason)))
		case wire.Failed:
			list = append(list, wrong("instance "+in.Name, "castctl logs --stderr "+in.Name, "failed: %s", text(in.Reason)))
		}
	}
	return list
}

func examineSupervisor(ctx context.Context, home lease.Home) diagnosis {
	server, v, err := home.FindServer()
	lock, lockErr := lease.Probe(home.DaemonLock())
	switch {
	case errors.Is(err, lease.ErrNoServer) && lockErr == nil && lock.Held:
		return wrong("supervisor", "wait a moment; if it stays so, end the process that holds "+home.DaemonLock(), "it holds the lock but has not published itself")
	case errors.Is(err, lease.ErrNoServer):
		return fine("supervisor", "none runs; the next command that needs one starts it")
	case err != nil:
		return wrong("supervisor", "castctl sweep", "its record cannot be read: %v", err)
	case v != proc.Alive:
		return wrong("supervisor", "use castctl where it runs", "process %d is %s", server.PID, v)
	case server.Protocol.Min > wire.Protocol || server.Protocol.Max < wire.Protocol:
		return wrong("supervisor", "castctl down   (agents go on; the next command starts this version's)", "version %s speaks another protocol", server.Version)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	cl, err := connectLiving(ctx, home)
	if err != nil {
		return wrong("supervisor", "castctl down", "process %d does not answer: %v", server.PID, err)
	}
	cl.Close()
	if self := updater.Self(); server.BuildID != self {
		return wrong("supervisor", "castctl down   (agents go on; the next command starts this build's)", "process %d runs build %s, this command is build %s", server.PID, server.BuildID, self)
	}
	return fine("supervisor", "process %d, up %s", server.PID, age(server.StartedAt))
}

func examineRegistry(home lease.Home) diagnosis {
	damaged, _ := filepath.Glob(home.RegistryFile() + ".damaged-*")
	if len(damaged) > 0 {
		return wrong("registry", "look at it if you miss something, then remove it", "it was damaged once and rebuilt; the old file is %s", damaged[len(damaged)-1])
	}
	return fine("registry", "%s", home.RegistryFile())
}

// examineMachine looks at what surrounds Cast.
func examineMachine(dir string) []diagnosis {
	list := []diagnosis{examineSocket(dir), examineClock(), examineInit()}
	if os.Getpid() != 1 {
		list = append(list, examineLinger())
	}
	if b, err := os.ReadFile("/proc/version"); err == nil && strings.Contains(strings.ToLower(string(b)), "microsoft") {
		list = append(list, wrong("WSL", "keep one terminal open, or set vmIdleTimeout=-1 in .wslconfig", "Windows ends this machine when its last terminal is closed"))
	}
	return list
}

// examineSocket checks that a socket's path is short enough for the kernel.
func examineSocket(dir string) diagnosis {
	longest := filepath.Join(dir, "run", "supervisor.sock")
	if len(longest) <= 100 {
		return fine("socket", "its path has %d bytes", len(longest))
	}
	if run := os.Getenv("XDG_RUNTIME_DIR"); run != "" {
		return fine("socket", "the home's path is long, so sockets are in %s", run)
	}
	return wrong("socket", "set CAST_HOME to a shorter path, or XDG_RUNTIME_DIR", "the home's path is long, so sockets are in %s, where cleaners may remove them", os.TempDir())
}

// examineClock notices a wall clock that cannot be right.
func examineClock() diagnosis {
	if time.Now().Year() < 2024 {
		return wrong("clock", "set the clock", "it says %s", time.Now().Format(time.RFC3339))
	}
	return fine("clock", "%s", time.Now().Format(time.RFC3339))
}

// examineInit looks at process 1: an init that reaps nothing leaves zombies.
func examineInit() diagnosis {
	in, err := proc.Describe(1)
	if err != nil || len(in.Args) == 0 {
		return fine("process 1", "it cannot be looked at")
	}
	zombies := proc.Zombies(1)
	if zombies > 10 {
		return wrong("process 1", "start the container with an init (docker run --init)", "%s does not reap: it has %d zombies", filepath.Base(in.Args[0]), zombies)
	}
	return fine("process 1", "%s", filepath.Base(in.Args[0]))
}

// examineLinger tells whether this user's processes survive the last logout.
func examineLinger() diagnosis {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return fine("logout", "no systemd here that could end processes at logout")
	}
	name := os.Getenv("USER")
	if os.Geteuid() == 0 {
		return fine("logout", "root's processes survive it")
	}
	if _, err := os.Stat(filepath.Join("/var/lib/systemd/linger", name)); err == nil {
		return fine("logout", "lingering is on")
	}
	return wrong("logout", "loginctl enable-linger "+name, "systemd may end this user's processes at the last logout")
}

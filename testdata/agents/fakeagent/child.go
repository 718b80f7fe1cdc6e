package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process that is left behind.
type child struct {
	setsid     bool   // in a session of its own
	doubleFork bool   // its parent ends at once, so it is a grandchild and falls to init or a subreaper
	holdStdout bool   // it keeps the agent's stdout open
	command    string // a shell command; else it only waits
}

const (
	// roleEnv makes this program play a child instead.
	roleEnv  = "FAKEAGENT_ROLE"
	roleFork = "fork"
	roleWait = "wait"
	// What a child must know, from one execution to the next.
	childEnv = "FAKEAGENT_CHILD"
)

// leave starts the child and returns its PID.
func (a *agent) leave(c child) int {
	role := roleWait
	if c.doubleFork {
		role = roleFork
	}
	pid, err := c.start(role, a.childLife)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakeagent:", err)
		os.Exit(2)
	}
	a.note("child %d", pid)
	return pid
}

// start executes this program again. It returns when the process that stays is
// there, with that one's PID.
func (c child) start(role string, life time.Duration) (pid int, err error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	said, ready, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer said.Close()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, fmt.Sprintf("%s=%t %s %s", childEnv, c.holdStdout, life, c.command))
	cmd.ExtraFiles = []*os.File{ready}
	if c.holdStdout {
		cmd.Stdout = os.Stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: c.setsid}
	err = cmd.Start()
	ready.Close()
	if err != nil {
		return 0, err
	}
	if role == roleFork {
		defer cmd.Wait()
	} else {
		go cmd.Wait()
	}
	b, err := io.ReadAll(said)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

// playRole is the child's side of start. Descriptor 3 takes its PID.
func playRole(role string) {
	ready := os.NewFile(3, "ready")
	hold, rest, _ := strings.Cut(os.Getenv(childEnv), " ")
	lifetime, command, _ := strings.Cut(rest, " ")
	life, err := time.ParseDuration(lifetime)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakeagent:", err)
		os.Exit(2)
	}
	if role == roleFork {
		c := child{holdStdout: hold == "true", command: command}
		pid, err := c.start(roleWait, life)
		if err != nil {
			os.Exit(2)
		}
		fmt.Fprint(ready, pid)
		return
	}
	fmt.Fprint(ready, os.Getpid())
	ready.Close()
	if command == "" {
		time.Sleep(life)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), life)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	if hold == "true" {
		cmd.Stdout = os.Stdout
	}
	if err := cmd.Run(); err != nil {
		os.Exit(1)
	}
}

// dieOf ends the process by a signal's default action, which the Go runtime
// would not take for most of them.
func dieOf(s syscall.Signal) {
	kill := fmt.Sprintf("ulimit -c 0; kill -%d $$", int(s))
	err := syscall.Exec("/bin/sh", []string{"sh", "-c", kill}, os.Environ())
	fmt.Fprintln(os.Stderr, "fakeagent:", err)
	os.Exit(2)
}

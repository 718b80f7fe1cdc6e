package transport_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/castctl/castctl/transport"
	"github.com/castctl/castctl/transport/transporttest"
)

func TestT05ExitWhileAGrandchildHoldsTheOutput(t *testing.T) {
	for _, c := range []struct{ name, holder string }{
		{"in the agent's group", "--fork-holder"},
		{"in a session of its own", "--setsid-holder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			before := openFiles(t)
			f := startFake(t, func(c *transport.Config, _ *transport.Handlers) { c.Drain = 50 * time.Millisecond },
				"--line-bytes", fmt.Sprint(2<<20), "--exit-after", "1", "--exit-code", "3", c.holder)
			if err := f.Write([]byte(`{"version":1,"id":"last","command":{"op":"echo"}}`)); err != nil {
				t.Fatal(err)
			}
			f.await("closed", 1)
			got := f.all("message", "notice", "stderr", "exited", "closed")
			if i := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "message ") }); i >= 0 {
				if n := len(got[i]) - len("message "); n != 2<<20 {
					t.Errorf("the last record has %d bytes, want %d", n, 2<<20)
				}
				got[i] = "message"
			}
			slices.Sort(got[:2]) // the exit may be seen before the record is taken
			want := []string{"exited exited with code 3", "message", "closed process exited with code 3"}
			if !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
			wait(t, "the end", f.Ended())
			if n := len(f.tree()); n != 1 {
				t.Errorf("%d processes hold the output, want 1", n)
			}
			goleak.VerifyNone(t, leaks)
			if after := openFiles(t); after != before {
				t.Errorf("%d descriptors are open, %d were before", after, before)
			}
		})
	}
}

// openFiles counts this process's descriptors.
func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("descriptors cannot be counted here: %v", err)
	}
	return len(entries)
}

func TestT05WhatTheAgentSaidIsHeardHoweverSlowlyItIsTaken(t *testing.T) {
	exited := make(chan struct{})
	f := startFake(t, func(c *transport.Config, on *transport.Handlers) {
		c.Drain = 1
		told, stderr := c.Exited, on.Stderr
		c.Exited = func(e exit) { told(e); close(exited) }
		on.Stderr = func(b []byte) { <-exited; stderr(b) }
	}, "--noise", "1500", "--fork-holder") // less than a pipe holds, so the agent can exit
	f.CloseInput()
	wait(t, "the end", f.Ended())
	if n := len(f.all("stderr")); n != 1500 {
		t.Errorf("%d lines came, want 1500", n)
	}
	if got := f.all("notice", "closed"); len(got) != 1501 || got[1500] != "closed process exited with code 0" {
		t.Errorf("told %d notices and the end, the last of them %q", len(got), got[len(got)-1])
	}
}

func TestT05ATornLastLineIsTold(t *testing.T) {
	f := startFake(t, nil, "--exit-after", "1", "--torn", "5000")
	f.ask(`{"op":"echo"}`)
	f.await("closed", 1)
	if got, want := f.all("notice", "closed"), []string{"notice torn 5000", "closed process exited with code 0"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestAGrandchildThatWritesOnIsNotWaitedFor(t *testing.T) {
	f := startFake(t, func(c *transport.Config, on *transport.Handlers) {
		c.Drain = 1
		on.Stderr = nil
		on.Notice = nil
	})
	f.ask(`{"op":"spawn_bg","double_fork":true,"hold_stdout":true,"command":"exec yes noise"}`)
	f.CloseInput()
	f.await("closed", 1)
	wait(t, "the end", f.Ended())
}

func TestCrashesAreToldWithTheirSignal(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGABRT, syscall.SIGSEGV, syscall.SIGHUP} {
		f := startFake(t, nil)
		if err := f.Write(fmt.Appendf(nil, `{"version":1,"id":"x","command":{"op":"crash","signal":%d}}`, int(s))); err != nil {
			t.Fatal(err)
		}
		f.await("closed", 1)
		want := []string{fmt.Sprintf("exited terminated by signal %d", int(s)), fmt.Sprintf("closed process terminated by signal %d", int(s))}
		if got := f.all("exited", "closed"); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	}
}

func TestStartThatFailsLeavesNothing(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	before := openFiles(t)
	s := transport.NewSubprocess(transport.Config{Path: filepath.Join(t.TempDir(), "none"), Argv: []string{"none"}},
		transport.Handlers{Closed: func(reason string) { t.Errorf("Closed: %s", reason) }})
	if err := s.Start(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start: %v, want %v", err, os.ErrNotExist)
	}
	if s.Alive() {
		t.Error("Alive although nothing was started")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	goleak.VerifyNone(t, leaks)
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

func TestInheritedDescriptorsAndNoOthersReachTheAgent(t *testing.T) {
	mine, err := os.CreateTemp(t.TempDir(), "inherited")
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	f := startProgram(t, func(c *transport.Config, _ *transport.Handlers) { c.Inherit = []*os.File{mine} },
		"/bin/sh", "-c", `echo said >&3; for d in /proc/self/fd/*; do echo "${d##*/}"; done; echo '{}'`)
	f.await("closed", 1)
	if b, err := os.ReadFile(mine.Name()); err != nil || string(b) != "said\n" {
		t.Errorf("the file has %q, %v", b, err)
	}
	for _, l := range f.all("stderr") {
		if n, err := strconv.Atoi(strings.TrimPrefix(l, "stderr ")); err == nil && n > 4 && n < 10 { // the shell has some of its own
			t.Errorf("descriptor %d has leaked into the agent", n)
		}
	}
}

func TestMemoryIsGivenBack(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("memory is measured on Linux only")
	}
	t.Run("a torn giant line of a dead agent", func(t *testing.T) {
		torn := func() {
			f := startFake(t, nil, "--exit-after", "1", "--torn", fmt.Sprint(6<<20))
			f.ask(`{"op":"echo"}`)
			f.await("closed", 1)
		}
		torn()
		before := resident(t, "VmRSS")
		for range 8 {
			torn()
		}
		if grown := resident(t, "VmRSS") - before; grown > 24<<20 {
			t.Errorf("8 agents left %d MiB behind", grown>>20)
		}
	})
	t.Run("a line over the cap takes no more than the cap", func(t *testing.T) {
		f := startFake(t, func(c *transport.Config, _ *transport.Handlers) { c.MaxLine = 1 << 20 })
		f.ask(`{"op":"echo"}`)
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
			t.Skipf("the peak cannot be set back: %v", err)
		}
		before := resident(t, "VmRSS")
		if err := f.Write([]byte(`{"version":1,"id":"over","command":{"op":"big","bytes":50000000}}`)); err != nil {
			t.Fatal(err)
		}
		f.ask(`{"op":"echo"}`)
		if got, want := f.all("notice"), []string{"notice oversize 50000000"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		if grown := resident(t, "VmHWM") - before; grown > 24<<20 {
			t.Errorf("a line of 50 MB took %d MiB, with a cap of 1", grown>>20)
		}
	})
}

// resident reads a figure of this process's memory, in bytes.
func resident(t *testing.T, what string) int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(what+":")); ok {
			n, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("no %s", what)
	return 0
}

func TestCloseInputLetsAGoodAgentEnd(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	f := startFake(t, nil, "--log", log)
	f.ask(`{"op":"echo"}`)
	if err := f.CloseInput(); err != nil {
		t.Fatal(err)
	}
	f.await("closed", 1)
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprintf("start %d %d", f.Child().PID(), os.Getpid()), "request r0", "eof", "exit 0", ""}
	if got := strings.Split(string(b), "\n"); !slices.Equal(got, want) {
		t.Errorf("the agent's log is %q, want %q", got, want)
	}
}

func TestCloseKillsTheGroupOfAStubbornAgent(t *testing.T) {
	f := startFake(t, nil, "--ignore-eof", "--ignore-term", "--fork-holder")
	f.ask(`{"op":"echo"}`)
	if n := len(f.tree()); n != 2 {
		t.Fatalf("%d processes, want the agent and its holder", n)
	}
	f.kill()
	if got := f.tree(); len(got) > 0 {
		t.Errorf("%d processes of the group are left", len(got))
	}
	if got := f.all("closed"); len(got) > 0 {
		t.Errorf("told %q of the owner's own Close", got)
	}
	if e, ok := f.Exit(); !ok || e.Signal != syscall.SIGKILL {
		t.Errorf("Exit is %v, %t", e, ok)
	}
}

func TestCloseIsBoundedWhenAHandlerBlocks(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	far := transporttest.NewProcess(t)
	f := startProgram(t, func(c *transport.Config, on *transport.Handlers) {
		c.Env = append(c.Env, far.Env()...)
		c.Drain = 1
		on.Message = func([]byte) { <-free }
	}, far.Path())
	defer close(free)
	far.Say("{}\n")
	done := make(chan error, 1)
	go func() { done <- f.Close(ended(t)) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("Close says that all is well, but a handler still runs")
		}
	case <-time.After(patience):
		t.Fatal("Close waits for a handler for ever")
	}
	wait(t, "the agent's end", far.Gone())
}

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// bystander is a process that has nothing to do with Cast and must never be
// touched.
func bystander(t *testing.T) proc.Identity {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	id, err := proc.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// forge changes the host record of a stopped instance, as a crash, a reused
// number or a moved home would leave it.
func (w *world) forge(name string, change func(*lease.Host)) {
	w.t.Helper()
	in := w.instance(name)
	folder := lease.Folder(filepath.Join(w.home, "instances", in.ID))
	lock, err := lease.Acquire(folder.AliveLock())
	if err != nil {
		w.t.Fatal(err)
	}
	defer lock.Release()
	mark, err := lock.Mark()
	if err != nil {
		w.t.Fatal(err)
	}
	r := lease.Host{Mark: mark, ID: in.ID, Name: name, Incarnation: *in.Incarnation, Socket: filepath.Join(w.home, "run", "x.sock")}
	change(&r)
	if _, err := folder.PublishHost(r); err != nil {
		w.t.Fatal(err)
	}
}

// TestForgedRecord (T07, P5, P6): a record with the number of a living stranger
// is stale: it is removed, and the stranger lives on whatever is asked for.
func TestForgedRecord(t *testing.T) {
	for name, forge := range map[string]func(r *lease.Host, stranger proc.Identity){
		"another start time": func(r *lease.Host, s proc.Identity) { r.Identity = s; r.StartTicks++; r.PidfdInode = 0 },
		"another pidfd":      func(r *lease.Host, s proc.Identity) { r.Identity = s; r.PidfdInode++ },
		"the agent too": func(r *lease.Host, s proc.Identity) {
			r.Identity = s
			r.StartTicks++
			r.PidfdInode++
			r.Agent = &r.Identity
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			stranger := bystander(t)
			w.must("start", "a", "--", "sleep", "100000")
			w.must("stop", "a")
			w.must("down")
			w.forge("a", func(r *lease.Host) { forge(r, stranger) })
			if in := w.instance("a"); in.State != wire.Stopped {
				t.Errorf("it is %s", in.State)
			}
			w.must("sweep")
			w.must("stop", "a")
			w.must("start", "a")
			w.must("stop", "a")
			w.must("down", "--all")
			if v := stranger.Verdict(); v != proc.Alive {
				t.Errorf("the stranger is %s", v)
			}
			if _, err := os.Lstat(filepath.Join(w.home, "instances", w.instance("a").ID, "host.json")); err == nil {
				t.Error("the stale record is left")
			}
		})
	}
}

// TestForeignHost (T08, P7): a host of another machine or PID namespace is
// reported with the reason, and nothing of it is signalled, removed or reused.
func TestForeignHost(t *testing.T) {
	for name, change := range map[string]func(*lease.Host){
		"another namespace": func(r *lease.Host) { r.PIDNamespace++; r.LockInode = 1 },
		"another machine":   func(r *lease.Host) { r.BootID, r.MachineID = "other", "other" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			stranger := bystander(t)
			w.must("start", "a", "--", "sleep", "100000")
			w.must("stop", "a")
			w.must("down")
			w.forge("a", func(r *lease.Host) {
				r.PID, r.StartTicks, r.PidfdInode = stranger.PID, stranger.StartTicks, stranger.PidfdInode
				change(r)
			})
			for range 2 { // without a supervisor, and with one
				in := w.instance("a")
				if in.State != wire.Foreign || in.Reason == nil || !strings.Contains(*in.Reason, "another machine or PID namespace") {
					t.Errorf("it is %s: %v", in.State, deref(in.Reason))
				}
				w.must("sweep")
			}
			for _, args := range [][]string{{"start", "a"}, {"stop", "a"}, {"restart", "a"}, {"rm", "a"}, {"rm", "--force", "a"}} {
				w.refused(exitUnable, args...)
			}
			if v := stranger.Verdict(); v != proc.Alive {
				t.Errorf("the stranger is %s", v)
			}
			id := w.instance("a").ID
			if _, err := os.Lstat(filepath.Join(w.home, "instances", id, "host.json")); err != nil {
				t.Error("a foreign record was removed")
			}
			if err := os.RemoveAll(filepath.Join(w.home, "instances", id)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestStaleLeavings (P3): what a dead supervisor left, or somebody put there,
// blocks no start: a record, a socket, a file or a listener at the socket's path.
func TestStaleLeavings(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, home string){
		"a record of a reused number": func(t *testing.T, home string) {
			h, err := lease.FindHome(home)
			if err != nil {
				t.Fatal(err)
			}
			r := lease.Server{InstanceID: "dead", Mark: lease.Mark{Identity: bystander(t)}, Host: "127.0.0.1", Port: 1}
			r.StartTicks++
			r.PidfdInode++
			if err := h.PublishServer(r); err != nil {
				t.Fatal(err)
			}
		},
		"a dead socket": func(t *testing.T, home string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(home, "run", "supervisor.sock"), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		},
		"a file":       func(t *testing.T, home string) { write(t, filepath.Join(home, "run", "supervisor.sock")) },
		"old pid file": func(t *testing.T, home string) { writeFile(t, filepath.Join(home, "daemon.lock"), "1\n") },
		"a half record": func(t *testing.T, home string) {
			writeFile(t, filepath.Join(home, "server.json"), `{"pid":`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must("start", "a", "--", "sleep", "100000")
			w.killSupervisor()
			os.Remove(filepath.Join(w.home, "run", "supervisor.sock"))
			os.Remove(filepath.Join(w.home, "server.json"))
			leave(t, w.home)
			w.must("sweep")
			if in := w.waitState("a", wire.Running); in.Run != 1 || w.supervisors() != 1 {
				t.Errorf("run %d, %d supervisors", in.Run, w.supervisors())
			}
		})
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/castctl/castctl/wire"
)

// closeStdout goes away as the reader of a process's stdout.
func (k *talk) closeStdout() {
	k.t.Helper()
	k.stdout.Close()
	k.out.Reset(strings.NewReader(""))
}

// PITFALLS K17 and T27: a file that is no ledger is told in one line, and left
// as it is.
func TestDamagedLedger(t *testing.T) {
	db := newLedger(t)
	var fill []string
	for i := range 30 {
		fill = append(fill, request(fmt.Sprint(i), fmt.Sprintf(`{"op":"event_create","event_id":"e%d","question":%q}`, i, strings.Repeat("?", 500))))
	}
	serve(t, lines(fill...), "--db", db)
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data []byte
		why  string
	}{
		"empty":              {nil, "the file is empty"},
		"truncated":          {whole[:len(whole)/2], "the file is damaged"},
		"cut to a page":      {whole[:4096], "the file is damaged"},
		"cut within a page":  {whole[:5000], "the file is damaged"},
		"garbage":            {bytes.Repeat([]byte("garbage "), 9000), "the file is not a ledger"},
		"one byte":           {[]byte{0}, "the file is not a ledger"},
		"garbage after meta": {append(bytes.Clone(whole[:8192]), bytes.Repeat([]byte{0xa5}, len(whole)-8192)...), "the file is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newLedger(t)
			if err := os.WriteFile(path, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
			f := serve(t, lines(request("1", createRain)), "--db", path)
			if f.code != 2 || f.stdout != "" || strings.Count(f.stderr, "\n") != 1 || !strings.HasPrefix(f.stderr, "supercast-agent: ledger "+path+": "+c.why) {
				t.Errorf("%+v", f)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, c.data) {
				t.Errorf("the file was changed (%v)", err)
			}
			if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
				t.Errorf("%v, %v", left, err)
			}
		})
	}
}

// asNobody has a process run without root's privileges, which no permission
// stops.
func asNobody(cmd *exec.Cmd) {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}

// readable lets a process without privileges get at a file of the test's.
func readable(t *testing.T, path string) {
	t.Helper()
	for dir := path; strings.HasPrefix(dir, os.TempDir()+string(filepath.Separator)); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestReadOnlyLedger(t *testing.T) {
	path := agent(t)
	readable(t, path)
	db := newLedger(t)
	serve(t, lines(request("1", createRain)), "--db", db)
	readable(t, db)
	before, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		db   string
		mode os.FileMode
		why  string
	}{
		"a file that may only be read":     {db, 0o444, "permission denied"},
		"a file that may not be read":      {db, 0, "permission denied"},
		"a folder that may not be written": {filepath.Join(filepath.Dir(db), "new.db"), 0o444, "permission denied"},
		"a folder that is a file":          {filepath.Join(db, "new.db"), 0o444, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.Chmod(db, c.mode); err != nil {
				t.Fatal(err)
			}
			if os.Geteuid() != 0 {
				os.Chmod(filepath.Dir(db), 0o555)
				defer os.Chmod(filepath.Dir(db), 0o755)
			}
			k := begin(t, path, asNobody, "--db", c.db)
			if f := k.hangUp(); f.code != 2 || f.stdout != "" || f.stderr != "supercast-agent: ledger "+c.db+": "+c.why+"\n" {
				t.Errorf("%+v", f)
			}
		})
	}
	if err := os.Chmod(db, 0o600); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(db); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed (%v)", err)
	}
}

// full asks for changes until one is refused because the disk is full, and
// checks that nothing is lost by it and that the process goes on by itself when
// there is room again.
func full(t *testing.T, k *talk, fill, free func()) {
	t.Helper()
	record := func(i int) string {
		return request(fmt.Sprint("r-", i), fmt.Sprintf(`{"op":"event_create","event_id":"e-%d","question":%q}`, i, strings.Repeat("?", 1500)))
	}
	if a := k.ask(record(0)); a.Error != nil {
		t.Fatalf("%s", a.line)
	}
	fill()
	kept := 0
	var refused answer
	for refused.Error == nil {
		kept++
		refused = k.ask(record(kept))
		if kept > 2000 {
			t.Fatal("there is always room")
		}
	}
	if refused.code() != wire.Unavailable || refused.Error.Delivery != wire.NotSent || strings.Contains(refused.Error.Message, "\n") {
		t.Errorf("%s", refused.line)
	}
	for i := range kept {
		if a := k.ask(request("q", fmt.Sprintf(`{"op":"event_get","event_id":"e-%d"}`, i))); a.Error != nil {
			t.Fatalf("what was acknowledged is lost: %s", a.line)
		}
	}
	if a := k.ask(request("q", fmt.Sprintf(`{"op":"event_get","event_id":"e-%d"}`, kept))); a.code() != wire.NotFound {
		t.Errorf("what was refused is there: %s", a.line)
	}
	free()
	if a := k.ask(record(kept)); a.Error != nil {
		t.Errorf("there is room again, and still: %s", a.line)
	}
	if f := k.hangUp(); f.code != 1 || f.stderr != "" {
		t.Errorf("%+v", f)
	}
}

// A limit on the size of files looks to the program like a disk that is full.
func TestNoSpaceByLimit(t *testing.T) {
	db := newLedger(t)
	k := begin(t, agent(t), nil, "--db", db)
	limit := func(n uint64) {
		t.Helper()
		if err := prlimitFileSize(k.cmd.Process.Pid, n); err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
	}
	full(t, k, func() { limit(64 << 10) }, func() { limit(unix.RLIM_INFINITY) })
	sound(t, db)
}

// A file system that really is full, in a mount namespace of the process's own.
func TestNoSpaceOnDisk(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "ledger.db")
	script := `mount -t tmpfs -o size=512k tmpfs "$1" && exec "$2" --db "$3"`
	if out, err := exec.Command("unshare", "--mount", "sh", "-c", `mount -t tmpfs -o size=64k tmpfs "$1"`, "sh", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: it takes root to make a small file system: %v %s", err, out)
	}
	k := begin(t, "unshare", nil, "--mount", "sh", "-c", script, "sh", dir, agent(t), db)
	filler := filepath.Join(fmt.Sprintf("/proc/%d/root", k.cmd.Process.Pid), dir, "filler")
	full(t, k, func() {
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.Copy(f, zeros{}); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the file system is not full: %v", err)
		}
	}, func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A ledger in memory leaves nothing behind, whatever the end, and has no file
// with a name while it lives.
func TestMemoryLeavesNothing(t *testing.T) {
	for _, end := range []string{"hang up", "SIGTERM", "kill -9"} {
		t.Run(end, func(t *testing.T) {
			dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
			k := begin(t, agent(t), func(cmd *exec.Cmd) {
				cmd.Dir = dirs[0]
				cmd.Env = append(os.Environ(), "TMPDIR="+dirs[1], "HOME="+dirs[2])
			}, "--memory")
			k.ask(request("1", createRain))
			if a := k.ask(request("2", annOnRain)); a.Error != nil {
				t.Fatalf("%s", a.line)
			}
			namedFiles(t, k.cmd.Process.Pid)
			switch end {
			case "kill -9":
				k.cmd.Process.Kill()
			case "SIGTERM":
				k.cmd.Process.Signal(syscall.SIGTERM)
			default:
				k.in.Close()
			}
			k.end()
			for _, dir := range dirs {
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Errorf("%v is left, %v", left, err)
				}
			}
		})
	}
}

// namedFiles checks that a process has no regular file open that has a name.
func namedFiles(t *testing.T, pid int) {
	t.Helper()
	fds := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Logf("SKIPPED: open files cannot be listed here: %v", err)
		return
	}
	ledgers := 0
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(fds, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(to, "/memfd:") {
			ledgers++
			continue
		}
		// The runtime reads its share of the CPUs from /sys.
		if info, err := os.Stat(to); err == nil && info.Mode().IsRegular() && !strings.HasPrefix(to, "/sys/") {
			t.Errorf("%s is open", to)
		}
	}
	if ledgers != 1 {
		t.Errorf("%d files in memory", ledgers)
	}
}

package lease

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/castctl/castctl/internal/proc"
)

// TestVerdicts weighs the two witnesses, lock and identity, in every
// combination.
func TestVerdicts(t *testing.T) {
	const other = "00000000-0000-0000-0000-000000000000"
	for name, tc := range map[string]struct {
		identity proc.Verdict
		lock     LockState
		err      error
		named    uint64 // inode that the record names
		boot     string
		want     proc.Verdict
	}{
		"held and alive":                         {Alive, LockState{true, true, 7}, nil, 7, "", Alive},
		"held, identity gone: a successor":       {Gone, LockState{true, true, 7}, nil, 7, "", Unknown},
		"held, cannot look":                      {Unknown, LockState{true, true, 7}, nil, 7, "", Unknown},
		"held in another namespace":              {Foreign, LockState{true, true, 7}, nil, 7, "", Foreign},
		"free and gone":                          {Gone, LockState{true, false, 7}, nil, 7, "", Gone},
		"free beside a matching identity":        {Alive, LockState{true, false, 7}, nil, 7, "", Unknown},
		"free, cannot look (EPERM, hidepid)":     {Unknown, LockState{true, false, 7}, nil, 7, "", Gone},
		"free, other namespace, same boot":       {Foreign, LockState{true, false, 7}, nil, 7, proc.BootID(), Gone},
		"free, other machine":                    {Foreign, LockState{true, false, 7}, nil, 7, other, Foreign},
		"another lock file stands there: alive":  {Alive, LockState{true, false, 8}, nil, 7, "", Alive},
		"another lock file stands there: gone":   {Gone, LockState{true, true, 8}, nil, 7, "", Gone},
		"another lock file: cannot look":         {Unknown, LockState{true, false, 8}, nil, 7, "", Unknown},
		"no lock file, gone":                     {Gone, LockState{}, nil, 7, "", Gone},
		"no lock file, cannot look":              {Unknown, LockState{}, nil, 7, "", Unknown},
		"the lock cannot be probed, alive":       {Alive, LockState{}, os.ErrPermission, 7, "", Alive},
		"the lock cannot be probed, cannot look": {Unknown, LockState{}, os.ErrPermission, 7, "", Unknown},
		"an old record without an inode":         {Unknown, LockState{true, false, 7}, nil, 0, "", Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			m := Mark{LockInode: tc.named}
			m.BootID = tc.boot
			if got := m.weigh(tc.identity, tc.lock, tc.err); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestForeignRecords (T08): a record of another boot, machine or namespace, or of
// process 1, is judged without looking at the process that has the number now.
func TestForeignRecords(t *testing.T) {
	self, err := proc.Self()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*proc.Identity)
		want   proc.Verdict
	}{
		"this process":                  {func(*proc.Identity) {}, Alive},
		"another boot of this machine":  {func(id *proc.Identity) { id.BootID = "other" }, Gone},
		"another machine":               {func(id *proc.Identity) { id.BootID, id.MachineID = "other", "other" }, Foreign},
		"another namespace":             {func(id *proc.Identity) { id.PIDNamespace++ }, Foreign},
		"another start of this number":  {func(id *proc.Identity) { id.StartTicks++; id.PidfdInode = 0 }, Gone},
		"another pidfd of this number":  {func(id *proc.Identity) { id.PidfdInode++ }, goneIfPidfs(self)},
		"process 1 with another's time": {func(id *proc.Identity) { id.PID, id.PidfdInode = 1, 0 }, Gone},
		"no process at all":             {func(id *proc.Identity) { id.PID = 0 }, Gone},
		"a negative number":             {func(id *proc.Identity) { id.PID = -1 }, Gone},
	} {
		t.Run(name, func(t *testing.T) {
			id := self
			tc.change(&id)
			if got := id.Verdict(); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if err := id.Signal(0); (err == nil) != (tc.want == Alive) {
				t.Errorf("signal: %v", err)
			}
		})
	}
}

func goneIfPidfs(id proc.Identity) proc.Verdict {
	if id.PidfdInode == 0 {
		return Alive
	}
	return Gone
}

// generations publishes and dies many times, while readers look; it counts how
// often a living record was lost.
func generations(t *testing.T, read func(h Home)) (lost int) {
	t.Helper()
	h, err := OpenHome(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	dead := deadIdentity(t)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !stop.Load() {
				read(h)
			}
		})
	}
	const n = 300
	for i := range n {
		// A dead one's record lies there; its successor takes over.
		stale := Server{Mark: Mark{Identity: dead}, InstanceID: "dead", Port: i + 1}
		if err := h.PublishServer(stale); err != nil {
			t.Fatal(err)
		}
		lock, err := Acquire(h.DaemonLock())
		if err != nil {
			t.Fatal(err)
		}
		mark, err := lock.Mark()
		if err != nil {
			t.Fatal(err)
		}
		if err := h.PublishServer(Server{Mark: mark, InstanceID: "live", Port: i + 1}); err != nil {
			t.Fatal(err)
		}
		// Whatever the readers do now, the record stands.
		for range 20 {
			if _, err := h.ReadServer(); errors.Is(err, ErrNoServer) {
				lost++
				break
			}
		}
		lock.Release()
	}
	stop.Store(true)
	readers.Wait()
	return lost
}

func deadIdentity(t *testing.T) proc.Identity {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := proc.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	return id
}

// TestReadersNeverLoseALiveRecord: readers that race a re-registration sweep
// only the dead one's record.
func TestReadersNeverLoseALiveRecord(t *testing.T) {
	if lost := generations(t, func(h Home) { h.FindServer() }); lost > 0 {
		t.Errorf("%d living records were lost", lost)
	}
}

// TestMutantReadersLoseLiveRecords: readers that check and then unlink, as many
// programs do, lose living records; so the test above can fail.
func TestMutantReadersLoseLiveRecords(t *testing.T) {
	lost := generations(t, func(h Home) {
		if s, err := h.ReadServer(); err == nil && s.Judge(h.DaemonLock()) == Gone {
			os.Remove(h.ServerFile())
		}
	})
	if lost == 0 {
		t.Error("the mutant lost nothing: the race was not met")
	}
}

// TestUnreadableRecord: an unparsable record whose lock is free is garbage; one
// whose lock is held is a process still starting, and is left alone.
func TestUnreadableRecord(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "garbage": "\x00\x01{", "half": `{"pid":12,"sta`, "other": `[1,2]`} {
		t.Run(name, func(t *testing.T) {
			h, err := OpenHome(filepath.Join(t.TempDir(), "home"))
			if err != nil {
				t.Fatal(err)
			}
			lock, err := Acquire(h.DaemonLock())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(h.ServerFile(), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, v, err := h.FindServer(); v != Unknown || !errors.Is(err, ErrGarbage) {
				t.Errorf("held: %s, %v", v, err)
			}
			if _, err := os.Stat(h.ServerFile()); err != nil {
				t.Error("a starting process's record was removed")
			}
			lock.Release()
			if _, _, err := h.FindServer(); !errors.Is(err, ErrNoServer) {
				t.Errorf("free: %v", err)
			}
			if _, err := os.Stat(h.ServerFile()); err == nil {
				t.Error("garbage was left")
			}
		})
	}
}

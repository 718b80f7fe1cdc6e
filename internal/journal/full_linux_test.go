package journal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/castctl/castctl/wire"
)

// fullEnv says that the process runs in a mount namespace of its own, and where
// a small disk may be mounted.
const fullEnv = "JOURNAL_TEST_DISK"

// onASmallDisk runs the test on a disk of 1 MiB: in this process if it has a
// mount namespace of its own, else in another one. It needs root, or user
// namespaces.
func onASmallDisk(t *testing.T, test func(t *testing.T, disk string)) {
	if disk := os.Getenv(fullEnv); disk != "" {
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatalf("mount: %v", err)
		}
		test(t, disk)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), fullEnv+"="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	attr := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skipf("a mount namespace is not allowed here: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("it did not run:\n%s", out)
	}
}

// fill appends batches until the disk is full, and returns how many were
// acknowledged.
func fill(t *testing.T, j *Journal, size int) (n int) {
	t.Helper()
	payload := append(bytes.Repeat([]byte("x"), size-1), '\n')
	for {
		before := j.Last()
		err := j.AppendRaw(wire.EventOutput, payload)
		if errors.Is(err, ErrFull) && errors.Is(err, syscall.ENOSPC) {
			if got := j.Last(); got != before {
				t.Fatalf("the number %v was used for what was not written", got)
			}
			return n
		}
		if err != nil {
			t.Fatalf("append: %v, want %v", err, ErrFull)
		}
		n++
	}
}

// intact checks that a journal holds exactly its events, and no fragment.
func intact(t *testing.T, j *Journal, dir string) {
	t.Helper()
	last := j.Last().Seq
	if seqs, _ := whole(t, dir); !slices.Equal(seqs, counted(1, last)) {
		t.Fatalf("read %d events, want 1 to %d", len(seqs), last)
	}
	again, rec, err := Open(copyOut(t, dir), Config{Instance: instance, Boot: boot})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if rec.Torn != 0 {
		t.Fatalf("a fragment of %d bytes stands at the end", rec.Torn)
	}
}

// copyOut copies the journal from the full disk.
func copyOut(t *testing.T, dir string) string {
	to, err := os.MkdirTemp("", "journal")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(to) })
	for _, path := range files(t, dir) {
		put(t, filepath.Join(to, filepath.Base(path)), content(t, path))
	}
	return to
}

// modified is when the newest segment was changed.
func modified(t *testing.T, dir string) time.Time {
	t.Helper()
	in, err := os.Stat(lastFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return in.ModTime()
}

// ballast fills a part of the disk.
func ballast(t *testing.T, disk string, size int) string {
	t.Helper()
	path := filepath.Join(disk, "ballast")
	put(t, path, make([]byte, size))
	return path
}

func TestT27AFullDiskLosesNothingAcknowledgedAndIsRecoveredFrom(t *testing.T) {
	onASmallDisk(t, func(t *testing.T, disk string) {
		ballast := ballast(t, disk, 400<<10)
		dir := filepath.Join(disk, "journal")
		j, _ := open(t, dir, Config{Segment: 64 << 10})
		add(t, j, 10)
		if n := fill(t, j, 10_000); n < 30 || n > 70 {
			t.Fatalf("%d batches of 10 KB fit on the disk", n)
		}
		intact(t, j, dir)
		fill(t, j, 700) // what is smaller may still fit
		fill(t, j, 1)
		intact(t, j, dir)
		changed := modified(t, dir)
		for range 300 {
			if err := j.Append(true, note(0)); !errors.Is(err, ErrFull) {
				t.Fatalf("a durable append: %v, want %v", err, ErrFull)
			}
			fill(t, j, 5000)
		}
		intact(t, j, dir)
		if got := modified(t, dir); !got.Equal(changed) {
			t.Error("while the disk stays full fragments are written and cut off again")
		}

		// The same process goes on once there is room.
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		last := j.Last().Seq
		add(t, j, 5)
		if err := j.Append(true, note(0)); err != nil {
			t.Fatal(err)
		}
		if got := j.Last().Seq; got != last+6 {
			t.Errorf("the last number is %d, want %d", got, last+6)
		}
		intact(t, j, dir)
		fill(t, j, 10_000) // and it may become full again
		intact(t, j, dir)
	})
}

func TestT27SeveralEventsAreWrittenAllOrNone(t *testing.T) {
	onASmallDisk(t, func(t *testing.T, disk string) {
		dir := filepath.Join(disk, "journal")
		j, _ := open(t, dir, Config{})
		r := NewReader(dir)
		defer r.Close()
		seen := uint64(0)
		for {
			seqs, _ := all(t, r)
			seen += uint64(len(seqs))
			if seen != j.Last().Seq {
				t.Fatalf("a reader has seen %d events of %d", seen, j.Last().Seq)
			}
			var batch []*wire.Event
			for n := range 40 {
				text := strings.Repeat("x", 200)
				ev := wire.NewEvent(wire.EventToken, wire.OutputData{Text: &text, Lines: n})
				batch = append(batch, &ev)
			}
			size := j.size
			err := j.Append(false, batch...)
			if errors.Is(err, ErrFull) {
				in, err := os.Stat(lastFile(t, dir))
				if err != nil || in.Size() != size {
					t.Fatalf("the file has %d bytes, want %d", in.Size(), size)
				}
				if j.scarce {
					t.Error("it was found out by writing the first of them")
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		intact(t, j, dir)
	})
}

// TestT27WhoReadsBesideAFullDiskSeesOnlyWhatIsThere has readers at work while
// writes fail half-way and are cut off, over and over.
func TestT27WhoReadsBesideAFullDiskSeesOnlyWhatIsThere(t *testing.T) {
	onASmallDisk(t, func(t *testing.T, disk string) {
		dir := filepath.Join(disk, "journal")
		j, _ := open(t, dir, Config{Segment: 100_000})
		stop := make(chan struct{})
		var following sync.WaitGroup
		var seen []wire.Event
		following.Go(func() {
			r := NewReader(dir)
			defer r.Close()
			for last := false; ; {
				e, err := r.Next()
				switch {
				case err == nil:
					ev, err := e.Event()
					if err != nil {
						t.Errorf("event %d: %v", e.Seq, err)
						return
					}
					seen = append(seen, ev)
					continue
				case !errors.Is(err, io.EOF):
					t.Errorf("Next: %v", err)
					return
				case last:
					return
				}
				select {
				case <-stop:
					last = true
				default:
				}
			}
		})
		for round := range 15 {
			path := ballast(t, disk, 600<<10-round*20_000)
			for i := range 60 {
				size := 1 + i*331%20_000
				if err := j.AppendRaw(wire.EventOutput, bytes.Repeat([]byte{byte('a' + i%26)}, size)); err != nil && !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
				if err := j.Append(false, note(i), note(i), note(i)); err != nil && !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
			}
			os.Remove(path)
		}
		close(stop)
		following.Wait()
		_, want := whole(t, dir)
		if len(seen) != len(want) {
			t.Fatalf("a reader has seen %d events, there are %d", len(seen), len(want))
		}
		for i := range want {
			if seen[i].Seq != want[i].Seq || !bytes.Equal(seen[i].Data, want[i].Data) || !seen[i].Time.Equal(want[i].Time) {
				t.Fatalf("event %d was seen as %.200s, it is %.200s", want[i].Seq, seen[i].Data, want[i].Data)
			}
		}
		intact(t, j, dir)
	})
}

func TestT27OpeningOnAFullDiskLosesNothing(t *testing.T) {
	onASmallDisk(t, func(t *testing.T, disk string) {
		dir := filepath.Join(disk, "journal")
		j, _ := open(t, dir, Config{})
		fill(t, j, 10_000)
		fill(t, j, 100)
		last := j.Last()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(dir, Config{Instance: instance, Boot: "another boot"}); !errors.Is(err, ErrFull) {
			t.Errorf("another boot: %v, want %v", err, ErrFull)
		}
		j, rec := open(t, dir, Config{}) // the same one needs no room
		if j.Last() != last || rec.Torn != 0 {
			t.Errorf("recovered %+v with the last %v, want %v", rec, j.Last(), last)
		}
		intact(t, j, dir)
		// A torn tail is cut off on a full disk too.
		j.Close()
		path := lastFile(t, dir)
		if err := os.Truncate(path, int64(len(content(t, path))-10)); err != nil {
			t.Fatal(err)
		}
		j, rec = open(t, dir, Config{})
		if rec.Torn == 0 || j.Last().Seq != last.Seq-1 {
			t.Errorf("recovered %+v with the last %v", rec, j.Last())
		}
		intact(t, j, dir)
	})
}

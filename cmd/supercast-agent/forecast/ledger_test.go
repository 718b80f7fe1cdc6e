package forecast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

// filled makes a ledger with something in it and returns its path.
func filled(t testing.TB, events int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	a := &forecast.Agent{Ledger: durable(t, path)}
	for i := range events {
		id := fmt.Sprintf("event-%04d", i)
		must(t, a, "c"+id, forecast.EventCreate{EventID: id, Question: strings.Repeat("Why? ", 40)})
		must(t, a, "f"+id, forecast.ForecastRecord{EventID: id, Forecaster: "ann", Probability: 0.25})
	}
	return path
}

// flocked holds a kind of lock on a file, as another process would.
func flocked(t *testing.T, path string, kind int) (release func()) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), kind|unix.LOCK_NB); err != nil {
		t.Fatalf("%s is locked: %v", path, err)
	}
	return func() { f.Close() }
}

var create = forecast.EventCreate{EventID: "new", Question: "?"}

// A command waits five seconds for the lock and no longer.
func TestLockWait(t *testing.T) {
	path := filled(t, 1)
	for _, c := range []struct {
		name    string
		held    int
		freed   time.Duration // after which the lock is free
		command wire.Command
		code    wire.Code
		waited  time.Duration // at least, and at most a poll more
	}{
		{"a change, never freed", unix.LOCK_EX, time.Hour, create, wire.Unavailable, forecast.LockWait},
		{"a read, never freed", unix.LOCK_EX, time.Hour, forecast.EventList{}, wire.Unavailable, forecast.LockWait},
		{"a read beside a reader", unix.LOCK_SH, time.Hour, forecast.EventList{}, "", 0},
		{"a change beside a reader", unix.LOCK_SH, time.Hour, create, wire.Unavailable, forecast.LockWait},
		{"a calculation needs no ledger", unix.LOCK_EX, time.Hour, forecast.BinaryScore{Probability: 0.5}, "", 0},
		{"a read, freed in time", unix.LOCK_EX, 4900 * time.Millisecond, forecast.EventList{}, "", 4900 * time.Millisecond},
		{"a change, freed in time", unix.LOCK_EX, 4900 * time.Millisecond, create, "", 4900 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &forecast.Agent{Ledger: durable(t, path)}
				release := flocked(t, path, c.held)
				defer release()
				time.AfterFunc(c.freed, release)
				began := time.Now()
				answer := call(t, a, "x", c.command)
				waited := time.Since(began)
				if c.code == "" && answer.Error != nil || c.code != "" && (answer.Error == nil || answer.Error.Code != c.code || answer.Error.Delivery != wire.NotSent) {
					t.Errorf("%s %+v, want %q", answer.Result, answer.Error, c.code)
				}
				if waited < c.waited || waited > c.waited+10*time.Millisecond {
					t.Errorf("waited %v, want %v", waited, c.waited)
				}
			})
		})
	}
}

// A process that is ending waits for nobody.
func TestLockWaitEnds(t *testing.T) {
	path := filled(t, 1)
	synctest.Test(t, func(t *testing.T) {
		a := &forecast.Agent{Ledger: durable(t, path)}
		defer flocked(t, path, unix.LOCK_EX)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		line, err := wire.Encode(wire.Request{ID: "x", Command: create})
		if err != nil {
			t.Fatal(err)
		}
		answer := a.Answer(ctx, line)
		if answer.Error == nil || answer.Error.Code != wire.Unavailable || answer.Error.Delivery != wire.NotSent || time.Since(began) != time.Second {
			t.Errorf("%+v after %v", answer.Error, time.Since(began))
		}
	})
}

// What is committed to a file that is no longer the ledger would be lost.
func TestReplacedWhileWaiting(t *testing.T) {
	path := filled(t, 1)
	other := filled(t, 3)
	synctest.Test(t, func(t *testing.T) {
		a := &forecast.Agent{Ledger: durable(t, path)}
		release := flocked(t, path, unix.LOCK_EX)
		time.AfterFunc(time.Second, func() {
			if err := os.Rename(other, path); err != nil {
				t.Error(err)
			}
			release()
		})
		must(t, a, "x", create)
		page := decode[forecast.EventPage](t, must(t, a, "q", forecast.EventList{}))
		if len(page.Events) != 4 {
			t.Errorf("%d events: the change went to the file that was replaced", len(page.Events))
		}
	})
}

// A ledger that was taken away is not replaced by a new one.
func TestRemovedWhileServing(t *testing.T) {
	path := filled(t, 1)
	a := &forecast.Agent{Ledger: durable(t, path)}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, c := range []wire.Command{create, forecast.EventList{}} {
		answer := call(t, a, "x", c)
		if answer.Error == nil || answer.Error.Code != wire.Unavailable || answer.Error.Delivery != wire.NotSent {
			t.Errorf("%s %+v", answer.Result, answer.Error)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is back: %v", err)
	}
}

// Many processes that find no ledger make one, and leave nothing else.
func TestCreatedOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			l, err := forecast.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			a := &forecast.Agent{Ledger: l}
			must(t, a, fmt.Sprint(i), forecast.EventCreate{EventID: fmt.Sprint(i), Question: "?"})
		})
	}
	all.Wait()
	page := decode[forecast.EventPage](t, must(t, &forecast.Agent{Ledger: durable(t, path)}, "x", forecast.EventList{}))
	if len(page.Events) != 16 {
		t.Errorf("%d events, want 16: a second ledger took the first one's place", len(page.Events))
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// A file that is not a whole ledger is refused with its reason and left as it
// is.
func TestNotALedger(t *testing.T) {
	whole, err := os.ReadFile(filled(t, 20))
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "registry.db")
	db, err := bbolt.Open(other, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("meta")); return err }), db.Close()); err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"empty", nil, forecast.ErrEmpty},
		{"one byte", []byte("x"), forecast.ErrForeign},
		{"text", []byte(strings.Repeat("not a database\n", 9000)), forecast.ErrForeign},
		{"zeros", make([]byte, 1<<16), forecast.ErrForeign},
		{"another database", []byte("SQLite format 3\x00" + strings.Repeat("\x00", 8192)), forecast.ErrForeign},
		{"a bbolt file of another program", foreign, forecast.ErrForeign},
		{"cut to the first meta page", whole[:4096], forecast.ErrDamaged},
		{"cut to both meta pages", whole[:8192], forecast.ErrDamaged},
		{"cut in the middle", whole[:len(whole)/2], forecast.ErrDamaged},
		{"both meta pages overwritten", append(bytes.Repeat([]byte{0xff}, 8192), whole[8192:]...), forecast.ErrForeign},
		{"both checksums wrong", flip(whole, 16+56, 4096+16+56), forecast.ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			if err := os.WriteFile(path, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := forecast.Open(path)
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path)) {
				t.Errorf("%q is not one line with the path", err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, c.data) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}

func flip(data []byte, at ...int) []byte {
	out := bytes.Clone(data)
	for _, i := range at {
		out[i] ^= 0x10
	}
	return out
}

// A process that serves and finds its ledger cut short answers so, whatever the
// length, and goes on when the ledger is whole again.
func TestTruncatedWhileServing(t *testing.T) {
	path := filled(t, 20)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a := &forecast.Agent{Ledger: durable(t, path)}
	damaged := 0
	for size := 0; size < len(whole); size += 1000 {
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		for _, c := range []wire.Command{forecast.EventList{}, create} {
			answer := call(t, a, "x", c)
			if answer.Error == nil {
				continue // what is missing was never used
			}
			damaged++
			if answer.Error.Code != wire.Unavailable || answer.Error.Delivery != wire.NotSent {
				t.Errorf("%d bytes: %+v", size, answer.Error)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, whole[:size]) {
				t.Errorf("%d bytes: the file was changed (%v)", size, err)
			}
		}
	}
	if damaged < 50 {
		t.Errorf("only %d commands met damage: the test proves little", damaged)
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, a, "x", create)
}

// Whatever is overwritten in a ledger, the process lives, answers, and gives
// the lock back.
func TestGarbageInside(t *testing.T) {
	path := filled(t, 40)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rounds := 400
	if testing.Short() || raceEnabled {
		rounds = 60
	}
	r := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for round := range rounds {
		data := scar(r, whole)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := forecast.Open(path)
		if err != nil {
			refused++
			if after, rerr := os.ReadFile(path); rerr != nil || !bytes.Equal(after, data) {
				t.Errorf("round %d: refused with %v, and changed", round, err)
			}
			flocked(t, path, unix.LOCK_EX)()
			continue
		}
		a := &forecast.Agent{Ledger: l}
		for i, c := range []wire.Command{forecast.Leaderboard{}, create, forecast.ForecastList{EventID: "event-0007"}, forecast.EventVoid{EventID: "event-0030", Reason: "-"}, forecast.EventList{Limit: 1000}} {
			if answer := call(t, a, fmt.Sprint("x", i), c); answer.Error != nil {
				refused++
			}
			flocked(t, path, unix.LOCK_EX)()
		}
	}
	if refused < rounds/4 {
		t.Errorf("only %d of %d rounds met damage", refused, rounds)
	}
}

// scar overwrites some of a copy of data: a bit, a stretch, or a page by
// another page.
func scar(r *rand.Rand, data []byte) []byte {
	out := bytes.Clone(data)
	const page = 4096
	for range 1 + r.IntN(4) {
		at := r.IntN(len(out))
		switch r.IntN(4) {
		case 0:
			out[at] ^= 1 << r.IntN(8)
		case 1:
			for i := at; i < min(at+r.IntN(600), len(out)); i++ {
				out[i] = byte(r.Uint32())
			}
		case 2:
			clear(out[at:min(at+r.IntN(page), len(out))])
		case 3:
			from, to := r.IntN(len(out)/page)*page, r.IntN(len(out)/page)*page
			copy(out[to+16:to+page], out[from+16:from+page]) // under its own page number
		}
	}
	return out
}

// Bytes that made bbolt fault are not mapped again and again.
func TestDamageIsRemembered(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts mappings in /proc")
	}
	path := filled(t, 40)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a := &forecast.Agent{Ledger: durable(t, path)}
	for at := 2 * 4096; at < len(data); at += 4096 {
		if kind := data[at+8]; kind == 1 || kind == 2 { // of a tree; the list of free pages is looked at before
			data[at+8] = 0xee // no such kind
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	mapped := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(maps), path)
	}
	var messages []string
	for range 20 {
		answer := call(t, a, "x", forecast.EventList{})
		if answer.Error == nil {
			t.Fatalf("%s", answer.Result)
		}
		messages = append(messages, answer.Error.Message)
	}
	if messages[0] != messages[19] || !strings.Contains(messages[0], "damaged") {
		t.Errorf("%q, later %q", messages[0], messages[19])
	}
	if n := mapped(); n > 1 {
		t.Errorf("%d mappings are left behind", n)
	}
}

// A change and its receipt are one transaction, and nothing else is one: not a
// retry, not a failure, not a read.
func TestTransactions(t *testing.T) {
	path := filled(t, 1)
	a := &forecast.Agent{Ledger: durable(t, path)}
	last := func() (id int) {
		t.Helper()
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		err = db.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	before := last()
	for _, c := range []struct {
		name    string
		id      string
		command wire.Command
		commits int
	}{
		{"a creation", "1", create, 1},
		{"its retry", "1", create, 0},
		{"a conflict of ids", "1", forecast.EventVoid{EventID: "new", Reason: "-"}, 0},
		{"a conflict of events", "2", create, 0},
		{"a forecast", "3", forecast.ForecastRecord{EventID: "new", Forecaster: "ann", Probability: 0.5}, 1},
		{"a read", "4", forecast.EventList{}, 0},
		{"a resolution", "4", forecast.EventResolve{EventID: "new"}, 1},
		{"a second one", "5", forecast.EventResolve{EventID: "new"}, 0},
		{"a calculation", "6", forecast.BinaryScore{Probability: 0.5}, 0},
	} {
		call(t, a, c.id, c.command)
		if got := last() - before; got != c.commits {
			t.Errorf("%s took %d transactions, want %d", c.name, got, c.commits)
		}
		before = last()
	}
}

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

// dieAt has a process kill itself at a crash point.
func dieAt(point string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "CAST_CRASHPOINT="+point) }
}

// storedReceipt reads a receipt from the ledger itself, or returns "".
func storedReceipt(t testing.TB, db, id string) (receipt string) {
	t.Helper()
	b, err := bbolt.Open(db, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = b.View(func(tx *bbolt.Tx) error {
		if v := tx.Bucket([]byte("receipts")).Get([]byte(id)); v != nil {
			receipt = string(v[sha256.Size:])
		}
		return nil
	})
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	return receipt
}

// sound checks every page of the ledger.
func sound(t testing.TB, db string) {
	t.Helper()
	b, err := bbolt.Open(db, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	err = b.View(func(tx *bbolt.Tx) error {
		var all []error
		for err := range tx.Check() {
			all = append(all, err)
		}
		return errors.Join(all...)
	})
	if err != nil {
		t.Error(err)
	}
}

// Each kind of change, killed before its commit and after it, and the retry
// killed too: what was not committed is executed once, what was is answered
// with the receipt in the ledger, byte for byte.
func TestMurder(t *testing.T) {
	path, db := mortal(t), newLedger(t)
	commands := []string{
		createRain, annOnRain, `{"op":"event_resolve","event_id":"rain","outcome":true}`,
		`{"op":"event_create","event_id":"snow","question":"?"}`, `{"op":"event_void","event_id":"snow","reason":"July"}`,
	}
	killed := func(point, line string) {
		t.Helper()
		k := begin(t, path, dieAt(point), "--db", db)
		k.send(line)
		if f := k.end(); f.code != -1 || f.stdout != "" || !k.cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("at %s: %+v", point, f)
		}
	}
	for i, c := range commands {
		id := fmt.Sprint("m-", i)
		killed("ledger.commit", request(id, c))
		if got := storedReceipt(t, db, id); got != "" {
			t.Errorf("%s is committed before its commit: %s", c, got)
		}
		killed("ledger.commit", request(id, c))
		killed("ledger.answer", request(id, c))
		original := storedReceipt(t, db, id)
		for range 2 {
			if got := serve(t, lines(request(id, c)), "--db", db).answers[0].receipt(t); got != original {
				t.Errorf("%s, want the original %s", got, original)
			}
		}
		// A retry commits nothing, so it passes no crash point.
		k := begin(t, path, dieAt("ledger.commit"), "--db", db)
		if got := k.ask(request(id, c)).receipt(t); got != original {
			t.Errorf("%s, want the original %s", got, original)
		}
		k.hangUp()
	}
	f := serve(t, lines(request("x", getRain), request("y", `{"op":"event_list"}`)), "--db", db)
	if e := result[forecast.EventFound](t, f.answers[0]).Event; e.Forecasts != 1 || e.Status != forecast.StatusResolved {
		t.Errorf("%s", f.answers[0].line)
	}
	if p := result[forecast.EventPage](t, f.answers[1]); len(p.Events) != 2 {
		t.Errorf("%s", f.answers[1].line)
	}
	sound(t, db)
}

// Four processes at one ledger: ids of their own, ids that all use for the same
// change, and ids that each uses for another one. Nothing is lost, nothing is
// doubled, and of a clash one wins.
func TestFourProcesses(t *testing.T) {
	const workers, rounds = 4, 25
	db := newLedger(t)
	serve(t, lines(request("create", createRain)), "--db", db)
	record := func(who string, p float64) string {
		return fmt.Sprintf(`{"op":"forecast_record","event_id":"rain","forecaster":%q,"probability":%v}`, who, p)
	}
	var all [workers][]answer
	var running sync.WaitGroup
	for w := range workers {
		k := begin(t, agent(t), nil, "--db", db)
		running.Go(func() {
			for i := range rounds {
				for _, line := range []string{
					request(fmt.Sprint("own-", w, "-", i), record(fmt.Sprint("own-", w), 0.1)),
					request(fmt.Sprint("same-", i), record("same", 0.2)),
					request(fmt.Sprint("clash-", i), record("clash", float64(w)/10)),
				} {
					k.send(line)
					out, err := k.out.ReadString('\n')
					if err != nil {
						t.Error(err)
						return
					}
					r, err := wire.DecodeResponse([]byte(out))
					if err != nil {
						t.Error(err)
						return
					}
					all[w] = append(all[w], answer{r, out})
				}
			}
		})
	}
	running.Wait()
	for w := range workers {
		if len(all[w]) != 3*rounds {
			t.Fatalf("worker %d has %d answers", w, len(all[w]))
		}
	}
	for i := range rounds {
		agreed(t, i, all[:])
	}
	counted := map[string]int{}
	page := result[forecast.ForecastPage](t, serve(t, lines(request("x", `{"op":"forecast_list","event_id":"rain","limit":1000}`)), "--db", db).answers[0])
	for n, f := range page.Forecasts {
		counted[strings.TrimRight(f.Forecaster, "-0123456789")]++
		if f.Number != int64(n+1) {
			t.Errorf("forecast %d has the number %d", n+1, f.Number)
		}
	}
	if counted["own"] != workers*rounds || counted["same"] != rounds || counted["clash"] != rounds {
		t.Errorf("%v", counted)
	}
	sound(t, db)
}

// agreed checks one round of all workers: their own change, the one that all
// made, and the one for which they fought.
func agreed(t *testing.T, round int, all [][]answer) {
	t.Helper()
	winners := 0
	for _, answers := range all {
		own, same, clash := answers[3*round], answers[3*round+1], answers[3*round+2]
		if own.Error != nil || same.Error != nil {
			t.Errorf("%s%s", own.line, same.line)
			continue
		}
		if first := all[0][3*round+1]; same.receipt(t) != first.receipt(t) {
			t.Errorf("two receipts for one change:\n%s%s", first.line, same.line)
		}
		if clash.Error == nil {
			winners++
		} else if clash.code() != wire.Conflict {
			t.Errorf("%s", clash.line)
		}
	}
	if winners != 1 {
		t.Errorf("round %d has %d winners", round, winners)
	}
}

// Asked to go, the program goes between two requests, with the code that its
// requests have earned.
func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		for line, want := range map[string]int{request("1", score): 0, request("1", getRain): 1} {
			k := begin(t, agent(t), nil, "--memory")
			k.ask(line)
			if err := k.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if f := k.end(); f.code != want || f.stdout != "" || f.stderr != "" {
				t.Errorf("%v after %s: %+v, want %d", sig, line, f, want)
			}
		}
	}
}

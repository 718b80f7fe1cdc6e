package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castctl/castctl/cmd/supercast-agent/forecast"
	"github.com/castctl/castctl/wire"
)

// What the text says about ids, retries and the client: see sentences.

func idRules(t *testing.T) {
	for id, ok := range map[string]bool{
		"": false, " ": false, "\t\r\n": false, "\u00a0\u2003": false, "x": true, strings.Repeat("x", 200): true, strings.Repeat("x", 201): false,
		strings.Repeat("é", 100): true, strings.Repeat("é", 101): false, strings.Repeat("😀", 50) + "x": false,
	} {
		a := serve(t, lines(request(id, score)), "--memory").answers[0]
		if ok != (a.Error == nil) || !ok && (a.ID != nil || a.Error.Details.Pointer != "/id") {
			t.Errorf("id %q: %s", id, a.line)
		}
	}
}

func correlationOnly(t *testing.T) {
	f := serve(t, lines(
		request("x", score), request("x", `{"op":"binary_score","probability":0.9,"outcome":false}`), request("x", `{"op":"event_list"}`),
		request("x", `{"op":"leaderboard"}`), request("x", createRain), request("x", score), request("x", getRain),
	), "--db", newLedger(t))
	if f.code != 0 {
		t.Errorf("%s", f.stdout)
	}
	if one, other := f.answers[0].line, f.answers[1].line; one == other {
		t.Errorf("the second score is the first one's: %s", other)
	}
}

func databaseWideKey(t *testing.T) {
	db := newLedger(t)
	first := serve(t, lines(request("k", createRain), request("fails", createRain), request("fails", annOnRain)), "--db", db)
	if first.answers[1].code() != wire.Conflict || first.answers[2].Error != nil {
		t.Errorf("a failure burned its id: %s", first.stdout)
	}
	second := serve(t, lines(request("k", annOnRain), request("k", createRain), request("fails", annOnRain)), "--db", db)
	if second.answers[0].code() != wire.Conflict || second.answers[0].Error.Details.Pointer != "/id" {
		t.Errorf("the id of another operation: %s", second.answers[0].line)
	}
	if got, want := second.answers[1].receipt(t), first.answers[0].receipt(t); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := result[forecast.ForecastRecorded](t, second.answers[2]); got.Event.Forecasts != 1 {
		t.Errorf("recorded twice: %s", second.answers[2].line)
	}
}

func newIDForNewMutation(t *testing.T) {
	f := serve(t, lines(request("1", createRain), request("2", annOnRain), request("3", annOnRain), request("3", annOnRain)), "--db", newLedger(t))
	if got := result[forecast.ForecastRecorded](t, f.answers[3]); got.Event.Forecasts != 2 {
		t.Errorf("%s", f.stdout)
	}
}

func lostResponse(t *testing.T) {
	db := newLedger(t)
	serve(t, lines(request("0", createRain)), "--db", db)
	// Nobody reads the answer, which may or may not have been written when the
	// process dies.
	k := begin(t, agent(t), nil, "--db", db)
	k.send(request("1", annOnRain))
	k.cmd.Process.Kill()
	k.end()
	again := serve(t, lines(request("1", annOnRain), request("1", annOnRain)), "--db", db)
	if got := result[forecast.ForecastRecorded](t, again.answers[1]); got.Event.Forecasts != 1 {
		t.Errorf("%s", again.stdout)
	}
}

func originalReceipt(t *testing.T) {
	db := newLedger(t)
	commands := map[string]string{
		"1": createRain, "2": annOnRain, "3": `{"op":"event_resolve","event_id":"rain","outcome":false}`,
		"4": `{"op":"event_create","event_id":"snow","question":"?"}`, "5": `{"op":"event_void","event_id":"snow","reason":"July"}`,
	}
	var input []string
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		input = append(input, request(id, commands[id]))
	}
	first := serve(t, lines(input...), "--db", db)
	slices.Reverse(input)
	again := serve(t, lines(input...), "--db", db)
	slices.Reverse(again.answers)
	for i, a := range first.answers {
		receipt := a.receipt(t)
		if got := again.answers[i].receipt(t); got != receipt {
			t.Errorf("%s, later %s", receipt, got)
		}
		if id := fmt.Sprint(i + 1); !strings.HasPrefix(receipt, `{"id":"`+id+`","op":"`) || !strings.Contains(receipt, `"committed_at":"20`) || !strings.HasSuffix(receipt, `Z"}`) {
			t.Errorf("%s", receipt)
		}
	}
	// It is what was first, the facts around it are what is now.
	if got := result[forecast.EventChanged](t, again.answers[0]); got.Event.Status != forecast.StatusResolved {
		t.Errorf("%s", again.answers[0].line)
	}
}

func spellingIsNoDifference(t *testing.T) {
	spellings := []string{
		`{"version":1,"id":"1","command":` + annOnRain + `}`,
		` { "command" : {"probability":0.3,"forecaster":"ann","event_id":"rain","op":"forecast_record"} , "id":"1" , "version":1 } `,
		"{\"version\":1.0,\r\"id\":\"\\u0031\",\t\"command\":{\"op\":\"forecast_record\",\"\\u0065vent_id\":\"r\\u0061in\",\"forecaster\":\"ann\",\"probability\":3e-1}}",
	}
	db := newLedger(t)
	serve(t, lines(request("0", createRain)), "--db", db)
	var receipts []string
	for _, line := range spellings {
		receipts = append(receipts, serve(t, lines(line), "--db", db).answers[0].receipt(t))
	}
	if got := slices.Compact(slices.Clone(receipts)); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func conflict(t *testing.T) {
	db := newLedger(t)
	f := serve(t, lines(request("0", createRain), request("1", annOnRain)), "--db", db)
	for _, other := range []string{
		strings.Replace(annOnRain, "0.3", "0.30000000000000004", 1), strings.Replace(annOnRain, "ann", "Ann", 1), strings.Replace(annOnRain, "rain", "snow", 1),
		`{"op":"event_resolve","event_id":"rain","outcome":true}`,
	} {
		a := serve(t, lines(request("1", other)), "--db", db).answers[0]
		if a.code() != wire.Conflict || a.id() != "1" || a.Error.Delivery != wire.NotSent {
			t.Errorf("%s\n%s", other, a.line)
		}
	}
	again := serve(t, lines(request("1", annOnRain), request("x", getRain)), "--db", db)
	if again.answers[0].receipt(t) != f.answers[1].receipt(t) {
		t.Error("the receipt changed")
	}
	if got := result[forecast.EventFound](t, again.answers[1]); got.Event.Forecasts != 1 || got.Event.Status != forecast.StatusOpen {
		t.Errorf("a conflict changed something: %s", again.answers[1].line)
	}
}

func coordinated(t *testing.T) {
	k := begin(t, agent(t), nil, "--db", newLedger(t))
	k.ask(request("create", createRain))
	for i := range 50 {
		id := fmt.Sprint(i)
		if a := k.ask(request(id, annOnRain)); a.id() != id || a.Error != nil {
			t.Fatalf("%s", a.line)
		}
	}
	// Written ahead, they are answered in their order.
	for i := range 50 {
		k.send(request(fmt.Sprint("ahead-", i), score))
	}
	for i := range 50 {
		if a := k.receive(); a.id() != fmt.Sprint("ahead-", i) {
			t.Fatalf("%d: %s", i, a.line)
		}
	}
}

func writtenIsNotCommitted(t *testing.T) {
	path, db := mortal(t), newLedger(t)
	k := begin(t, path, dieAt("ledger.commit"), "--db", db)
	k.send(request("1", createRain)) // succeeds
	if f := k.end(); f.code != -1 || f.stdout != "" {
		t.Fatalf("%+v", f)
	}
	if a := serve(t, lines(request("x", getRain)), "--db", db).answers[0]; a.code() != wire.NotFound {
		t.Errorf("%s", a.line)
	}
}

func confirmID(t *testing.T) {
	input := []string{request("a", createRain), request("b", createRain), request("c", getRain), "x", request("d", `{"op":"fly"}`)}
	for i, a := range serve(t, lines(input...), "--memory").answers {
		if (a.Result == nil) == (a.Error == nil) {
			t.Errorf("%s", a.line)
		}
		if want := []string{"a", "b", "c", "null", "d"}[i]; a.id() != want {
			t.Errorf("%s, want the id %s", a.line, want)
		}
	}
}

func retryAfterFailure(t *testing.T) {
	path, db := mortal(t), newLedger(t)
	k := begin(t, path, dieAt("ledger.answer"), "--db", db)
	k.send(request("1", createRain))
	if f := k.end(); f.code != -1 || f.stdout != "" {
		t.Fatalf("%+v", f)
	}
	original := storedReceipt(t, db, "1")
	again := serve(t, lines(request("1", createRain), request("2", createRain)), "--db", db)
	if got := again.answers[0].receipt(t); got != original {
		t.Errorf("%s, want the original %s", got, original)
	}
	if again.answers[1].code() != wire.Conflict {
		t.Errorf("%s", again.answers[1].line)
	}
}

func oneProcessPerWorker(t *testing.T) {
	db := newLedger(t)
	serve(t, lines(request("create", createRain)), "--db", db)
	var workers sync.WaitGroup
	for w := range 3 {
		k := begin(t, agent(t), nil, "--db", db)
		workers.Go(func() {
			for i := range 10 {
				id := fmt.Sprint(w, "-", i)
				k.send(request(id, annOnRain))
				line, err := k.out.ReadString('\n')
				if err != nil || !strings.HasPrefix(line, `{"version":1,"id":"`+id+`","result":{`) {
					t.Errorf("%s: %s %v", id, line, err)
				}
			}
		})
	}
	workers.Wait()
	got := result[forecast.EventFound](t, serve(t, lines(request("x", getRain)), "--db", db).answers[0])
	if got.Event.Forecasts != 30 {
		t.Errorf("%d forecasts, want 30", got.Event.Forecasts)
	}
}

func contention(t *testing.T) {
	// One process, written to from many places: each line gets its answer, in
	// the order in which the lines arrived. Telling whose is whose is the
	// client's affair, and the ids are what it has for that.
	k := begin(t, agent(t), nil, "--memory")
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 25 {
				k.send(request(fmt.Sprint(w, "-", i), score))
			}
		})
	}
	seen := map[string]int{}
	for range 100 {
		seen[k.receive().id()]++
	}
	writers.Wait()
	if len(seen) != 100 {
		t.Errorf("%d ids, want 100", len(seen))
	}
	if f := k.hangUp(); f.stdout != "" {
		t.Errorf("%q is too much", f.stdout)
	}
}

func demo(t *testing.T) finished {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: there is no python3 to run the demo with")
	}
	return wait(t, exec.Command(python, "demo.py", agent(t), newLedger(t)))
}

func demoBatch(t *testing.T) {
	if f := demo(t); f.code != 0 || !strings.Contains(f.stdout, "3 requests, 3 answers, ids in order\n") {
		t.Errorf("%+v", f)
	}
}

func demoRetry(t *testing.T) {
	if f := demo(t); f.code != 0 || !strings.HasSuffix(f.stdout, "retried after a restart: the first receipt, one forecast\n") {
		t.Errorf("%+v", f)
	}
}

func demoIsNoBinding(t *testing.T) {
	source, err := os.ReadFile("demo.py")
	if err != nil {
		t.Fatal(err)
	}
	var imports []string
	for line := range strings.Lines(string(source)) {
		if strings.HasPrefix(line, "import ") || strings.HasPrefix(line, "from ") {
			imports = append(imports, strings.Fields(line)[1])
		}
	}
	if diff := cmp.Diff([]string{"json", "subprocess", "sys", "tempfile", "pathlib"}, imports); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

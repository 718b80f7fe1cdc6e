package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/castctl/castctl/wire"
)

// What the text says about lines, ends and modes: see sentences.

// padded makes a line of exactly n bytes with its newline.
func padded(line string, n int) string { return line + strings.Repeat(" ", n-len(line)-1) + "\n" }

func lineLimit(t *testing.T) {
	const limit = 1 << 20
	f := serve(t, padded(request("a", createRain), limit)+padded(request("b", getRain), limit), "--memory")
	if f.code != 0 || len(f.answers) != 2 {
		t.Errorf("at the limit: %d %s", f.code, f.stdout)
	}
	f = serve(t, padded(request("a", createRain), limit+1)+lines(request("b", getRain)), "--memory")
	if f.code != 1 || len(f.answers) != 1 || f.answers[0].code() != wire.RequestTooLarge {
		t.Errorf("one over the limit: %d %s", f.code, f.stdout)
	}
	// Where the last newline is missing it has its place all the same.
	f = serve(t, strings.TrimSuffix(padded(request("a", createRain), limit), "\n"), "--memory")
	if f.code != 0 || len(f.answers) != 1 {
		t.Errorf("at the limit without its newline: %d %s", f.code, f.stdout)
	}
	// Blank or not, it is a line.
	if f = serve(t, padded("", limit+1)+lines(request("b", score)), "--memory"); f.code != 1 || len(f.answers) != 1 {
		t.Errorf("blank and over the limit: %d %s", f.code, f.stdout)
	}
}

func oversized(t *testing.T) {
	db := newLedger(t)
	f := serve(t, lines(request("1", score))+padded(request("2", createRain), 3<<20)+lines(request("3", createRain)), "--db", db)
	if len(f.answers) != 2 || f.code != 1 || f.stderr != "" {
		t.Fatalf("%+v", f)
	}
	if a := f.answers[1]; a.code() != wire.RequestTooLarge || a.ID != nil || a.Error.Delivery != wire.NotSent {
		t.Errorf("%s", a.line)
	}
	if a := serve(t, lines(request("4", getRain)), "--db", db).answers[0]; a.code() != wire.NotFound {
		t.Errorf("its command, or the one after it, was executed: %s", a.line)
	}
	// The answer does not wait for the end of the line, which may never come.
	k := begin(t, agent(t), nil, "--memory")
	go k.in.Write(bytes.Repeat([]byte("x"), 1<<20))
	if a := k.receive(); a.code() != wire.RequestTooLarge {
		t.Errorf("%s", a.line)
	}
	if f := k.end(); f.code != 1 || f.stdout != "" {
		t.Errorf("%+v", f)
	}
}

func blankLines(t *testing.T) {
	f := serve(t, "\n\r\n   \n\t\n"+request("x", score)+"\n\n \r\n\n", "--memory")
	if len(f.answers) != 1 || f.code != 0 {
		t.Errorf("%+v", f)
	}
	if f = serve(t, "\n\n \n", "--memory"); f.stdout != "" || f.code != 0 {
		t.Errorf("%+v", f)
	}
	// These are not blank.
	if f = serve(t, "\u0085\n\u2028\n\v\n\x00\n", "--memory"); len(f.answers) != 4 || f.code != 1 {
		t.Errorf("%+v", f)
	}
}

func processingContinues(t *testing.T) {
	bad := []string{
		`nonsense`, `{}`, `{"version":2,"id":"x","command":` + score + `}`, request("x", `{"op":"fly"}`), request("x", `{"op":"event_get"}`), request("x", getRain),
		request("x", `{"op":"event_resolve","event_id":"none","outcome":true}`), request("x", `{"op":"binary_score","probability":1,"outcome":false}`),
	}
	var input []string
	for i, line := range bad {
		input = append(input, line, request(fmt.Sprint(i), score))
	}
	f := serve(t, lines(input...), "--memory")
	if len(f.answers) != len(input) || f.code != 1 {
		t.Fatalf("%d answers to %d lines, exit %d", len(f.answers), len(input), f.code)
	}
	for i, a := range f.answers {
		if good := i%2 == 1; good != (a.Error == nil) {
			t.Errorf("%s\n%s", input[i], a.line)
		}
	}
}

func exitZero(t *testing.T) {
	for _, input := range []string{"", "\n\n", lines(request("1", score)), lines(request("1", createRain), request("1", createRain), request("2", getRain))} {
		if f := serve(t, input, "--db", newLedger(t)); f.code != 0 || f.stderr != "" {
			t.Errorf("%q: %+v", input, f)
		}
	}
}

func exitOne(t *testing.T) {
	for _, input := range []string{"x\n", lines(request("1", getRain)), lines("x", request("1", score)), lines(request("1", score), "x"), padded("", 1<<20+1)} {
		if f := serve(t, input, "--db", newLedger(t)); f.code != 1 || f.stderr != "" {
			t.Errorf("%.40q: exit %d, %q", input, f.code, f.stderr)
		}
	}
}

func exitTwo(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"--db"},
		{"--db", ""},
		{"--db", newLedger(t), "--memory"},
		{"--fly"},
		{"--memory", "more"},
		{"--memory=perhaps"},
		{"--db", filepath.Join(t.TempDir(), "no", "ledger.db")},
		{"--db", t.TempDir()},
		{"--db", "/dev/null"},
	} {
		if f := serve(t, lines(request("1", score)), args...); f.code != 2 || f.stdout != "" {
			t.Errorf("%q: %+v", args, f)
		}
	}
	// The reader of stdout goes away.
	k := begin(t, agent(t), nil, "--memory")
	k.ask(request("1", score))
	k.closeStdout()
	k.send(request("2", score))
	if f := k.end(); f.code != 2 || !strings.HasPrefix(f.stderr, "supercast-agent: stdout: ") {
		t.Errorf("%+v", f)
	}
	// stdin is not to be read.
	folder, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	cmd := exec.Command(agent(t), "--memory")
	cmd.Stdin = folder
	if f := wait(t, cmd); f.code != 2 || !strings.HasPrefix(f.stderr, "supercast-agent: stdin: ") {
		t.Errorf("%+v", f)
	}
}

func stdoutIsProtocol(t *testing.T) {
	db := newLedger(t)
	input := lines("garbage", request("1", createRain), "\x00\xff", request("2", `{"op":"--help"}`), request("3", annOnRain), `--version`)
	f := serve(t, input, "--db", db) // which holds every line against the schema
	if len(f.answers) != 6 || f.stderr != "" {
		t.Errorf("%+v", f)
	}
	// Not even the ledger's failing under it gets between.
	k := begin(t, agent(t), nil, "--db", db)
	k.ask(request("1", getRain))
	if err := os.Truncate(db, 5000); err != nil {
		t.Fatal(err)
	}
	if a := k.ask(request("2", getRain)); a.code() != wire.Unavailable {
		t.Errorf("%s", a.line)
	}
	if f := k.hangUp(); f.stdout != "" || f.stderr != "" || f.code != 1 {
		t.Errorf("%+v", f)
	}
}

func diagnosticsOnStderr(t *testing.T) {
	for _, args := range [][]string{{}, {"--fly"}, {"--db", filepath.Join(t.TempDir(), "no", "ledger.db")}, {"--db", t.TempDir()}} {
		f := serve(t, lines(request("1", score)), args...)
		if f.stdout != "" || !strings.HasPrefix(f.stderr, "supercast-agent: ") || strings.Count(f.stderr, "\n") != 1 || strings.Count(f.stderr, ": ") < 2 {
			t.Errorf("%q: stdout %q, stderr %q", args, f.stdout, f.stderr)
		}
	}
}

func informationalModes(t *testing.T) {
	locked := newLedger(t)
	serve(t, "", "--db", locked)
	f, err := os.Open(locked)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	missing := newLedger(t)
	for mode, want := range map[string]string{"--help": "supercast-agent --db PATH", "--version": "supercast-agent ", "--schema": `"$schema": "https://json-schema.org/draft/2020-12/schema"`} {
		for _, args := range [][]string{{mode}, {mode, "--db", missing}, {"--db", locked, mode}, {"--memory", mode}} {
			f := say(t, args...)
			if f.code != 0 || f.stderr != "" || !strings.Contains(f.stdout, want) {
				t.Errorf("%q: %+v", args, f)
			}
		}
	}
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Errorf("a database was made: %v", err)
	}
}

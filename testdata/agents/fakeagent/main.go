// Fakeagent is an agent for tests that does exactly what it is told, the bad
// manners of real ones included.
//
// Without flags it is a well-behaved NDJSON agent: for each request line it
// writes one answer line, and it ends with code 0 at the end of its input.
//
//	{"version":1,"id":"r1","command":{"op":"echo","text":"hi"}}
//	{"version":1,"id":"r1","result":{"op":"echo","text":"hi"}}
//
// The result of every operation is the command itself; where that would tell
// nothing, a member says what was done.
//
//	echo                     nothing more
//	sleep_ms {ms}            answers after a pause
//	big {bytes}              the answer line is that long; its "pad" fills it up
//	crash {signal?}          no answer; ends itself by a signal, SIGABRT if none is named
//	exit {code?}             no answer; exits
//	silence                  never answers, and goes on
//	garbage {lines?}         lines that are no JSON objects, then the answer
//	spawn_bg {setsid?,double_fork?,hold_stdout?,command?}
//	                         leaves a child behind; the answer has its "pid"
//
// Anything else is answered with the error unsupported_method, and a line that
// is no request with invalid_request and a null id.
//
// Flags add manners, and may be combined:
//
//	--noise N                N banner lines on stdout before anything else
//	--stderr-bytes N         N bytes to stderr before the first request is read
//	--stderr-flood DURATION  writes stderr as fast as it is taken, beside the answers
//	--split-at N             writes each line in two: N bytes and, once those are read, the rest
//	--line-bytes N           pads each answer to a line of at least N bytes, its end not counted
//	--exit-after N           exits after N answers
//	--exit-code N            with this code, also at the end of the input
//	--torn N                 before it exits so, writes N bytes of a line that it never ends
//	--ignore-term            takes no notice of SIGTERM, nor do its children
//	--ignore-eof             lives on at the end of its input
//	--close-stdout           closes its stdout at the end of its input, and lives on if it ignores that
//	--fork-holder            leaves a grandchild in its process group that holds its stdout
//	--setsid-holder          leaves one, double-forked, in a session of its own
//	--bg CMD                 starts a shell command in the background at the start
//	--log FILE               appends a line for each event: how tests watch from outside
//	--plain                  no requests: numbered lines on stdout until its end
//	--every DURATION         the pause between those; none by default
//	--bytes N                ends after that many bytes of them; else never
//
// The log's lines are "start PID PARENT", "request ID", "child PID", "eof",
// "term" and "exit CODE". Each is one write to a file opened with O_APPEND, so
// several agents may share one. Nothing is written after a SIGKILL.
//
// Whatever it leaves behind ends by itself after --child-life, ten minutes by
// default: a test that fails leaves nothing for ever. Children are real
// processes, this program executed again. They inherit the environment, so a
// test finds them by a variable that only its own processes have.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	noise        int
	stderrBytes  int
	stderrFlood  time.Duration
	splitAt      int
	lineBytes    int
	exitAfter    int
	exitCode     int
	torn         int
	ignoreTerm   bool
	ignoreEOF    bool
	closeStdout  bool
	forkHolder   bool
	setsidHolder bool
	background   string
	log          string
	plain        bool
	every        time.Duration
	bytes        int
	childLife    time.Duration
}

func parse() options {
	var o options
	flag.IntVar(&o.noise, "noise", 0, "banner lines")
	flag.IntVar(&o.stderrBytes, "stderr-bytes", 0, "bytes to stderr first")
	flag.DurationVar(&o.stderrFlood, "stderr-flood", 0, "flood stderr for so long")
	flag.IntVar(&o.splitAt, "split-at", 0, "write each line in two at this byte")
	flag.IntVar(&o.lineBytes, "line-bytes", 0, "pad each answer")
	flag.IntVar(&o.exitAfter, "exit-after", 0, "exit after so many answers")
	flag.IntVar(&o.exitCode, "exit-code", 0, "code to exit with")
	flag.IntVar(&o.torn, "torn", 0, "bytes of an unfinished line at the exit")
	flag.BoolVar(&o.ignoreTerm, "ignore-term", false, "ignore SIGTERM")
	flag.BoolVar(&o.ignoreEOF, "ignore-eof", false, "live on without input")
	flag.BoolVar(&o.closeStdout, "close-stdout", false, "close stdout at the end of the input")
	flag.BoolVar(&o.forkHolder, "fork-holder", false, "leave a holder of stdout in the group")
	flag.BoolVar(&o.setsidHolder, "setsid-holder", false, "leave one in its own session")
	flag.StringVar(&o.background, "bg", "", "shell command to start in the background")
	flag.StringVar(&o.log, "log", "", "file to append events to")
	flag.BoolVar(&o.plain, "plain", false, "print lines instead of answering")
	flag.DurationVar(&o.every, "every", 0, "pause between the lines of --plain")
	flag.IntVar(&o.bytes, "bytes", 0, "end --plain after so many bytes")
	flag.DurationVar(&o.childLife, "child-life", 10*time.Minute, "bound on the life of what is left behind")
	flag.Parse()
	return o
}

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		playRole(role)
		return
	}
	a := &agent{options: parse()}
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "fakeagent: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	a.begin()
	if a.plain {
		a.printLines()
	} else {
		a.serve(os.Stdin)
	}
	if a.ignoreEOF {
		select {} // until a signal; the goroutine of begin keeps this from being a deadlock
	}
	a.exit(a.exitCode)
}

// begin does what comes before the first request.
func (a *agent) begin() {
	if a.ignoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	signals := make(chan os.Signal, 1)
	if !a.ignoreTerm {
		signal.Notify(signals, syscall.SIGTERM)
	}
	go func() {
		<-signals
		a.note("term")
		a.exit(128 + int(syscall.SIGTERM))
	}()
	a.note("start %d %d", os.Getpid(), os.Getppid())
	if a.forkHolder {
		a.leave(child{holdStdout: true, doubleFork: true})
	}
	if a.setsidHolder {
		a.leave(child{holdStdout: true, doubleFork: true, setsid: true})
	}
	if a.background != "" {
		a.leave(child{command: a.background})
	}
	for i := range a.noise {
		a.print(fmt.Appendf(nil, "fakeagent banner %d of %d", i+1, a.noise))
	}
	complain(a.stderrBytes)
	if a.stderrFlood > 0 {
		go flood(a.stderrFlood)
	}
}

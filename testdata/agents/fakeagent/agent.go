package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type agent struct {
	options
	answered int

	out sync.Mutex // held over a whole line
}

type request struct {
	ID      *string         `json:"id"`
	Command json.RawMessage `json:"command"`
}

// command holds what any operation may name.
type command struct {
	Op         string `json:"op"`
	MS         int    `json:"ms"`
	Bytes      int    `json:"bytes"`
	Signal     int    `json:"signal"`
	Code       int    `json:"code"`
	Lines      int    `json:"lines"`
	Setsid     bool   `json:"setsid"`
	DoubleFork bool   `json:"double_fork"`
	HoldStdout bool   `json:"hold_stdout"`
	Command    string `json:"command"`
}

// serve answers requests until the input ends.
func (a *agent) serve(in io.Reader) {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			a.take(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "fakeagent:", err)
			os.Exit(2)
		}
	}
	a.note("eof")
	if a.closeStdout {
		os.Stdout.Close()
	}
}

// take carries one request out.
func (a *agent) take(line []byte) {
	var r request
	var c command
	if json.Unmarshal(line, &r) != nil || r.ID == nil || json.Unmarshal(r.Command, &c) != nil {
		a.refuse(nil, "invalid_request", "not a request")
		return
	}
	a.note("request %s", *r.ID)
	more := map[string]any{}
	pad := a.lineBytes
	switch c.Op {
	case "echo":
	case "sleep_ms":
		time.Sleep(time.Duration(c.MS) * time.Millisecond)
	case "big":
		pad = max(pad, c.Bytes)
	case "crash":
		a.crash(syscall.Signal(c.Signal))
	case "exit":
		a.exit(c.Code)
	case "silence":
		return
	case "garbage":
		for i := range max(c.Lines, 1) {
			a.print(fmt.Appendf(nil, "garbage %d: [not, an object", i+1))
		}
	case "spawn_bg":
		more["pid"] = a.leave(child{setsid: c.Setsid, doubleFork: c.DoubleFork, holdStdout: c.HoldStdout, command: c.Command})
	default:
		a.refuse(r.ID, "unsupported_method", "no such operation: "+c.Op)
		return
	}
	a.answer(*r.ID, r.Command, more, pad)
}

type envelope struct {
	Version int             `json:"version"`
	ID      *string         `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *refusal        `json:"error,omitempty"`
}

type refusal struct {
	Code     string   `json:"code"`
	Message  string   `json:"message"`
	Delivery string   `json:"delivery"`
	Details  struct{} `json:"details"`
}

// answer writes the command back, with more members and padded to a length.
func (a *agent) answer(id string, echo json.RawMessage, more map[string]any, pad int) {
	line := encode(envelope{Version: 1, ID: &id, Result: echo})
	if len(more) > 0 || len(line) < pad {
		result := map[string]any{}
		if err := json.Unmarshal(echo, &result); err != nil {
			panic(err) // it was read before
		}
		maps.Copy(result, more)
		line = encode(envelope{Version: 1, ID: &id, Result: encode(result)})
		if len(line) < pad {
			result["pad"] = ""
			short := pad - len(encode(envelope{Version: 1, ID: &id, Result: encode(result)}))
			result["pad"] = strings.Repeat("x", max(short, 0))
			line = encode(envelope{Version: 1, ID: &id, Result: encode(result)})
		}
	}
	a.print(line)
	a.count()
}

func (a *agent) refuse(id *string, code, message string) {
	a.print(encode(envelope{Version: 1, ID: id, Error: &refusal{Code: code, Message: message, Delivery: "not_sent"}}))
	a.count()
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is made of what was decoded
	}
	return b
}

func (a *agent) count() {
	a.answered++
	if a.exitAfter > 0 && a.answered >= a.exitAfter {
		if a.torn > 0 {
			writeAll(append([]byte(`{"torn":"`), bytes.Repeat([]byte{'x'}, a.torn)...)[:a.torn])
		}
		a.exit(a.exitCode)
	}
}

// print writes one line, as whole or as split as it was told to.
func (a *agent) print(line []byte) {
	a.out.Lock()
	defer a.out.Unlock()
	line = append(line, '\n')
	if n := a.splitAt; n > 0 && n < len(line) {
		writeAll(line[:n])
		awaitReader()
		line = line[n:]
	}
	writeAll(line)
}

func writeAll(b []byte) {
	if _, err := os.Stdout.Write(b); err != nil {
		os.Exit(2) // nobody listens
	}
}

// awaitReader returns when everything in stdout's pipe was read, so that a
// split is one for the reader too. Anything but a pipe is not waited for.
func awaitReader() {
	for {
		n, err := unix.IoctlGetInt(int(os.Stdout.Fd()), pendingBytes)
		if err != nil || n == 0 {
			return
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// note appends an event to the log.
func (a *agent) note(format string, args ...any) {
	if a.log == "" {
		return
	}
	f, err := os.OpenFile(a.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakeagent:", err)
		os.Exit(2)
	}
	defer f.Close()
	fmt.Fprintf(f, format+"\n", args...)
}

func (a *agent) exit(code int) {
	a.note("exit %d", code)
	os.Exit(code)
}

// crash ends the process by a signal, so that its status says so.
func (a *agent) crash(s syscall.Signal) {
	if s == 0 {
		s = syscall.SIGABRT
	}
	dieOf(s)
}

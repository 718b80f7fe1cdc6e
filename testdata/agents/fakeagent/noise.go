package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// complain writes n bytes of numbered lines to stderr and returns when they
// were all taken: an agent whose stderr nobody drains gets no further.
func complain(n int) {
	for i := 1; n > 0; i++ {
		line := fmt.Appendf(nil, "fakeagent complaint %d\n", i)
		line = line[:min(n, len(line))]
		if _, err := os.Stderr.Write(line); err != nil {
			return
		}
		n -= len(line)
	}
}

// flood writes to stderr as fast as it is taken.
func flood(d time.Duration) {
	batch := bytes.Repeat([]byte("fakeagent flood: nothing is wrong, this is only very much of it, line after line after line\n"), 700)
	for end := time.Now().Add(d); time.Now().Before(end); {
		if _, err := os.Stderr.Write(batch); err != nil {
			return
		}
	}
}

// printLines is the agent that knows no protocol.
func (a *agent) printLines() {
	sent := 0
	var batch []byte
	for i := 1; a.bytes == 0 || sent < a.bytes; i++ {
		have := len(batch)
		batch = append(strconv.AppendInt(append(batch, "line "...), int64(i), 10), '\n')
		if a.bytes > 0 {
			batch = batch[:min(len(batch), have+a.bytes-sent)]
		}
		sent += len(batch) - have
		if a.every > 0 || len(batch) > 60<<10 {
			writeAll(batch)
			batch = batch[:0]
			time.Sleep(a.every)
		}
	}
	if len(batch) > 0 {
		writeAll(batch)
	}
}

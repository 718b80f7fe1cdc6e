package servertest

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const chatterMode = "servertest-chatter"

// Chatter is the command of an agent that says n lines of the given length,
// each of which is read alone and so becomes an event of its own, and then
// waits for the end of its input. A line begins with its number, from 0.
//
// With a named pipe, it says the first line at once and the others when
// somebody has opened the pipe for writing.
func Chatter(n, length int, pipe string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{self, chatterMode, strconv.Itoa(n), strconv.Itoa(length), pipe}
}

// Speech is the command of an agent that says n lines as a [Chatter] does, and
// ends.
func Speech(n, length int) []string { return Chatter(n, length, toTheEnd) }

const toTheEnd = "-"

func chatterMain(args []string) int {
	n, _ := strconv.Atoi(args[0])
	length, _ := strconv.Atoi(args[1])
	pad := strings.Repeat("x", max(length-12, 0))
	for i := range n {
		if i == 1 && args[2] != "" && args[2] != toTheEnd {
			awaitWriter(args[2])
		}
		fmt.Printf("%010d %s\n", i, pad)
		for unread(os.Stdout) > 0 {
			runtime.Gosched()
		}
	}
	if args[2] != toTheEnd {
		bufio.NewReader(os.Stdin).ReadByte()
	}
	return 0
}

// unread is how many bytes of a pipe its reader has not taken.
func unread(f *os.File) int {
	n, err := unix.IoctlGetInt(int(f.Fd()), fionread)
	if err != nil {
		return 0
	}
	return n
}

// awaitWriter opens a named pipe, which waits for the other end.
func awaitWriter(path string) {
	if f, err := os.Open(path); err == nil {
		f.Close()
	}
}

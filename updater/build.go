// Package updater knows which build of Cast is which. Verifying, staging and
// swapping builds belongs here too.
package updater

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/castctl/castctl/internal/proc"
)

// Version is the release that this build was made as; the release tool sets it
// at link time.
var Version = "0.1.0-dev"

// Self is the id of the build that the caller runs. It stays that build's when
// another is put at its path.
var Self = sync.OnceValue(func() string {
	id, err := Identify(proc.SelfExe())
	if err != nil {
		return "unknown"
	}
	return id
})

// idSearch is how far into the file the build id is looked for: the linker puts
// it at the front, in ELF files within the first pages.
var idSearch = []int{8 << 10, 64 << 10}

// How the linker writes the build id: as an ELF note of type 4 named Go, and
// elsewhere as a line at the front of the program's text (cmd/internal/buildid).
var (
	noteMark   = []byte("\x04\x00\x00\x00Go\x00\x00")
	textPrefix = []byte("\xff Go build ID: \"")
	textSuffix = []byte("\"\n \xff")
)

// Identify returns the id of a build from its file: the content part of the Go
// linker's build id, which differs whenever the program does.
func Identify(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, n := range idSearch {
		b := make([]byte, n)
		n, err := f.ReadAt(b, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		id, ok := noteID(b[:n])
		if !ok {
			id, ok = textID(b[:n])
		}
		if ok {
			return id[strings.LastIndexByte(id, '/')+1:], nil
		}
	}
	return "", fmt.Errorf("%s has no Go build id", path)
}

// noteID reads the ELF note: the sizes of name and content, type, name,
// content.
func noteID(b []byte) (string, bool) {
	i := bytes.Index(b, noteMark)
	if i < 8 {
		return "", false
	}
	size := int(binary.LittleEndian.Uint32(b[i-4:]))
	rest := b[i+len(noteMark):]
	if size <= 0 || size > len(rest) {
		return "", false
	}
	return string(rest[:size]), true
}

func textID(b []byte) (string, bool) {
	_, rest, ok := bytes.Cut(b, textPrefix)
	id, _, whole := bytes.Cut(rest, textSuffix)
	return string(id), ok && whole
}

package lease

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/internal/crashpoint"
)

// tempPrefix marks files that were on their way to replace another.
const tempPrefix = ".new-"

// WriteFile replaces a file atomically and durably: a temporary file of random
// name in the same folder, write, fsync, rename, fsync of the folder. A reader
// sees the old content or the new, never half of one. The mode is 0600
// whatever the umask.
func WriteFile(path string, content []byte) error {
	if err := replace(path, content, true); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// WriteRecord replaces a living process's record atomically, without the
// fsyncs: after a power cut such a record means nothing.
func WriteRecord(path string, content []byte) error { return replace(path, content, false) }

// WriteJSON is WriteFile of a value's JSON.
func WriteJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteFile(path, append(b, '\n'))
}

// WriteLater is WriteJSON in two steps: it replaces the file, and [Sync] makes it
// durable.
func WriteLater(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return replace(path, append(b, '\n'), false)
}

// Sync makes a file durable that [WriteLater] wrote, or one that replaced it
// since.
func Sync(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func replace(path string, content []byte, durable bool) (err error) {
	temp := filepath.Join(filepath.Dir(path), tempPrefix+randomHex(8))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temp)
		}
	}()
	if err := writeTemp(f, content, durable); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	crashpoint.At("file.rename")
	return os.Rename(temp, path)
}

func writeTemp(f *os.File, content []byte, durable bool) error {
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	crashpoint.At("file.write")
	if _, err := f.Write(content); err != nil {
		return err
	}
	if durable {
		return f.Sync()
	}
	return nil
}

// SweepTemp removes temporary files that a killed writer left in a folder. The
// caller must be the folder's only writer.
func SweepTemp(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) { // a file system that cannot sync folders
		return nil
	}
	return err
}

// maxRecord bounds what is read of a file that another process wrote.
const maxRecord = 4 << 20

// ReadJSON reads a file that another version of Cast may have written: unknown
// members are ignored. It returns an error matching [fs.ErrNotExist] if there
// is no file, and [ErrGarbage] if it cannot be understood.
func ReadJSON(path string, v any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > maxRecord {
		return fmt.Errorf("%w: %s", ErrGarbage, path)
	}
	b := make([]byte, st.Size()) // whoever changes it replaces it
	if _, err := io.ReadFull(f, b); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrGarbage, path, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrGarbage, path, err)
	}
	return nil
}

// ErrGarbage says that a file is there but cannot be understood.
var ErrGarbage = errors.New("the file is damaged")

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails, says crypto/rand
	return hex.EncodeToString(b)
}

func inodeOf(path string) (uint64, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return inode(st), nil
}

func inode(st fs.FileInfo) uint64 { return st.Sys().(*syscall.Stat_t).Ino }

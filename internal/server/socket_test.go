package server_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/castctl/castctl/lease"
)

func emptyHome(t *testing.T, dir string) lease.Home {
	t.Helper()
	h, err := lease.OpenHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The folder of the sockets is closed, whoever made it and how.
func TestAttackSocketFolder(t *testing.T) {
	t.Run("A14 the folder is open to all", func(t *testing.T) {
		h := emptyHome(t, filepath.Join(t.TempDir(), "h"))
		run := filepath.Join(h.Dir(), "run")
		if err := errors.Join(os.Mkdir(run, 0o777), os.Chmod(run, 0o777)); err != nil {
			t.Fatal(err)
		}
		l, path, err := h.ListenUnix("s.sock")
		if err != nil {
			return // refused is as good
		}
		defer l.Close()
		for _, p := range []string{run, path} {
			if st, err := os.Stat(p); err != nil || st.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v, %v", p, st.Mode(), err)
			}
		}
	})
	t.Run("A14 a symbolic link stands at the socket's path", func(t *testing.T) {
		h := emptyHome(t, filepath.Join(t.TempDir(), "h"))
		run := filepath.Join(h.Dir(), "run")
		target := filepath.Join(t.TempDir(), "target")
		if err := errors.Join(os.Mkdir(run, 0o700), os.WriteFile(target, []byte("precious"), 0o600), os.Symlink(target, filepath.Join(run, "s.sock"))); err != nil {
			t.Fatal(err)
		}
		l, path, err := h.ListenUnix("s.sock")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if st, err := os.Lstat(path); err != nil || st.Mode()&fs.ModeSocket == 0 {
			t.Errorf("a socket does not stand at its path: %v, %v", st, err)
		}
		if b, err := os.ReadFile(target); string(b) != "precious" {
			t.Errorf("the link was followed: %q, %v", b, err)
		}
	})
}

// Where a home's path is too long for a socket, its sockets go to a folder among
// those of other users. One that is not the user's own is not used.
func TestAttackTemporaryFolder(t *testing.T) {
	base := t.TempDir() // the paths of the sub-tests' own would be too long
	for i, c := range []struct {
		name    string
		prepare func(dir string)
		refused bool
	}{
		{"nobody was there", func(string) {}, false},
		{"the user was there", func(dir string) { os.Mkdir(dir, 0o700) }, false},
		{"somebody made it open to all", func(dir string) { os.Mkdir(dir, 0o777); os.Chmod(dir, 0o777) }, true},
		{"somebody made it a link", func(dir string) { os.Mkdir(dir+".real", 0o700); os.Symlink(dir+".real", dir) }, true},
		{"somebody made it a file", func(dir string) { os.WriteFile(dir, nil, 0o600) }, true},
		{"another user made it", func(dir string) {
			os.Mkdir(dir, 0o700)
			if os.Chown(dir, 65534, 65534) != nil {
				os.Chmod(dir, 0o755) // without root at least its mode is wrong
			}
		}, true},
	} {
		t.Run("A15 "+c.name, func(t *testing.T) {
			tmp := filepath.Join(base, strconv.Itoa(i))
			if err := os.Mkdir(tmp, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("TMPDIR", tmp)
			t.Setenv("XDG_RUNTIME_DIR", "")
			h := emptyHome(t, filepath.Join(t.TempDir(), strings.Repeat("x", 100)))
			l, path, err := h.ListenUnix("s.sock")
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			dir := filepath.Dir(path)
			if !strings.HasPrefix(dir, tmp) {
				t.Fatalf("the socket is in %s", dir)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			c.prepare(dir)
			l, _, err = h.ListenUnix("s.sock")
			if err == nil {
				l.Close()
			}
			if refused := err != nil; refused != c.refused {
				t.Errorf("refused: %v, want %v: %v", refused, c.refused, err)
			}
		})
	}
}

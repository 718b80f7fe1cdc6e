package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest socket path that is used as it is; the kernel's
// own limit is 104 bytes on macOS and 108 on Linux.
const maxSocketPath = 100

// ListenUnix binds a unix socket named name for this home: in its run folder,
// or, where that path is too long or the file system has no sockets, in a
// private folder of the user's elsewhere. It returns the listener and the path.
//
// The caller must hold the lock that makes it the only owner of that name: a
// socket left by a dead owner is removed.
func (h Home) ListenUnix(name string) (*net.UnixListener, string, error) {
	dir := filepath.Join(h.dir, "run")
	if err := MakeDir(dir); err != nil {
		return nil, "", err
	}
	if path := filepath.Join(dir, name); len(path) <= maxSocketPath {
		l, err := listenAt(path)
		if err == nil {
			return l, path, nil
		}
		if !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOSYS) {
			return nil, "", err
		}
	}
	dir, err := h.socketDir()
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(dir, name)
	if len(path) > maxSocketPath {
		return nil, "", fmt.Errorf("socket path %s is longer than %d bytes: set XDG_RUNTIME_DIR to a short path", path, maxSocketPath)
	}
	l, err := listenAt(path)
	return l, path, err
}

// backlog is how many connections may wait to be accepted.
const backlog = 1024

// listenAt binds by system calls: package net would read the system's backlog
// limit into a buffer of 64 KiB, which every host would carry.
func listenAt(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	fd, err := unixSocket()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close() // the listener has a descriptor of its own
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, &os.PathError{Op: "bind", Path: path, Err: err}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, &os.PathError{Op: "listen", Path: path, Err: err}
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	u := l.(*net.UnixListener)
	// Close must not unlink whatever stands at the path by then: a successor's
	// socket perhaps.
	u.SetUnlinkOnClose(false)
	return u, nil
}

// socketDir is the folder for sockets that cannot live in the home.
func (h Home) socketDir() (string, error) {
	sum := sha256.Sum256([]byte(h.dir))
	short := hex.EncodeToString(sum[:6])
	dir := filepath.Join(os.TempDir(), "cast-"+strconv.Itoa(os.Geteuid())+"-"+short)
	if run := os.Getenv("XDG_RUNTIME_DIR"); run != "" && filepath.IsAbs(run) {
		dir = filepath.Join(run, "cast-"+short)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := checkPrivate(dir); err != nil {
		return "", fmt.Errorf("folder for sockets: %w", err)
	}
	return dir, nil
}

//go:build linux

package proc

import (
	"net"

	"golang.org/x/sys/unix"
)

// Peer is who is at the other end of a unix socket, as the kernel says.
type Peer struct{ PID, UID int }

// PeerOf asks the kernel who is at the other end (SO_PEERCRED). For a client
// that is the process which called listen.
func PeerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var inner error
	if err := raw.Control(func(fd uintptr) { cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return Peer{}, err
	}
	if inner != nil {
		return Peer{}, inner
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid)}, nil
}

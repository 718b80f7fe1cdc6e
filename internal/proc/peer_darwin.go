//go:build darwin

package proc

import (
	"net"

	"golang.org/x/sys/unix"
)

// Peer is who is at the other end of a unix socket, as the kernel says.
type Peer struct{ PID, UID int }

// PeerOf asks the kernel who is at the other end (LOCAL_PEERCRED,
// LOCAL_PEERPID).
func PeerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var p Peer
	var inner error
	if err := raw.Control(func(fd uintptr) {
		var cred *unix.Xucred
		if cred, inner = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); inner != nil {
			return
		}
		p.UID = int(cred.Uid)
		p.PID, inner = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	}); err != nil {
		return Peer{}, err
	}
	return p, inner
}

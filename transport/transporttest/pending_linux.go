//go:build linux

package transporttest

import "golang.org/x/sys/unix"

// pendingBytes asks how much of a pipe was not read yet (FIONREAD).
const pendingBytes = unix.TIOCINQ

//go:build darwin

package transporttest

// pendingBytes asks how much of a pipe was not read yet (FIONREAD, sys/filio.h).
const pendingBytes = 0x4004667f

//go:build linux

package servertest

const fionread = 0x541b // asm-generic/ioctls.h

//go:build darwin

package servertest

const fionread = 0x4004667f // sys/filio.h

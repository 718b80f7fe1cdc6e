// Package proc is the operating system as Cast sees it: who a process is,
// whether it still lives, how to signal it, what lies beneath it and what it
// costs.
//
// # Identity
//
// A PID is never an identity: it is reused, and inside another PID namespace it
// means somebody else. An [Identity] also carries the start time in clock
// ticks, the boot, the machine and the PID namespace in which the number was
// read, and, where the kernel has it, the inode of the process's pidfd, which
// is never used twice in one boot.
//
// # Verdicts
//
// Judging an identity gives one of four verdicts. Only [Gone] is proof of
// death. Whatever could not be looked at (EPERM, hidepid, no descriptors left)
// is [Unknown], and whatever was recorded on another machine or in another PID
// namespace is [Foreign]; neither is ever a reason to delete, restart or
// signal.
//
// # Signals
//
// A signal is sent through a [Process], a handle that was opened on a verified
// identity. On Linux the handle is a pidfd, so the signal reaches that process
// or nobody.
//
// # Measurements
//
// gopsutil supplies what a person looks at (memory, CPU time, command lines).
// It never decides anything: its process start times have a resolution of one
// second and move with the wall clock.
package proc

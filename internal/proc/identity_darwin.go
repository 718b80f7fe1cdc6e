//go:build darwin

package proc

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

var machineIDFiles []string

func hardwareID() string {
	id, err := unix.Sysctl("kern.uuid")
	if err != nil {
		return ""
	}
	return id
}

var bootID = sync.OnceValue(func() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
})

func pidNamespace() uint64 { return 0 }

const zombie = 5 // SZOMB of sys/proc.h

func kinfo(pid int) (*unix.KinfoProc, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err == nil && int(k.Proc.P_pid) != pid {
		return nil, unix.ESRCH
	}
	return k, err
}

func started(k *unix.KinfoProc) uint64 {
	t := k.Proc.P_starttime
	return uint64(t.Sec)*1e6 + uint64(t.Usec)
}

// Of captures the identity of a running process. It returns
// [os.ErrProcessDone] if there is none.
func Of(pid int) (Identity, error) {
	k, err := kinfo(pid)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EIO) || err == nil && k.Proc.P_stat == zombie {
		return Identity{}, os.ErrProcessDone
	}
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, StartTicks: started(k), BootID: bootID(), MachineID: MachineID()}, nil
}

// open is Open for a process of this boot and machine.
func (id Identity) open() (*Process, Verdict) {
	k, err := kinfo(id.PID)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EIO) { // EIO: the kernel handed back 0 bytes
		if errors.Is(unix.Kill(id.PID, 0), unix.ESRCH) {
			return nil, Gone
		}
		return nil, Unknown
	}
	if err != nil {
		return nil, Unknown
	}
	if started(k) != id.StartTicks || k.Proc.P_stat == zombie {
		return nil, Gone
	}
	return &Process{id: id}, Alive
}

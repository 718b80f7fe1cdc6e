package proc

import (
	"os"
	"strings"
	"sync"
)

// Verdict is what can be said of a process from its recorded identity.
type Verdict string

const (
	Alive   Verdict = "alive"   // that very process runs
	Gone    Verdict = "gone"    // proven: it does not run any more
	Unknown Verdict = "unknown" // it could not be looked at; never a reason to act
	Foreign Verdict = "foreign" // of another machine or PID namespace; not ours to judge
)

// Identity names one process, as far as the operating system allows. Its JSON
// members stand in every record that a Cast process publishes about itself.
type Identity struct {
	PID int `json:"pid"`
	// StartTicks is field 22 of /proc/PID/stat (clock ticks after boot) on
	// Linux, and p_starttime in microseconds on macOS.
	StartTicks uint64 `json:"start_ticks"`
	BootID     string `json:"boot_id"`
	MachineID  string `json:"machine_id"`
	// PIDNamespace is the inode of /proc/self/ns/pid; 0 where there is none.
	PIDNamespace uint64 `json:"pid_namespace"`
	// PidfdInode is the inode of the process's pidfd, unique for the life of
	// the boot (Linux 6.9 and later); 0 where the kernel has none.
	PidfdInode uint64 `json:"pidfd_inode,omitzero"`
}

// Self returns the identity of the calling process.
func Self() (Identity, error) { return Of(os.Getpid()) }

// IsZero reports whether the identity names no process.
func (id Identity) IsZero() bool { return id.PID == 0 }

// Same reports whether two identities name the same process: equal in every
// part that both of them have.
func (id Identity) Same(other Identity) bool {
	if id.PidfdInode == 0 || other.PidfdInode == 0 {
		id.PidfdInode, other.PidfdInode = 0, 0
	}
	return id == other
}

// Verdict judges the identity now.
func (id Identity) Verdict() Verdict {
	p, v := id.Open()
	if p != nil {
		p.Close()
	}
	return v
}

// Open returns a handle on the process that the identity names, if it is
// alive; the caller closes it. For every other verdict the handle is nil.
func (id Identity) Open() (*Process, Verdict) {
	if id.PID <= 0 {
		return nil, Gone
	}
	if v := id.elsewhere(); v != Alive {
		return nil, v
	}
	return id.open()
}

// elsewhere judges what needs no look at the process itself: the boot, the
// machine and the PID namespace. It answers Alive when they are this one's.
func (id Identity) elsewhere() Verdict {
	if id.BootID != bootID() {
		if id.MachineID != "" && id.MachineID == MachineID() {
			return Gone
		}
		return Foreign
	}
	if id.PIDNamespace != 0 && id.PIDNamespace != pidNamespace() {
		return Foreign
	}
	return Alive
}

// MachineID names this machine: /etc/machine-id where there is one, else the
// host name, so that a home carried to another machine is noticed.
var MachineID = sync.OnceValue(func() string {
	for _, path := range machineIDFiles {
		if b, err := os.ReadFile(path); err == nil {
			if id := strings.TrimSpace(string(b)); id != "" {
				return id
			}
		}
	}
	if id := hardwareID(); id != "" {
		return id
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return "host:" + name
})

// BootID names this boot of the machine.
func BootID() string { return bootID() }

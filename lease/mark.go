package lease

import "github.com/castctl/castctl/internal/proc"

// The verdicts of [Mark.Judge]; see package proc for what each permits.
const (
	Alive   = proc.Alive
	Gone    = proc.Gone
	Unknown = proc.Unknown
	Foreign = proc.Foreign
)

// Mark is the proof of life in a record: who published it, and the inode of the
// lock that it holds as long as it lives. Its members stand beside the record's
// own.
type Mark struct {
	proc.Identity
	LockInode uint64 `json:"lock_inode"`
}

// Judge says whether the process that published the mark lives, from the lock
// at lockPath and from its identity.
func (m Mark) Judge(lockPath string) proc.Verdict {
	p, v := m.Find(lockPath)
	if p != nil {
		p.Close()
	}
	return v
}

// Find judges as [Mark.Judge] does, and hands out the process if it lives; the
// caller closes it.
func (m Mark) Find(lockPath string) (*proc.Process, proc.Verdict) {
	p, byIdentity := m.Open()
	lock, err := Probe(lockPath)
	v := m.weigh(byIdentity, lock, err)
	if v != proc.Alive && p != nil {
		p.Close()
		p = nil
	}
	return p, v
}

// weigh hears the two witnesses. The lock speaks only of the inode that the
// record names: a free lock there is proof of death, whoever the PID is now.
// It holds across the PID namespaces of one boot, whose kernel is one.
func (m Mark) weigh(byIdentity proc.Verdict, lock LockState, lockErr error) proc.Verdict {
	speaks := lockErr == nil && lock.Exists && lock.Inode == m.LockInode && m.LockInode != 0
	switch {
	case !speaks:
		return byIdentity
	case lock.Held && byIdentity == proc.Gone:
		return proc.Unknown // somebody else holds it: a successor on its way
	case lock.Held:
		return byIdentity
	case byIdentity == proc.Alive:
		return proc.Unknown // it gave up its lock, but lives
	case byIdentity == proc.Foreign && m.BootID != proc.BootID():
		return proc.Foreign // another machine's locks are not seen here
	default:
		return proc.Gone
	}
}

// Package lease keeps long-lived processes of one home findable, single and
// mortal: records, locks, holds and the orphan guard.
//
// It solves four problems that every daemon has.
//
//   - Who lives? A process holds a kernel lock for its life and publishes a
//     record naming itself and the lock's inode. [Mark.Judge] believes the lock
//     first and the identity second; a PID alone is never believed.
//   - Who may write the record? Every publication and removal takes
//     record.lock for an instant and compares first, so that a reader who
//     sweeps a dead process's record cannot delete its successor's.
//   - May it end now? All work enters through a [Hold]. The decision to leave
//     and the refusal of new work are one critical section ([Holds.Leave]).
//   - Must it end now? A [Guard] is told what the registry answers about the
//     process, and decides when an orphan has been one for long enough.
//
// Nothing here knows what the daemon does. A daemon of your own, whole:
//
//	home, err := lease.OpenHome(dir)
//	if err != nil {
//		return err
//	}
//	lock, err := lease.Acquire(home.DaemonLock())
//	if errors.Is(err, lease.ErrHeld) {
//		return errors.New("already running")
//	} else if err != nil {
//		return err
//	}
//	defer lock.Release()
//	listener, err := net.Listen("tcp", "127.0.0.1:0") // bind first, publish after
//	if err != nil {
//		return err
//	}
//	go serve(listener)
//	self, err := lock.Mark()
//	if err != nil {
//		return err
//	}
//	record := lease.Server{Mark: self, InstanceID: id, Port: port(listener)}
//	if err := home.PublishServer(record); err != nil {
//		return err
//	}
//	defer home.RemoveServer(record.InstanceID)
//
// and a client of it: server, verdict, err := home.FindServer().
//
// # Concurrency
//
// [Holds] and [Lock] may be used from many goroutines. A [Guard] belongs to
// one.
package lease

// Package registry keeps what must not be forgotten about a fleet, in one bbolt
// file: instances, names, receipts and lifecycle facts.
//
//	meta       schema, uuid, epoch (counts openings)
//	instances  id → Instance
//	names      name → id
//	receipts   request id → Stored receipt
//	history    number → Fact (the last few thousand)
//
// Only the supervisor opens it, holding the daemon lock. A mutation and its
// receipt are one transaction, so a retry after any crash finds either both or
// neither. Nothing slow happens inside a transaction.
//
// # Damage
//
// A 0-byte file would open as a new database and a truncated one would fault
// and keep its lock in the process that tried. So the uuid also stands in a side
// file together with a mark of whether the last end was clean; after an unclean
// end the file is first checked in a child process ([Check]). A damaged file is
// moved aside, never overwritten, and the caller rebuilds the registry: the
// fleet is the truth, the registry an index of it.
package registry

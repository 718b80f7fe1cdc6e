// Package supervisor is the single writer of a home: it keeps the registry,
// spawns hosts, adopts those that live, ends what dead ones left, and restarts
// by policy.
//
// # Ownership
//
// One goroutine, [Supervisor.Run], owns the fleet. Everything else is posted to
// it as a function and runs there alone. It never waits for a host, a disk
// write other than the registry's commit, or a client: such work runs beside it
// and posts its result.
//
// # From intent to fact
//
// A mutation is planned on the state in memory, committed together with its
// receipt, and only then applied. Mutations that arrive together share one
// commit. What follows is not a script but a comparison: [Supervisor.reconcile]
// looks at what an instance is wanted to be and what it is, and takes the next
// step. So it does not matter who was killed half-way: the next supervisor reads
// the same intent and takes the same step.
//
// # Readers
//
// After each change the view of the fleet is encoded once and published as a
// [Snapshot]. Reading it takes no message, no lock and no look at a process.
package supervisor

// Package host owns one instance: its agent's life, its turns, its journal, its
// holds, and its end.
//
// A host is a process of its own, small and long-lived. It outlives the
// terminal that asked for it and the supervisor that spawned it; the supervisor
// in turn outlives the host. What must act after a death never shares the
// victim's fate: the host restarts its agent, the supervisor its hosts.
//
// # Ownership
//
// One goroutine, [Host.loop], owns all state. Everything else that happens, a
// line from the agent, an exit, a request on the socket, a timer, is posted to
// it as a function and runs there alone; a post also gives up when the loop has
// ended, so nobody hangs on a dead owner. After each step the state is computed
// anew from the facts in one place ([next]), compared with what was last told,
// and told to the journal and to every watcher if it differs.
//
// # Order
//
// The lock before the socket, the socket before the record, the journal before
// the listener. An exit is a durable file before it is an event; a restart does
// not wait for that file, but the new run's output does.
//
// # What can go wrong
//
// The agent dies, hangs, floods, leaves its group and its session, keeps its
// output open through a grandchild; the disk fills; the supervisor dies or is
// replaced; the registry forgets this instance; the machine sleeps. Each has its
// own file here.
package host

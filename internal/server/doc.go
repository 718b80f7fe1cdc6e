// Package server is the door: HTTP and SSE over a supervisor, on loopback TCP
// and on a unix socket.
//
// # Who may
//
// Everything is denied but what a route allows. A request on the unix socket is
// the caller's own user, as the kernel says. On TCP a local client proves
// itself with the token from server.json, which is believed only from a
// loopback peer on a loopback address; no forwarded header changes that. Before
// a client sends anything worth having it lets the server prove itself
// (/v1/identity), bound to the very connection's address, so that a squatter on
// a port cannot relay the proof.
//
// # In which order
//
// Host and Origin, then the credential, then the media type, then the size,
// then the content. A browser that was lured here fails at the first. What needs
// no credential is named in one place, and everything else passes through the
// check, also what does not exist.
//
// # Streams
//
// A stream never queues: each follower reads the journal itself, from the
// number it last saw, and is woken when there is more. So a slow one costs
// nothing but its own time, and every one gets the same events in the same
// order. One that takes nothing for a while is let go; one that falls behind the
// first event kept is told so, and gets a resync when it comes again.
//
// A snapshot stands at the last thing that the host has told of itself. The
// journal may be ahead of it; what is missing from the snapshot follows as events.
//
// # Abuse
//
// Everything that a client does has a bound ([Limits]): the head of a request, its
// body, the taking of an answer, connections, streams. Any local process can
// connect to the port, so when it is crowded those without a credential make
// room.
package server

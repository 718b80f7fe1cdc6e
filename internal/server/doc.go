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
// then the content. A browser that was lured here fails at the first.
//
// # Streams
//
// A stream never queues: each follower reads the journal itself, from the
// number it last saw, and is woken when there is more. So a slow one costs
// nothing but its own time, and every one gets the same events in the same
// order.
package server

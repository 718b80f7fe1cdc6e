// Package wire is the vocabulary that crosses a process boundary: requests,
// responses, errors, instances and events, their strict decoding and their
// JSON Schema.
//
// # Requests
//
// One request type serves everywhere: stdio, HTTP, host sockets and the
// command line itself.
//
//	{"version":1,"id":"…","command":{"op":"…",…}}
//	{"version":1,"id":"…","result":{…}}
//	{"version":1,"id":"…","error":{"code","message","delivery","details"}}
//
// A [Set] holds the operations that a program knows, each as a Go struct. From
// these structs come the strict decoder and the published schema, so the two
// cannot drift apart.
//
// # Strictness
//
// encoding/json takes a wrong case, duplicate names, invalid UTF-8, null for an
// object and missing members. A mutation that was misread is worse than one
// that was refused, so [Set.Decode] rejects all of these at every depth and
// says where, with a JSON pointer.
//
// # Delivery
//
// Every [Error] says whether the change may have happened: not_sent is a
// guarantee that nothing was dispatched, unknown is the absence of one.
package wire

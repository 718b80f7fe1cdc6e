// Package journal keeps one instance's numbered events on disk.
//
// # On disk
//
// A journal is a folder of segments, each named by the number of its first
// event. A segment begins with a header line: whose journal, which epoch, and a
// checkpoint of what its writer knew. Then one record an event. A record is a
// line of JSON, the event itself; an agent's raw output is kept raw, because
// escaping it would cost more than writing it:
//
//	{"seq":7,"time":"…","instance":"…","session":null,"turn":null,"type":"state","data":{…}}
//	{"seq":8,"time":"…","raw":23,"type":"output","lines":1}
//	whatever the agent said
//
// The line of a raw record says how many bytes follow it, and a newline closes
// them.
//
// # One writer, many readers
//
// Only the instance's host writes ([Journal]). Readers ([Reader]) need nothing
// of the writer but the files: they read the same way while it writes, after it
// was killed, and years later. A record that is not whole is not there yet.
//
// # Numbers and epochs
//
// Events are numbered from 1 without a gap, through every restart of the host.
// What was written before a power cut but not yet synced may be lost with its
// numbers, and the numbers are then given again. So a position also names an
// epoch, which changes with the boot: an old epoch's numbers stay valid up to
// its surviving end, and nothing beyond can be mistaken for the new.
package journal

// Package transport carries lines of JSON to and from an agent, and tells its
// death once.
//
// It abstracts where the agent runs. [Subprocess] is the local one; a program
// may supply its own, for instance for a remote sandbox. The suite in
// transporttest judges every implementation.
//
// # The contract
//
// A transport is made with [Handlers] and then started. Formally:
//
//   - Message is called once for each line of the agent's output that is a JSON
//     object, in order, never concurrently with itself. Lines end with LF only;
//     one CR before it is stripped; U+2028, U+2029 and U+0085 are data. Empty
//     lines are skipped. The bytes are the callee's only during the call.
//   - Stderr is called for each line of the agent's standard error, and for
//     each line of its output that is not a JSON object, never concurrently with
//     itself. A long line may come in pieces.
//   - Notice is called for what was lost or odd: a line over the cap with its
//     length, a last line that is not whole, a line that is not a JSON object. It
//     is never called concurrently with Message.
//   - Closed is called exactly once when the transport ends on its own: the
//     agent exited, its output ended, a stream failed. It comes after every
//     message that was read, with a reason such as "process terminated by
//     signal 9". A death before Start has returned is told after it. After an
//     owner's Close a death is not told.
//   - Write sends one JSON object as one line. It may be called from many
//     goroutines and never interleaves. It refuses what is not a JSON object:
//     a bare null kills some agents.
//   - Close may be called from several goroutines, more than once, and from
//     Closed. From another handler it would wait for itself.
//   - A last line without its end is delivered if it is a JSON object.
//
// In plain words: whatever the agent said before it died is heard first, its
// death is heard once, and your own goodbye is not a death.
//
// # Your own
//
// A transport to somewhere else reads its stream into a [Framer], which knows
// all of the above about lines, and has to see to the rest itself: a lock
// around Write, one death.
//
// # Memory
//
// A line over the cap is dropped whole, counted, and the next one is read. An
// idle transport holds a few KiB; a fast one gets a large pipe and buffer for as
// long as it is fast.
package transport

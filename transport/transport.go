package transport

import (
	"context"
	"errors"
)

// Transport is the way to one run of an agent.
type Transport interface {
	// Start begins to deliver. It is called once. An error means that there is
	// no agent; no handler is called then.
	Start(ctx context.Context) error
	// Write sends one JSON object as one line. A failure says in a [WriteError]
	// whether the agent may have seen any of it.
	Write(object []byte) error
	// Close ends the agent and returns when everything that it said was
	// delivered. It is not a death: Closed is not called any more. When the
	// context ends first, the agent is killed.
	Close(ctx context.Context) error
	// Alive reports whether the transport has not ended.
	Alive() bool
}

// Handlers is what a transport calls. Any of them may be nil.
type Handlers struct {
	Message func(line []byte)
	Stderr  func(line []byte)
	Closed  func(reason string)
	// Notice tells what was lost or odd in the streams.
	Notice func(Notice)
}

// NoticeKind says what a [Notice] is about.
type NoticeKind string

const (
	Oversize NoticeKind = "oversize" // a line over the cap was dropped
	Torn     NoticeKind = "torn"     // the output ended in the middle of a line
	NotJSON  NoticeKind = "not_json" // a line was not a JSON object
)

// Notice tells what was lost or odd.
type Notice struct {
	Kind  NoticeKind
	Bytes int64 // length of the line
}

var (
	// ErrClosed says that the transport has ended.
	ErrClosed = errors.New("the transport is closed")
	// ErrNotObject refuses a write that is not one JSON object.
	ErrNotObject = errors.New("not a JSON object")
)

// WriteError is a write that failed. Sent says whether the agent may have seen
// some of it; if not, it is certain that it saw nothing.
type WriteError struct {
	Sent bool
	Err  error
}

func (e *WriteError) Error() string { return "write to agent: " + e.Err.Error() }

func (e *WriteError) Unwrap() error { return e.Err }

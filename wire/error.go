package wire

import (
	"errors"
	"fmt"
)

// Code says what kind of failure an [Error] is.
type Code string

const (
	InvalidRequest     Code = "invalid_request"
	UnsupportedVersion Code = "unsupported_version"
	UnsupportedMethod  Code = "unsupported_method"
	InvalidState       Code = "invalid_state"
	NotFound           Code = "not_found"
	Conflict           Code = "conflict"
	Unavailable        Code = "unavailable"
	RequestTooLarge    Code = "request_too_large"
	Unauthorized       Code = "unauthorized"
	Internal           Code = "internal"
)

// Enum lists the codes.
func (Code) Enum() []string {
	return []string{
		string(InvalidRequest), string(UnsupportedVersion), string(UnsupportedMethod), string(InvalidState), string(NotFound),
		string(Conflict), string(Unavailable), string(RequestTooLarge), string(Unauthorized), string(Internal),
	}
}

// Delivery says whether a failed change may have been dispatched.
type Delivery string

const (
	NotSent         Delivery = "not_sent" // guaranteed not dispatched
	DeliveryUnknown Delivery = "unknown"  // may have been
)

// Enum lists the deliveries.
func (Delivery) Enum() []string { return []string{string(NotSent), string(DeliveryUnknown)} }

// Details locates an error.
type Details struct {
	Pointer string `json:"pointer,omitzero"` // JSON pointer into the request
	Method  string `json:"method,omitzero"`  // the op
	Session string `json:"session,omitzero"`
	Holder  string `json:"holder,omitzero"` // who is in the way
}

// Error is the error half of a response. Two errors match under [errors.Is]
// when their codes are equal.
type Error struct {
	Code     Code     `json:"code"`
	Message  string   `json:"message"`
	Delivery Delivery `json:"delivery"`
	Details  Details  `json:"details"`
}

func (e *Error) Error() string { return e.Message }

// Is matches errors of the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Sentinels for [errors.Is], one a code that callers tell apart.
var (
	ErrNotFound     = &Error{Code: NotFound}
	ErrConflict     = &Error{Code: Conflict}
	ErrInvalidState = &Error{Code: InvalidState}
	ErrUnavailable  = &Error{Code: Unavailable}
	ErrUnauthorized = &Error{Code: Unauthorized}
)

// Errorf makes an error of which nothing was dispatched.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Delivery: NotSent}
}

// Unknownf makes an error whose change may have been dispatched.
func Unknownf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Delivery: DeliveryUnknown}
}

// At adds the pointer to the place in the request.
func (e *Error) At(pointer string) *Error {
	e.Details.Pointer = pointer
	return e
}

// HeldBy adds who is in the way.
func (e *Error) HeldBy(holder string) *Error {
	e.Details.Holder = holder
	return e
}

// AsError finds the wire error in err, or wraps err as an internal one whose
// delivery is unknown.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Unknownf(Internal, "%v", err)
}

package cluster

import "fmt"

// Code classes what may go wrong in terms that a user can act on.
type Code uint8

// The classes of Error.
const (
	CodeInternal        Code = iota // ours to mend; users see no detail
	CodeInvalid                     // the request can never be right
	CodeNotFound                    // there is no such object
	CodeAlreadyExists               // the request id was used for another request
	CodeDenied                      // the caller may not do this
	CodeUnauthenticated             // we do not know who the caller is
	CodeConflict                    // the object is in another state than the request needs
	CodeExhausted                   // a limit is reached; later it may work
	CodeUnavailable                 // certainly not done; trying again is safe
	CodeUnknown                     // may or may not have been done; ask with the same request id
	CodeOutOfRange                  // a position that is no longer, or not yet, there
)

// String returns the code in lower case.
func (c Code) String() string {
	names := [...]string{"internal", "invalid", "not found", "already exists", "denied",
		"unauthenticated", "conflict", "exhausted", "unavailable", "unknown outcome", "out of range"}
	if int(c) < len(names) {
		return names[c]
	}
	return "internal"
}

// Error is an error that a user may see: Msg says what is wrong, where, what
// is allowed and what to do next.
type Error struct {
	Code Code
	Msg  string
	Err  error // cause, for the operator's log; may be nil
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Msg + ": " + e.Err.Error()
	}
	return e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error of the given class.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Msg: fmt.Sprintf(format, args...)}
}

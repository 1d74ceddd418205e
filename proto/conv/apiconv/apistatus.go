package apiconv

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
)

// ErrorDomain marks ErrorInfo details made by Berth.
const ErrorDomain = "berth"

// Keys and values of the ErrorInfo's metadata: whether a change was made.
const (
	OutcomeKey     = "outcome"
	OutcomeUnknown = "UNKNOWN"
	OutcomeNotDone = "NOT_DONE"
)

// errorTable pairs each class of error with its status code and the reason by which
// clients recover the class: several classes may share a status code with errors
// that gRPC itself makes.
var errorTable = [...]struct {
	code   codes.Code
	reason string
}{
	cluster.CodeInternal:        {codes.Internal, "INTERNAL"},
	cluster.CodeInvalid:         {codes.InvalidArgument, "INVALID"},
	cluster.CodeNotFound:        {codes.NotFound, "NOT_FOUND"},
	cluster.CodeAlreadyExists:   {codes.AlreadyExists, "ALREADY_EXISTS"},
	cluster.CodeDenied:          {codes.PermissionDenied, "DENIED"},
	cluster.CodeUnauthenticated: {codes.Unauthenticated, "UNAUTHENTICATED"},
	cluster.CodeConflict:        {codes.FailedPrecondition, "CONFLICT"},
	cluster.CodeExhausted:       {codes.ResourceExhausted, "EXHAUSTED"},
	cluster.CodeUnavailable:     {codes.Unavailable, "UNAVAILABLE"},
	cluster.CodeUnknown:         {codes.Unknown, "OUTCOME_UNKNOWN"},
	cluster.CodeOutOfRange:      {codes.OutOfRange, "OUT_OF_RANGE"},
}

// Reason returns the word by which clients recover a class of errors.
func Reason(code cluster.Code) string {
	if int(code) >= len(errorTable) {
		code = cluster.CodeInternal
	}
	return errorTable[code].reason
}

// ClassOf returns the class named by a reason; false if there is none.
func ClassOf(reason string) (cluster.Code, bool) {
	for code, row := range errorTable {
		if row.reason == reason {
			return cluster.Code(code), true
		}
	}
	return 0, false
}

// internalMsg is all that users learn of an internal error.
const internalMsg = "internal error; see the coordinator's log"

// Status converts err for the wire: its class as status code and as ErrorInfo, with
// the outcome UNKNOWN for CodeUnknown, none for CodeInternal and NOT_DONE for all
// others. The cause err.Err never leaves the process, nor does the message of
// CodeInternal.
func Status(err *cluster.Error) *status.Status {
	code := err.Code
	if int(code) >= len(errorTable) {
		code = cluster.CodeInternal
	}
	row, msg := errorTable[code], err.Msg
	info := &errdetails.ErrorInfo{Reason: row.reason, Domain: ErrorDomain}
	switch code {
	case cluster.CodeInternal:
		msg = internalMsg
	case cluster.CodeUnknown:
		info.Metadata = map[string]string{OutcomeKey: OutcomeUnknown}
	default:
		info.Metadata = map[string]string{OutcomeKey: OutcomeNotDone}
	}
	st := status.New(row.code, msg)
	if with, err := st.WithDetails(info); err == nil {
		return with
	}
	return st
}

// StatusAfter returns the Status of a request that was certainly not done, and may
// be retried after a while.
func StatusAfter(err *cluster.Error, after time.Duration) *status.Status {
	st := Status(err)
	if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}); err == nil {
		return with
	}
	return st
}

// RetryAfter returns after how long a server wants a request to be retried; false
// if it does not say.
func RetryAfter(err error) (time.Duration, bool) {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().CheckValid() == nil {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}

// FromStatus converts an error of a call on the client's side; nil for nil. The
// message is the server's. An error that did not come from a Berth server but from
// the connection, a deadline or a cancellation is CodeUnknown: the request may have
// arrived. Callers that know it was never sent make it CodeUnavailable.
func FromStatus(err error) *cluster.Error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != ErrorDomain {
			continue
		}
		if code, known := ClassOf(info.GetReason()); known {
			return &cluster.Error{Code: code, Msg: st.Message()}
		}
		if info.GetMetadata()[OutcomeKey] == OutcomeUnknown { // from a newer server
			return &cluster.Error{Code: cluster.CodeUnknown, Msg: st.Message()}
		}
	}
	return &cluster.Error{Code: bareCode(st.Code()), Msg: st.Message()}
}

// bareCode classifies a status without Berth's details.
func bareCode(c codes.Code) cluster.Code {
	switch c {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return cluster.CodeUnknown
	case codes.Unimplemented, codes.Aborted:
		return cluster.CodeConflict
	}
	for code, row := range errorTable {
		if row.code == c {
			return cluster.Code(code)
		}
	}
	return cluster.CodeInternal
}

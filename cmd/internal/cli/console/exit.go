package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/berth-scheduler/berth/cluster"
)

// Exit codes of every command. wait, and submit --wait, exit with the code of
// the job instead of ExitFailed, and with 128+n when signal n ended it.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitUnavailable = 4
	// ExitUnknown means that a change may or may not have been made, or that
	// what was waited for has not ended yet: ask again.
	ExitUnknown     = 75
	ExitInterrupted = 130
)

// ExitError ends the process with Code. With a nil Err nothing is printed.
type ExitError struct {
	Code int
	Err  error
}

// Error implements error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// UsageError is a usage mistake, and the command it was meant for.
type UsageError struct {
	Cmd string // "berth submit"
	Err error
}

// Error implements error.
func (u *UsageError) Error() string { return u.Err.Error() }

// Unwrap returns the cause.
func (u *UsageError) Unwrap() error { return u.Err }

// Usagef returns an error with exit code ExitUsage. The message says what is allowed.
func Usagef(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// Interruption is the cause of a context that a signal ended.
type Interruption struct{ Sig syscall.Signal }

// Error implements error.
func (i *Interruption) Error() string { return "interrupted" }

// Interrupted reports whether err only says that a signal ended the command,
// which needs no message.
func Interrupted(err error) bool {
	_, ok := errors.AsType[*Interruption](err)
	return ok
}

// exitCodes maps the class of an error to an exit code; any other is ExitFailed.
var exitCodes = map[cluster.Code]int{
	cluster.CodeInvalid:     ExitUsage,
	cluster.CodeNotFound:    ExitNotFound,
	cluster.CodeUnavailable: ExitUnavailable,
	cluster.CodeUnknown:     ExitUnknown,
}

// Classify is the only place that decides exit codes. The message is empty
// when there is nothing to say.
func Classify(ctx context.Context, err error) (code int, msg string) {
	if err == nil {
		return ExitDone, ""
	}
	if i, ok := errors.AsType[*Interruption](err); ok {
		return 128 + int(i.Sig), ""
	}
	if exit, ok := errors.AsType[*ExitError](err); ok {
		if exit.Err == nil {
			return exit.Code, ""
		}
		return exit.Code, exit.Err.Error()
	}
	if errors.Is(err, ErrQuiet) {
		return ExitFailed, ""
	}
	if usage, ok := errors.AsType[*UsageError](err); ok {
		msg = usage.Error()
		if usage.Cmd != "" {
			msg += "\nRun '" + usage.Cmd + " --help' for usage."
		}
		return ExitUsage, msg
	}
	if ce, ok := errors.AsType[*cluster.Error](err); ok {
		if code, ok := exitCodes[ce.Code]; ok {
			return code, err.Error()
		}
		return ExitFailed, err.Error()
	}
	var intr *Interruption
	if errors.As(context.Cause(ctx), &intr) && ctx.Err() != nil {
		return 128 + int(intr.Sig), ""
	}
	return ExitFailed, err.Error()
}

// EscapeLines makes control characters other than line ends visible, since
// messages may quote names that others chose.
func EscapeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = Escape(l)
	}
	return strings.Join(lines, "\n")
}

// UnknownChange adds advice to an error of unknown outcome.
func UnknownChange(err error, advice string) error {
	ce, ok := err.(*cluster.Error)
	if !ok || ce.Code != cluster.CodeUnknown {
		return err
	}
	return &cluster.Error{Code: ce.Code, Msg: fmt.Sprintf("%s\nIt may or may not have been done. %s", ce.Msg, advice)}
}

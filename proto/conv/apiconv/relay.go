package apiconv

import (
	"bytes"
	"syscall"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Limits on kept commands.
const (
	maxSessionName = 64
	// AgainSession is the session of a command that is requested again with the
	// same request id, since the first answer was lost. Agents that do not know
	// request ids refuse it.
	AgainSession = "request"
)

// Limits on one frame of an attached stream.
const (
	// MaxFrameData bounds the bytes of one frame.
	MaxFrameData = 64 << 10
	// FrameData is how much senders put into one: gRPC keeps messages in buffers of
	// 32 KiB, and larger ones in buffers of 1 MiB.
	FrameData = 31 << 10
	// MaxBefore bounds AttachLogs.before.
	MaxBefore = 4 << 10
	// MaxAttachArgs bounds the bytes of a command, plus one byte for each argument.
	MaxAttachArgs = 128 << 10
	maxWindow     = 1<<16 - 1
	maxTermName   = 64
)

// CheckAttach returns what is wrong with the request that opens a stream.
func CheckAttach(o *apiv1.AttachOpen) error {
	if o.GetJob() == 0 {
		return cluster.Errorf(cluster.CodeInvalid, "open: the first request must say which job")
	}
	switch what := o.GetWhat().(type) {
	case *apiv1.AttachOpen_Logs:
		l := what.Logs
		switch {
		case l.GetOffset() < 0:
			return cluster.Errorf(cluster.CodeInvalid, "offset: %d, must be 0 or more", l.GetOffset())
		case l.TailLines != nil && l.GetTailLines() < 0:
			return cluster.Errorf(cluster.CodeInvalid, "tail_lines: %d, must be 0 or more", l.GetTailLines())
		case l.TailLines != nil && l.GetOffset() > 0:
			return cluster.Errorf(cluster.CodeInvalid, "offset and tail_lines: only one of them says where to begin")
		case len(l.GetBefore()) > MaxBefore || int64(len(l.GetBefore())) > l.GetOffset():
			return cluster.Errorf(cluster.CodeInvalid, "before: %d bytes, at most %d and not more than the offset are allowed", len(l.GetBefore()), MaxBefore)
		}
		return nil
	case *apiv1.AttachOpen_Exec:
		return checkExec(what.Exec)
	case *apiv1.AttachOpen_Sessions:
		return nil
	case *apiv1.AttachOpen_Signal:
		return checkSignal(what.Signal)
	case *apiv1.AttachOpen_Series:
		return cluster.Errorf(cluster.CodeInvalid, "open: series is what coordinators ask nodes for; GetSeries of SeriesService says what the GPUs of a job showed")
	}
	return cluster.Errorf(cluster.CodeInvalid, "open: neither logs nor exec; the other side is newer, or older by too much")
}

// Lengths of request ids.
const (
	minRequestID = 16
	maxRequestID = 64
)

// CheckRequestID returns what is wrong with a client-made id, nil for nothing.
func CheckRequestID(id string) error {
	if n := len(id); n < minRequestID || n > maxRequestID {
		return cluster.Errorf(cluster.CodeInvalid, "request_id: %d characters, must have %d to %d; make a random one and keep it for retries", n, minRequestID, maxRequestID)
	}
	for _, b := range []byte(id) {
		if b <= ' ' || b > '~' {
			return cluster.Errorf(cluster.CodeInvalid, "request_id: holds byte %#x; only printable ASCII without spaces is allowed", b)
		}
	}
	return nil
}

// maxSignal is the highest signal.
const maxSignal = 64

func checkSignal(x *apiv1.AttachSignal) error {
	switch n := x.GetNumber(); {
	case n == uint32(syscall.SIGKILL):
		return cluster.Errorf(cluster.CodeInvalid, "signal: KILL ends a job, which cancelling it does")
	case n == 0 || n > maxSignal:
		return cluster.Errorf(cluster.CodeInvalid, "signal: %d, must be 1 to %d", n, maxSignal)
	case x.GetFirst() && x.GetAll():
		return cluster.Errorf(cluster.CodeInvalid, "signal: to the first process or to all of them, not both")
	}
	return CheckRequestID(x.GetRequestId())
}

func checkExec(x *apiv1.AttachExec) error {
	if x.GetRequestId() != "" {
		if err := CheckRequestID(x.GetRequestId()); err != nil {
			return err
		}
	}
	if len(x.GetSession()) > maxSessionName {
		return cluster.Errorf(cluster.CodeInvalid, "session: %d bytes, at most %d are allowed", len(x.GetSession()), maxSessionName)
	}
	if keep := x.GetKeep(); keep != nil && (keep.CheckValid() != nil || keep.AsDuration() < 0) {
		return cluster.Errorf(cluster.CodeInvalid, "keep: %v, must be a time of 0 or more", keep)
	}
	size := 0
	for _, list := range [][][]byte{x.GetEnv(), x.GetCommand()} {
		n, err := checkWords(list)
		if err != nil {
			return err
		}
		size += n
	}
	if size > MaxAttachArgs {
		return cluster.Errorf(cluster.CodeInvalid, "command: %d bytes with its variables, at most %d are allowed", size, MaxAttachArgs)
	}
	if len(x.GetCommand()) > 0 && len(x.GetCommand()[0]) == 0 {
		return cluster.Errorf(cluster.CodeInvalid, "command: its name is empty")
	}
	return checkTerminal(x)
}

// checkWords returns the total bytes of arguments or variables.
func checkWords(list [][]byte) (size int, err error) {
	for _, arg := range list {
		size += len(arg) + 1
		if bytes.IndexByte(arg, 0) >= 0 {
			return 0, cluster.Errorf(cluster.CodeInvalid, "command: an argument holds a zero byte, which no program can be given")
		}
	}
	return size, nil
}

func checkTerminal(x *apiv1.AttachExec) error {
	if len(x.GetTerm()) > maxTermName {
		return cluster.Errorf(cluster.CodeInvalid, "term: %d bytes, at most %d are allowed", len(x.GetTerm()), maxTermName)
	}
	for _, b := range []byte(x.GetTerm()) {
		if b <= ' ' || b > '~' {
			return cluster.Errorf(cluster.CodeInvalid, "term: holds byte %#x; only printable ASCII without spaces is allowed", b)
		}
	}
	return CheckWindow(x.GetWindow())
}

// CheckWindow returns what is wrong with the size of a window, nil for nothing.
func CheckWindow(w *apiv1.WindowSize) error {
	if w.GetRows() > maxWindow || w.GetColumns() > maxWindow {
		return cluster.Errorf(cluster.CodeInvalid, "window: %d rows and %d columns, at most %d are allowed", w.GetRows(), w.GetColumns(), maxWindow)
	}
	return nil
}

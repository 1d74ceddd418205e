package attempt

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/health"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const maxFaults = 8 // kinds of faults kept for one attempt

// Faults are the faults of an attempt's GPUs, each kind once.
type Faults []Fault

// Fault is a kind of fault and how often it occurred.
type Fault struct {
	health.Fault
	Times int
}

// Add records a fault, and reports whether it is of a new kind.
func (fs *Faults) Add(f health.Fault) (news bool) {
	same := func(b Fault) bool { return b.UUID == f.UUID && b.Xid.Code == f.Xid.Code && b.Lost == f.Lost }
	if i := slices.IndexFunc(*fs, same); i >= 0 {
		(*fs)[i].Times++
		return false
	}
	if len(*fs) < maxFaults || f.Xid.Action != health.Record {
		*fs = append(*fs, Fault{Fault: f, Times: 1})
	}
	return true
}

// Worst returns the worst hardware fault that hit an attempt's GPUs while it had them, or
// nil. ended is zero for an attempt that is still running.
func (fs Faults) Worst(began, ended time.Time) (worst *Fault) {
	for i := range fs {
		if b := &fs[i]; b.Xid.Action > health.Record && b.within(began, ended) && (worst == nil || b.Xid.Action > worst.Xid.Action) {
			worst = b
		}
	}
	return worst
}

// Cause returns why a running attempt must end because of its GPUs, if it must; server is
// the fault of the server through which it shares one.
func (fs Faults) Cause(l Life, server *ServerFault) Cause {
	if b := fs.Worst(l.Started, time.Time{}); b != nil && b.Xid.Action == health.End {
		return CardGone
	}
	if server != nil {
		return CardFault
	}
	return NoCause
}

// within reports whether a fault occurred between two instants. The kernel's and the
// runtimes' clocks are read at different moments.
func (b *Fault) within(began, ended time.Time) bool {
	const slack = time.Second
	return (began.IsZero() || !b.At.Before(began.Add(-slack))) && (ended.IsZero() || !b.At.After(ended.Add(slack)))
}

// span returns when an ended attempt began and ended.
func span(r *nodev1.Report, l Life) (began, ended time.Time) {
	if r.Started != nil {
		return r.Started.AsTime(), r.Ended.AsTime()
	}
	return l.Started, r.Ended.AsTime()
}

// Culprit returns the hardware fault that hit an ended attempt, or nil.
func (fs Faults) Culprit(r *nodev1.Report, l Life) *Fault { return fs.Worst(span(r, l)) }

// Blame changes how an attempt with that many GPUs ended according to its faults: a
// hardware fault is not the user's failure. It reports whether anything changed.
func (fs Faults) Blame(r *nodev1.Report, l Life, cards int) bool {
	b := fs.Culprit(r, l)
	switch r.State {
	case nodev1.AttemptState_ATTEMPT_STATE_FAILED, nodev1.AttemptState_ATTEMPT_STATE_TIMEOUT:
	case nodev1.AttemptState_ATTEMPT_STATE_COMPLETED:
		if l.Cause != CardGone {
			return false
		}
	default:
		b = nil
	}
	if b == nil {
		return fs.mention(r, l, cards)
	}
	detail := fmt.Sprintf("GPU %s: %s", b.UUID, b.String())
	switch {
	case r.Exit.GetSignal() != 0:
		detail += fmt.Sprintf("; it ended by signal %d", r.Exit.Signal)
	case r.Exit != nil:
		detail += fmt.Sprintf("; it ended with exit code %d", r.Exit.Code)
	}
	r.State, r.Reason, r.Detail = nodev1.AttemptState_ATTEMPT_STATE_LOST, string(cluster.ReasonGPUFault), detail
	return true
}

// mention adds the faults of the attempt's GPUs to a report, once.
func (fs Faults) mention(r *nodev1.Report, l Life, cards int) bool {
	if r.State == nodev1.AttemptState_ATTEMPT_STATE_COMPLETED || r.Reason == string(cluster.ReasonGPUFault) {
		return false
	}
	began, ended := span(r, l)
	var words []string
	for i := range fs {
		b := &fs[i]
		if !b.within(began, ended) {
			continue
		}
		w := "GPU " + b.UUID + " reported " + b.String()
		if cards < 2 {
			w = "its GPU reported " + b.String()
		}
		if b.Times > 1 {
			w += fmt.Sprintf(" (%d times)", b.Times)
		}
		words = append(words, w)
	}
	text := strings.Join(words, "; ")
	if text == "" || strings.Contains(r.Detail, text) {
		return false
	}
	r.Detail = strings.TrimPrefix(r.Detail+"; "+text, "; ")
	return true
}

package gpu

import (
	"context"
	"fmt"
	"time"
)

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	// EventXid is a fault that the driver reports with a number; NVML reports the critical
	// ones. Event.Xid is set.
	EventXid EventKind = iota + 1
	// EventLost is a GPU that no longer answers or has left the bus.
	EventLost
	// EventECC is an uncorrectable memory error.
	EventECC
	// EventRemap reports that memory rows will be remapped at the next reset, or could not
	// be.
	EventRemap
)

// String returns the kind in lower case.
func (k EventKind) String() string {
	switch k {
	case EventXid:
		return "xid"
	case EventLost:
		return "lost"
	case EventECC:
		return "ecc"
	case EventRemap:
		return "remap"
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Event is something that happened to a GPU.
type Event struct {
	At   time.Time
	UUID string
	Kind EventKind
	// Xid is the number of an EventXid, otherwise 0.
	Xid    int
	Detail string // human-readable, may be ""
}

// EventSource is a Provider that reports events of its GPUs.
type EventSource interface {
	// Events returns the provider's only channel. A slow reader loses the oldest events and
	// never blocks the provider. Close closes it. A driver without events sends none, which
	// says nothing about any GPU.
	Events() <-chan Event
}

// Health is what a GPU reports of its own condition; what the driver does not report is
// false.
type Health struct {
	UUID string
	// RemapPending says that the GPU must be reset to replace bad memory rows, RemapFailed
	// that it cannot replace one.
	RemapPending, RemapFailed bool
	// RetirePending says that pages will be retired at the next reset.
	RetirePending bool
}

// HealthReader is a Provider that can read the health of its GPUs.
type HealthReader interface {
	// Health returns one entry per GPU that it could read; errors as in Inventory.
	Health(ctx context.Context) ([]Health, error)
}

// State says whether the driver answers for a GPU.
type State uint8

// The states of a GPU.
const (
	// StateOK: the driver answers for it.
	StateOK State = iota
	// StateUnknown: the driver did not answer several times in a row. No new job may start
	// on the GPU; what runs there is left alone.
	StateUnknown
	// StateLost: the driver reports the GPU as gone, or no longer lists it.
	StateLost
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case StateOK:
		return "ok"
	case StateUnknown:
		return "unknown"
	case StateLost:
		return "lost"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// CardState is the state of one GPU and the reason for it.
type CardState struct {
	UUID   string
	State  State
	Reason string // human-readable; "" when OK
}

// StateSource is a Provider whose driver may stop answering. It answers immediately,
// without asking the driver.
type StateSource interface {
	// States returns the state of every GPU ever seen, and of the instances of those in MIG
	// mode, by UUID. A Provider that lost its driver still returns the last Inventory of
	// those GPUs.
	States() []CardState
	// Changed returns a channel that receives a token after a state, a stray process or the
	// inventory changed. There is one reader.
	Changed() <-chan struct{}
}

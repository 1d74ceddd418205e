package gpu

import (
	"context"
	"fmt"
	"time"
)

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of events.
const (
	// EventXid is a fault that the driver reports with a number; NVML tells of
	// the critical ones. Event.Xid is set.
	EventXid EventKind = iota + 1
	// EventLost says that a card no longer answers or has left the bus.
	EventLost
	// EventECC is a memory error that could not be corrected.
	EventECC
	// EventRemap says that rows of the memory are to be remapped at the next
	// reset, or could not be.
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

// Event is something that befell a card.
type Event struct {
	At   time.Time
	UUID string
	Kind EventKind
	// Xid is the number of an EventXid, else 0.
	Xid    int
	Detail string // for people, may be ""
}

// EventSource is a Provider that tells of what befalls its cards.
type EventSource interface {
	// Events returns the one channel of the provider. A reader that is slow
	// loses the oldest events and never blocks the provider. Close closes it.
	// A driver that cannot tell events gives none, which marks no card.
	Events() <-chan Event
}

// Health is what a card says of its own condition. A count that the driver
// does not give is Unknown.
type Health struct {
	UUID string
	// RemapPending says that the card must be reset to replace bad rows of its
	// memory, RemapFailed that it cannot replace one. Both are false where the
	// driver does not tell.
	RemapPending, RemapFailed bool
	// RemappedCorrectable and RemappedUncorrectable count the rows replaced so
	// far; RetiredPages counts the pages that older cards gave up.
	RemappedCorrectable, RemappedUncorrectable, RetiredPages int64
	// RetirePending says that pages are to be given up at the next reset.
	RetirePending bool
	// ECCCorrected and ECCUncorrected count errors since the driver was loaded,
	// ECCUncorrectedTotal those of the card's whole life.
	ECCCorrected, ECCUncorrected, ECCUncorrectedTotal int64
	// TemperatureC is of the chip.
	TemperatureC int64
	// ThrottleReasons is NVML's bit mask of why the clocks are low.
	ThrottleReasons int64
	// NVLinksDown counts links that the card has and that are not up.
	NVLinksDown int64
}

// HealthReader is a Provider that can read the condition of its cards.
type HealthReader interface {
	// Health returns one entry a card it could read; errors as in Inventory.
	Health(ctx context.Context) ([]Health, error)
}

// State says whether a card can be spoken with.
type State uint8

// The states of a card.
const (
	// StateOK: the driver answers for it.
	StateOK State = iota
	// StateUnknown: the driver did not answer several times in a row. No new
	// job may start on the card; what runs there is left alone.
	StateUnknown
	// StateLost: the driver says that the card is gone, or no longer shows it.
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

// CardState is the state of one card and why.
type CardState struct {
	UUID   string
	State  State
	Reason string // for people; "" when OK
	Since  time.Time
}

// StateSource is a Provider whose driver may fall silent. It answers at once
// and without asking the driver.
type StateSource interface {
	// States returns the state of every card ever seen, and of the instances of
	// those in MIG mode, by UUID. A Provider that lost its driver still gives
	// the last Inventory of those cards.
	States() []CardState
	// Changed returns a channel that holds a token after a state, a stray
	// process or the inventory changed. There is one reader.
	Changed() <-chan struct{}
}

package cluster

import "slices"

// GPUState is what a card's agent says of it. Only a card that is OK takes new
// attempts; what runs on another goes on.
type GPUState uint8

// The states of a card.
const (
	// GPUOK is the zero value: agents that tell no state have sound cards.
	GPUOK GPUState = iota
	// GPUUnknown: the driver does not answer.
	GPUUnknown
	// GPUQuarantined: something of an attempt that ended is still on it, or a
	// check failed. It heals by itself.
	GPUQuarantined
	// GPUFailing: the hardware is at fault, until it was reset or an
	// administrator resumed it.
	GPUFailing
	// GPULost: it is gone from the bus or from the driver.
	GPULost
)

// String returns the state in lower case.
func (s GPUState) String() string {
	switch s {
	case GPUOK:
		return "ok"
	case GPUUnknown:
		return "unknown"
	case GPUQuarantined:
		return "quarantined"
	case GPUFailing:
		return "failing"
	case GPULost:
		return "lost"
	}
	return "unknown"
}

// GPUOrder is what administrators made of one card. It outlives the card's
// absence: who drained it means it also after it was out for a day.
type GPUOrder struct {
	GPU    GPUID
	Drain  bool
	Reason string
	By     UID
	At     Time
	// Resumed is the log index at which it was resumed last, 0 for never. What
	// its agent held against it before is void.
	Resumed uint64
}

// Kinds of NodeEvent beside the names of the states of a card.
const (
	EventRegistered = "registered"
	EventBooted     = "booted"
	EventLost       = "lost"
	EventBack       = "back"
	EventFenced     = "fenced"
	EventDrained    = "drained"
	EventResumed    = "resumed"
	EventProblem    = "problem"
	EventVanished   = "vanished" // its agent no longer reports the card
)

// NodeEvent is something that befell a node or one of its cards.
type NodeEvent struct {
	At Time
	// GPU is "" for the node as a whole.
	GPU          GPUID
	Kind, Detail string
	// Asked tells that a user caused it, and By who.
	Asked bool
	By    UID
}

// MaxHistory is how many events are kept of a node.
const MaxHistory = 20

// Remember returns history with e at its end and at most MaxHistory events, the
// oldest of which are dropped. The argument is not changed.
func Remember(history []NodeEvent, e NodeEvent) []NodeEvent {
	drop := max(0, len(history)+1-MaxHistory)
	return append(slices.Clone(history[drop:]), e)
}

// Order returns what administrators made of a card, nil for nothing.
func (n *Node) Order(id GPUID) *GPUOrder {
	for i := range n.Orders {
		if n.Orders[i].GPU == id {
			return &n.Orders[i]
		}
	}
	return nil
}

// Open reports whether card g of n may be given to new attempts, as far as the
// card goes: its agent finds it sound, and nobody drained it.
func (n *Node) Open(g *GPU) bool {
	if g.State != GPUOK {
		return false
	}
	o := n.Order(g.ID)
	return o == nil || !o.Drain
}

// Why returns in words why card g of n is not open, "" when it is.
func (n *Node) Why(g *GPU) string {
	if o := n.Order(g.ID); o != nil && o.Drain {
		if o.Reason == "" {
			return "drained"
		}
		return "drained: " + o.Reason
	}
	switch {
	case g.State == GPUOK:
		return ""
	case g.StateReason == "":
		return g.State.String()
	}
	return g.State.String() + ": " + g.StateReason
}

package cluster

import (
	"slices"
	"strings"
)

// NodeState reports whether a node takes new jobs.
type NodeState uint8

// The states of a node.
const (
	NodeReady NodeState = iota + 1
	NodeUnreachable
)

// String returns the state in lower case.
func (s NodeState) String() string {
	switch s {
	case NodeReady:
		return "ready"
	case NodeUnreachable:
		return "unreachable"
	}
	return "unknown"
}

// GPU is one card as its agent reported it.
type GPU struct {
	ID    GPUID
	Index int
	// Type is the normalised model, for example "A100-SXM4-80GB".
	Type string
	// MemMiB is the card's memory, SellableMiB what the ledger may give away.
	MemMiB, SellableMiB int64
	// MaxShares is how many attempts may lie on it at once, at least 1.
	MaxShares int
	NUMA      int
	PCI       string
	// CapMode is how a share's memory is enforced: "sim", "dmem", "mig",
	// "mps", "watch" or "none". Cards with "none" are never shared.
	CapMode string
	// Scope says whose jobs may share it under that, and CapReason why the
	// better ways are not used.
	Scope     Scope
	CapReason string
	// Unshared says where an administrator switched sharing off, "" for nowhere. It
	// follows from the switches, and is not stored with the card.
	Unshared string
	// State is what the agent says of it, StateReason why it is not OK.
	State       GPUState
	StateReason string
}

// Shareable reports whether more than one attempt may lie on g.
func (g *GPU) Shareable() bool {
	return g.CapMode != "none" && g.MaxShares > 1 && g.Scope != ScopeNever && g.Unshared == ""
}

// SwitchFeature begins the feature that says where in the network a node is: the names of
// the switches from the network's root to its own, as switch=core:leaf3. RackFeature
// begins the one that names its rack, as rack=r12.
const (
	SwitchFeature = "switch="
	RackFeature   = "rack="
)

// SwitchPath is where in the network n is, core:leaf3, or else its rack; "" where it does
// not say.
func (n *Node) SwitchPath() string {
	rack := ""
	for _, f := range n.Features {
		if path, ok := strings.CutPrefix(f, SwitchFeature); ok {
			return path
		}
		if r, ok := strings.CutPrefix(f, RackFeature); ok {
			rack = r
		}
	}
	return rack
}

// Node is one machine. Values are immutable.
type Node struct {
	ID       NodeID
	Revision uint64
	Address  string
	BootID   string
	State    NodeState
	// Drain is set by an administrator: no new jobs, running ones go on.
	Drain       bool
	DrainReason string
	// DrainUntil is when the drain ends by itself, 0 for never.
	DrainUntil Time
	// CPUMilli and MemMiB are what jobs may use in all.
	CPUMilli, MemMiB int64
	// GPUs are sorted by id.
	GPUs     []GPU
	Runtimes []string
	// Features are what its agent's configuration says that it has, sorted.
	Features []string
	Version  string
	// Registered is when it first came, Changed when its state last did.
	Registered, Changed Time
	// Fence is the log index at which the node was given up last; attempts
	// with a lower token have ended, whatever their agent says. 0 is never.
	Fence uint64
	// Problem is what is wrong with the node as a whole, as its agent says; ""
	// is nothing. It keeps nothing from running there.
	Problem string
	// Orders is what administrators made of single cards, by card.
	Orders []GPUOrder
	// History is the last of what befell the node and its cards, oldest first,
	// at most MaxHistory.
	History []NodeEvent
	// Credentials says that its agent gives jobs their credentials: what they ask
	// of the cluster they must then show them for.
	Credentials bool
	// Power is whether its machine is on.
	Power Power
}

// Schedulable reports whether new attempts may be placed on n.
func (n *Node) Schedulable() bool {
	return n.State == NodeReady && !n.Drain && n.Power.State == PowerUp
}

// Wakeable reports whether n is off, or about to be, and would be powered up for jobs
// that could start there.
func (n *Node) Wakeable() bool {
	switch n.Power.State {
	case PoweringDown, PoweredDown:
		return !n.Drain && !n.Power.Asked
	case PoweringUp:
		return !n.Drain
	}
	return false
}

// PowerState is whether the machine of a node is on.
type PowerState uint8

// The states of power. A node goes up → powering down → powered down → powering up → up.
// One that cannot be powered down is up again, one that does not come back has failed,
// and one that registers is up.
const (
	// PowerUp is the zero value: nothing was ever done to the node.
	PowerUp PowerState = iota
	// PoweringDown: its machine is told to go off, and has not fallen silent yet.
	PoweringDown
	PoweredDown
	// PoweringUp: its machine is told to come on, and has not registered yet.
	PoweringUp
	// PowerFailed: it did not come on. An administrator has to look after it.
	PowerFailed
)

// String returns the state as users read it.
func (s PowerState) String() string {
	switch s {
	case PowerUp:
		return "up"
	case PoweringDown:
		return "powering-down"
	case PoweredDown:
		return "powered-down"
	case PoweringUp:
		return "powering-up"
	case PowerFailed:
		return "down"
	}
	return "unknown"
}

// Power is whether the machine of a node is on, and how it came to that.
type Power struct {
	State PowerState
	// Since is when it came to State; 0 in PowerUp.
	Since Time
	// Asked tells that an administrator, By, had it powered down: it stays down until
	// one has it powered up, whoever waits.
	Asked bool
	By    UID
	// Why is what went wrong last, or why an administrator wanted it.
	Why string
	// NotBefore is when the node may be powered down again after that failed.
	NotBefore Time
}

// Off reports whether the machine is known to be off, or was not heard since it was.
func (p Power) Off() bool { return p.State >= PoweredDown }

// GPU returns the card with the given id, or nil.
func (n *Node) GPU(id GPUID) *GPU {
	for i := range n.GPUs {
		if n.GPUs[i].ID == id {
			return &n.GPUs[i]
		}
	}
	return nil
}

// Largest returns the most memory that each of the GPUs of spec could have on
// n, were n empty, and the type of those; 0 when n could never run it. Only GPUs
// of the types that may allows count, all for nil.
func (n *Node) Largest(spec *Spec, may func(gpuType string) bool) (mib int64, gpuType string) {
	if !spec.Allows(n) || n.CPUMilli < spec.CPUMilli || n.MemMiB < spec.MemMiB {
		return 0, ""
	}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if g.SellableMiB <= mib || spec.GPUType != "" && g.Type != spec.GPUType || may != nil && !may(g.Type) {
			continue
		}
		same := 0
		for k := range n.GPUs {
			if o := &n.GPUs[k]; o.Type == g.Type && o.SellableMiB == g.SellableMiB {
				same++
			}
		}
		if same >= max(1, spec.GPUs) {
			mib, gpuType = g.SellableMiB, g.Type
		}
	}
	return mib, gpuType
}

// Sellable returns how much of a card's memory the ledger may give away:
// all but what the driver reserves and a head-room that absorbs what the
// driver rounds and fragments. The context of each client is part of its
// share, since that is how the driver accounts for it.
func Sellable(memMiB, reservedMiB, headroomMiB int64) int64 {
	return max(0, memMiB-reservedMiB-headroomMiB)
}

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
	EventPower      = "power"    // it was powered down or up, or was to be; see Detail
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

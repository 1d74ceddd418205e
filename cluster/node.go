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

// GPU is one GPU as its agent reported it.
type GPU struct {
	ID    GPUID
	Index int
	// Type is the normalised model, for example "A100-SXM4-80GB".
	Type string
	// MemMiB is the GPU's memory, SellableMiB what the ledger may allocate.
	MemMiB, SellableMiB int64
	// MaxShares is how many attempts may share it at once, at least 1.
	MaxShares int
	NUMA      int
	PCI       string
	// CapMode is how a share's memory is enforced: "sim", "dmem", "mig", "mps",
	// "watch" or "none". GPUs with "none" are never shared.
	CapMode string
	// Scope says whose jobs may share it in that mode, and CapReason why the better
	// modes are not used.
	Scope     Scope
	CapReason string
	// Unshared says where an administrator switched sharing off, "" for nowhere. It
	// is derived from the switches and not stored with the GPU.
	Unshared string
	// State is its health as the agent reports it, StateReason why it is not OK.
	State       GPUState
	StateReason string
}

// Shareable reports whether more than one attempt may run on g at once.
func (g *GPU) Shareable() bool {
	return g.CapMode != "none" && g.MaxShares > 1 && g.Scope != ScopeNever && g.Unshared == ""
}

// SwitchFeature is the prefix of the feature that locates a node in the network:
// the switches from the network's root to its own, as switch=core:leaf3.
// RackFeature is the prefix of the one that names its rack, as rack=r12, DataFeature
// that of those that name the data sets on its disks, as data=imagenet.
const (
	SwitchFeature = "switch="
	RackFeature   = "rack="
	DataFeature   = "data="
)

// SwitchPath returns where n is in the network, core:leaf3, or else its rack; "" if
// it reports neither.
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
	// Drain is set by an administrator: no new jobs start, running ones go on.
	Drain       bool
	DrainReason string
	// DrainUntil is when the drain ends by itself, 0 for never.
	DrainUntil Time
	// CPUMilli and MemMiB are the totals that jobs may use.
	CPUMilli, MemMiB int64
	// GPUs are sorted by id.
	GPUs     []GPU
	Runtimes []string
	// Features are the features in its agent's configuration, sorted.
	Features []string
	Version  string
	// Registered is when it first registered, Changed when its state last changed.
	Registered, Changed Time
	// Fence is the log index at which the node was last fenced; attempts with a
	// lower token have ended, whatever its agent says. 0 is never.
	Fence uint64
	// Driver is the version of its GPUs' driver, one word; "" is unknown.
	Driver string
	// Problem is what its agent says is wrong with the node as a whole; "" is
	// nothing. It does not keep jobs from running there.
	Problem string
	// Orders are the administrators' orders for single GPUs, by GPU.
	Orders []GPUOrder
	// History holds the latest events of the node and its GPUs, oldest first, at
	// most MaxHistory.
	History []NodeEvent
	// Credentials means that its agent gives jobs their credentials, which they
	// must then present with requests to the cluster.
	Credentials bool
	// Power says whether its machine is on.
	Power Power
}

// Schedulable reports whether new attempts may be placed on n.
func (n *Node) Schedulable() bool {
	return n.State == NodeReady && !n.Drain && n.Power.State == PowerUp
}

// Wakeable reports whether n is off, or about to be, and would be powered up for
// jobs that could start there.
func (n *Node) Wakeable() bool {
	switch n.Power.State {
	case PoweringDown, PoweredDown:
		return !n.Drain && !n.Power.Asked
	case PoweringUp:
		return !n.Drain
	}
	return false
}

// PowerState says whether the machine of a node is on.
type PowerState uint8

// The power states. A node goes up → powering down → powered down → powering up →
// up. A node that cannot be powered down is up again, one that does not come back
// has failed, and one that registers is up.
const (
	// PowerUp is the zero value, also of nodes never powered down.
	PowerUp PowerState = iota
	// PoweringDown: its machine was told to power off and is not silent yet.
	PoweringDown
	PoweredDown
	// PoweringUp: its machine was told to power on and has not registered yet.
	PoweringUp
	// PowerFailed: it did not come on and needs an administrator.
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

// Power says whether the machine of a node is on, and why.
type Power struct {
	State PowerState
	// Since is when it entered State; 0 in PowerUp.
	Since Time
	// Asked means that an administrator, By, had it powered down: it stays down
	// until one has it powered up, whatever jobs wait.
	Asked bool
	By    UID
	// Why is what last went wrong, or the administrator's reason.
	Why string
	// NotBefore is when the node may be powered down again after a failure to do
	// so.
	NotBefore Time
}

// Off reports whether the machine is known to be off, or has not been heard from
// since it was.
func (p Power) Off() bool { return p.State >= PoweredDown }

// GPU returns the GPU with the given id, or nil.
func (n *Node) GPU(id GPUID) *GPU {
	for i := range n.GPUs {
		if n.GPUs[i].ID == id {
			return &n.GPUs[i]
		}
	}
	return nil
}

// Largest returns the most memory that each GPU of spec could have on n if n were
// empty, and the type of those GPUs; 0 if n could never run it. Only GPUs of types
// for which may is true count; a nil may allows all.
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

// Sellable returns how much of a GPU's memory the ledger may allocate: all but what
// the driver reserves and a headroom for the driver's rounding and fragmentation.
// The CUDA context of each client is part of its share, since the driver accounts
// for it that way.
func Sellable(memMiB, reservedMiB, headroomMiB int64) int64 {
	return max(0, memMiB-reservedMiB-headroomMiB)
}

// GPUState is a GPU's health as its agent reports it. Only a GPU that is OK takes
// new attempts; running ones go on.
type GPUState uint8

// The states of a GPU.
const (
	// GPUOK is the zero value: agents that report no state have healthy GPUs.
	GPUOK GPUState = iota
	// GPUUnknown: the driver does not answer.
	GPUUnknown
	// GPUQuarantined: something of an attempt that ended is still on it, or a check
	// failed. It recovers by itself.
	GPUQuarantined
	// GPUFailing: the hardware is faulty, until it is reset or an administrator
	// resumes it.
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

// GPUOrder is what administrators ordered for one GPU. It outlives the GPU's
// absence: a drained GPU is still drained when it comes back.
type GPUOrder struct {
	GPU    GPUID
	Drain  bool
	Reason string
	By     UID
	At     Time
	// Resumed is the log index at which it was last resumed, 0 for never. Its
	// agent's earlier complaints about it are void.
	Resumed uint64
}

// Kinds of NodeEvent besides the names of GPU states.
const (
	EventRegistered = "registered"
	EventBooted     = "booted"
	EventLost       = "lost"
	EventBack       = "back"
	EventFenced     = "fenced"
	EventDrained    = "drained"
	EventResumed    = "resumed"
	EventProblem    = "problem"
	EventVanished   = "vanished" // its agent no longer reports the GPU
	EventPower      = "power"    // it was powered down or up, or was to be; see Detail
)

// NodeEvent is something that happened to a node or one of its GPUs.
type NodeEvent struct {
	At Time
	// GPU is "" for the node as a whole.
	GPU          GPUID
	Kind, Detail string
	// Asked means that a user, By, caused it.
	Asked bool
	By    UID
}

// MaxHistory is how many events are kept per node.
const MaxHistory = 20

// Remember returns history with e appended, without its oldest events beyond
// MaxHistory. The argument is not changed.
func Remember(history []NodeEvent, e NodeEvent) []NodeEvent {
	drop := max(0, len(history)+1-MaxHistory)
	return append(slices.Clone(history[drop:]), e)
}

// Order returns the administrators' order for a GPU, nil for none.
func (n *Node) Order(id GPUID) *GPUOrder {
	for i := range n.Orders {
		if n.Orders[i].GPU == id {
			return &n.Orders[i]
		}
	}
	return nil
}

// Open reports whether GPU g of n may be given to new attempts as far as the GPU
// itself goes: its agent finds it healthy, and nobody drained it.
func (n *Node) Open(g *GPU) bool {
	if g.State != GPUOK {
		return false
	}
	o := n.Order(g.ID)
	return o == nil || !o.Drain
}

// Why returns in words why GPU g of n is not open, "" if it is.
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

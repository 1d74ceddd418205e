package cluster

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
}

// Schedulable reports whether new attempts may be placed on n.
func (n *Node) Schedulable() bool { return n.State == NodeReady && !n.Drain }

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

package nodes

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/proto/gossip"
)

const (
	// hintLife is how long a node's gossip is considered; in clusters with more
	// than hintNodes members agents speak less often, and it lasts correspondingly
	// longer.
	hintLife  = 20 * time.Second
	hintNodes = 500
	// mostQuiet is how long a leader that does not hear a node waits at most before
	// it reports that others do.
	mostQuiet = 12 * time.Second
	// minHintKey is the least valid length of a key.
	minHintKey = 16
)

// hints is what nodes gossip about themselves. It may be wrong or forged, except
// for what is signed with a key that the node told the leader in its session. So it
// is shown, and what is signed keeps new jobs from memory that others hold; nothing
// is placed or ended because of it.
type hints struct {
	clock func() time.Time
	log   *slog.Logger
	known func(cluster.NodeID) bool   // whether the node exists
	keyOf func(cluster.NodeID) []byte // nil if it has sent none
	size  func() int                  // how many members there are

	mu      sync.Mutex
	of      map[cluster.NodeID]hint
	refused uint64
}

type hint struct {
	gossip.Capacity
	at     time.Time
	signed bool
}

// hear records a node's message, as received, and reports whether it was news. Only
// registered nodes are listened to, so what is held is bounded.
func (h *hints) hear(b []byte) bool {
	c, err := gossip.ParseCapacity(b)
	node := cluster.NodeID(c.Node)
	if err != nil || !h.known(node) {
		h.log.Debug("ignored a gossip message", "node", string(node), "err", err)
		return false
	}
	key := h.keyOf(node)
	signed := len(key) >= minHintKey
	h.mu.Lock()
	defer h.mu.Unlock()
	if signed && !gossip.Signed(b, key) {
		h.refused++
		return false
	}
	if old, ok := h.of[node]; ok && old.signed == signed && !c.Newer(old.Capacity) {
		return false
	}
	h.of[node] = hint{c, h.clock(), signed}
	return true
}

// get returns what a node recently said.
func (h *hints) get(node cluster.NodeID) (hint, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.of[node]
	if !ok || h.clock().Sub(t.at) > h.life() {
		return hint{}, false
	}
	return t, true
}

func (h *hints) life() time.Duration { return hintLife * time.Duration(1+h.size()/hintNodes) }

// gpu returns what a node recently said of one of its GPUs.
func (t *hint) gpu(id cluster.GPUID) (gossip.GPU, bool) {
	hash := gossip.UUIDHash(string(id))
	i := slices.IndexFunc(t.GPUs, func(g gossip.GPU) bool { return g.ID == hash })
	if i < 0 {
		return gossip.GPU{}, false
	}
	return t.GPUs[i], true
}

// strayed returns the nodes whose signed gossip says that stray processes hold some
// of their GPUs.
func (h *hints) strayed() []cluster.NodeID {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []cluster.NodeID
	for id, t := range h.of {
		if t.signed && h.clock().Sub(t.at) <= h.life() && slices.ContainsFunc(t.GPUs, func(g gossip.GPU) bool { return g.StrayMiB > 0 }) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// refusals returns how many messages were not signed by the node that they concern.
func (h *hints) refusals() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}

// CutOff describes a node that this leader does not hear while others do, "" for
// any other.
func (n *Nodes) CutOff(id cluster.NodeID) string {
	t, ok := n.hints.get(id)
	if !ok || n.office.Term() == nil {
		return ""
	}
	// One that is powered down may gossip for longer than it calls.
	if node, known := n.fsm.Node(id); known && node.Power.State != cluster.PowerUp && node.Power.State != cluster.PowerFailed {
		return ""
	}
	// A node that went down was heard both ways until then.
	last, now, quiet := n.live.heardAt(id), n.clock(), min(mostQuiet, n.cfg.Lease/2)
	if now.Sub(last) < quiet || t.at.Sub(last) < quiet/2 {
		return ""
	}
	return fmt.Sprintf("the leader, %s, has not heard its agent for %s, and others heard it %s ago; look at the network between the two and at the agent's log",
		n.cfg.ID, now.Sub(last).Round(time.Second), now.Sub(t.at).Round(time.Second))
}

// Gossip is what is known of the gossip as a whole.
type Gossip struct {
	Members  int    // including this one; 0 if it is off
	Refused  uint64 // messages not signed by their node
	StrayMiB int64  // withheld only because of gossip
	CutOff   int    // nodes that others hear but this leader does not
}

// Gossip returns the counts.
func (n *Nodes) Gossip() Gossip {
	out := Gossip{Members: n.members.count(), Refused: n.hints.refusals()}
	for _, o := range n.fsm.Nodes() {
		if n.CutOff(o.ID) != "" {
			out.CutOff++
		}
	}
	for _, mib := range n.Held() {
		out.StrayMiB += mib
	}
	return out
}

// StrayMiB returns what stray processes hold of a GPU by its node's gossip, beyond
// what the node told the leader in its session: the ledger does not know of it yet.
func (n *Nodes) StrayMiB(node cluster.NodeID, gpu cluster.GPUID) int64 {
	t, ok := n.hints.get(node)
	if !ok || !t.signed {
		return 0
	}
	g, _ := t.gpu(gpu)
	return max(0, int64(g.StrayMiB)-n.live.details(node)[gpu].GetStrayMib())
}

// Held returns StrayMiB for all GPUs where it is not 0.
func (n *Nodes) Held() map[cluster.GPUID]int64 {
	var held map[cluster.GPUID]int64
	for _, id := range n.hints.strayed() {
		o, ok := n.fsm.Node(id)
		if !ok {
			continue
		}
		for i := range o.GPUs {
			if mib := n.StrayMiB(id, o.GPUs[i].ID); mib > 0 {
				if held == nil {
					held = map[cluster.GPUID]int64{}
				}
				held[o.GPUs[i].ID] = mib
			}
		}
	}
	return held
}

package nodes

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/series"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/scheduler/mig"
)

// liveness holds what the leader last heard of each node. It is soft state: a new
// leader gives every node a whole lease to call.
type liveness struct {
	fsm   *fsm.FSM
	prop  *proposer.Proposer
	clock func() time.Time
	lease time.Duration
	log   *slog.Logger

	mu    sync.Mutex
	since time.Time // since when this coordinator listens
	nodes map[cluster.NodeID]*contact
	// strayed are the nodes with GPUs that are used outside Berth.
	strayed map[cluster.NodeID]struct{}
	// cut are the GPUs in MIG mode of nodes whose agents replace instances.
	cut map[cluster.NodeID][]mig.Card
	// series is what was measured on GPUs; it is per term, too.
	series shown
	// held are the nodes that hold an image, by its names and digests. Its slices
	// are replaced, never modified.
	held map[string][]cluster.NodeID
}

type contact struct {
	last time.Time
	// of is the node whose GPUs cards are, in its order.
	of    *cluster.Node
	cards []card
	// uses are the latest uses of its attempts.
	uses map[cluster.AttemptID]Use
	// tells means that one of them has progress or a pull.
	tells bool
	// curves are their reported metrics.
	curves curves
	// detail is what the node's newest hello says of its GPUs; replaced, never
	// modified.
	detail map[cluster.GPUID]*apiv1.GPUDetail
	// images are what it holds, by name and by digest, sorted.
	images []string
	// key is what its agent signs its gossip with.
	key []byte
}

// card is what was measured on a GPU.
type card struct {
	id   cluster.GPUID
	last *nodev1.GPUUsage // nil for nothing
	ring *series.Ring     // nil if there are too many
}

func newLiveness(d Needs, lease time.Duration) *liveness {
	return &liveness{
		fsm: d.FSM, prop: d.Proposer, clock: d.Clock, lease: lease, log: d.Log,
		nodes: map[cluster.NodeID]*contact{}, strayed: map[cluster.NodeID]struct{}{}, cut: map[cluster.NodeID][]mig.Card{}, series: shown{}, held: map[string][]cluster.NodeID{}}
}

// reset begins a term: no node was heard yet.
func (l *liveness) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = l.clock()
	clear(l.nodes)
	clear(l.strayed)
	clear(l.cut)
	clear(l.series)
	clear(l.held)
}

// heard records a sign of life, and what was measured on the node's GPUs.
func (l *liveness) heard(node cluster.NodeID, gpus []*nodev1.GPUUsage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		n = &contact{}
		l.nodes[node] = n
	}
	n.last = l.clock()
	if len(gpus) == 0 {
		return
	}
	// Only GPUs that it registered: a node's root may send any.
	known, ok := l.fsm.Node(node)
	if !ok {
		return
	}
	if n.of != known { // nodes are immutable
		n.of, n.cards = known, l.cardsOf(known, n.cards)
	}
	for i, g := range gpus {
		if i >= len(n.cards) || n.cards[i].id != cluster.GPUID(g.Uuid) {
			i = slices.IndexFunc(n.cards, func(c card) bool { return c.id == cluster.GPUID(g.Uuid) })
		}
		if i < 0 {
			continue
		}
		c := &n.cards[i]
		if c.last = g; c.ring != nil {
			c.ring.Add(n.last, series.Reading{UsedMiB: g.UsedMib, UtilMilli: g.UtilMilli, PowerW: g.PowerW})
		}
	}
}

// cardsOf returns the GPUs of a node, with what was measured on them before.
func (l *liveness) cardsOf(n *cluster.Node, before []card) []card {
	cards := make([]card, len(n.GPUs))
	for i := range n.GPUs {
		c := card{id: n.GPUs[i].ID, ring: l.series.ring(n.GPUs[i].ID)}
		if k := slices.IndexFunc(before, func(b card) bool { return b.id == c.id }); k >= 0 {
			c.last = before[k].last
		}
		cards[i] = c
	}
	return cards
}

// described records what a hello says of the node's GPUs, those of them that can be
// cut anew, and its agent's signing key.
func (l *liveness) described(node cluster.NodeID, gpus []*nodev1.GPU, cards []mig.Card, key []byte) {
	detail := make(map[cluster.GPUID]*apiv1.GPUDetail, len(gpus))
	strayed := false
	for _, g := range gpus {
		detail[cluster.GPUID(g.Uuid)] = conv.DetailFromHello(g)
		strayed = strayed || g.StrayMib > 0
	}
	l.heard(node, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.strayed, node); strayed {
		l.strayed[node] = struct{}{}
	}
	if delete(l.cut, node); len(cards) > 0 {
		l.cut[node] = cards
	}
	if n := l.nodes[node]; n != nil { // a term may have begun meanwhile
		n.detail, n.key = detail, key
	}
}

// key returns what a node signs its gossip with, as it said in this term.
func (l *liveness) key(node cluster.NodeID) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nodes[node]; n != nil {
		return n.key
	}
	return nil
}

// details returns what the node last said of its GPUs in this term.
func (l *liveness) details(node cluster.NodeID) map[cluster.GPUID]*apiv1.GPUDetail {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nodes[node]; n != nil {
		return n.detail
	}
	return nil
}

// last returns when node was last heard, zero if not in this term, and what was
// measured on each of its GPUs, or nil.
func (l *liveness) last(node cluster.NodeID) (time.Time, map[cluster.GPUID]*nodev1.GPUUsage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		return time.Time{}, nil
	}
	gpus := make(map[cluster.GPUID]*nodev1.GPUUsage, len(n.cards))
	for i := range n.cards {
		if c := &n.cards[i]; c.last != nil {
			gpus[c.id] = c.last
		}
	}
	return n.last, gpus
}

// run declares nodes unreachable whose lease ran out, until ctx ends.
func (l *liveness) run(ctx context.Context) error {
	every := min(time.Second, l.lease/4)
	for {
		for _, n := range l.silent() {
			_, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_SetNodeState{SetNodeState: &logv1.SetNodeState{
				Node: string(n.ID), State: uint32(cluster.NodeUnreachable), BootId: n.BootID,
			}}})
			if err == nil {
				l.log.WarnContext(ctx, "node is silent; its jobs are unreachable", "node", string(n.ID), "dur", l.lease)
			} else if ctx.Err() == nil {
				l.log.WarnContext(ctx, "cannot record a silent node", "node", string(n.ID), "err", err)
			}
		}
		slept := l.clock()
		if !wait.Sleep(ctx, every) {
			return ctx.Err()
		}
		if l.clock().Sub(slept) > every+l.lease/2 {
			l.pardon()
		}
	}
}

// pardon gives every node a whole lease again: this process itself was stalled, and
// has not yet read what the nodes sent meanwhile.
func (l *liveness) pardon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = l.clock()
	l.log.Warn("this coordinator was paused; nodes get a whole lease to call")
}

func (l *liveness) silent() []*cluster.Node {
	now := l.clock()
	var out []*cluster.Node
	for _, n := range l.fsm.Nodes() {
		if n.State != cluster.NodeReady {
			continue
		}
		if now.Sub(l.heardAt(n.ID)) > l.lease {
			out = append(out, n)
		}
	}
	return out
}

// heardAt returns when a node was last heard, or when this coordinator began to
// listen.
func (l *liveness) heardAt(node cluster.NodeID) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nodes[node]; n != nil && n.last.After(l.since) {
		return n.last
	}
	return l.since
}

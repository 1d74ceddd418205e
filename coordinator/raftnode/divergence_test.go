package raftnode

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// These two tests belong together. The first shows that raft's own transport
// lets replicas diverge under one interleaving; the second, that ours does not
// under the same. If the first stops diverging, raft has been mended or the
// interleaving no longer happens, and the second proves nothing.

// gate stands in front of a transport and holds calls back.
type gate struct {
	raft.Transport
	preVote raft.WithPreVote
	cut     atomic.Bool // of everything that we send
	mu      sync.Mutex
	blocked map[raft.ServerAddress]blockKind
}

type blockKind int

const (
	blockNothing blockKind = iota
	blockEntries           // all but heartbeats
	blockAll
)

var errGate = errors.New("held back by the test")

func (g *gate) block(a raft.ServerAddress, k blockKind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blocked[a] = k
}

func (g *gate) pass(a raft.ServerAddress, heartbeat bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k := g.blocked[a]; g.cut.Load() || k == blockAll || k == blockEntries && !heartbeat {
		return errGate
	}
	return nil
}

func (g *gate) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (g *gate) AppendEntries(id raft.ServerID, a raft.ServerAddress, q *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse) error {
	heartbeat := q.PrevLogEntry == 0 && q.PrevLogTerm == 0 && len(q.Entries) == 0 && q.LeaderCommitIndex == 0
	if err := g.pass(a, heartbeat); err != nil {
		return err
	}
	return g.Transport.AppendEntries(id, a, q, r)
}

func (g *gate) RequestVote(id raft.ServerID, a raft.ServerAddress, q *raft.RequestVoteRequest, r *raft.RequestVoteResponse) error {
	if err := g.pass(a, false); err != nil {
		return err
	}
	return g.Transport.RequestVote(id, a, q, r)
}

func (g *gate) RequestPreVote(id raft.ServerID, a raft.ServerAddress, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
	if err := g.pass(a, false); err != nil {
		return err
	}
	return g.preVote.RequestPreVote(id, a, q, r)
}

type gated struct {
	*raft.Raft
	fsm  *listFSM
	gate *gate
}

// heartbeats says which transport a node gets.
type heartbeats string

const (
	besideTheLoop  heartbeats = "raft's own transport"
	throughTheLoop heartbeats = "ours"
)

func newGated(t *testing.T, id string, hb heartbeats, timeout time.Duration) *gated {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	ours := newTransport(&tcpLayer{Listener: l}, l.Addr().String(), 2*time.Second, hclog.NewNullLogger())
	t.Cleanup(func() { _ = ours.Close() })
	g := &gate{Transport: ours, preVote: ours, blocked: map[raft.ServerAddress]blockKind{}}
	if hb == besideTheLoop {
		g.Transport = ours.NetworkTransport
	}
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(id)
	c.Logger = hclog.NewNullLogger()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout, c.CommitTimeout = timeout, timeout, timeout*2/3, 20*time.Millisecond
	n := &gated{fsm: &listFSM{}, gate: g}
	store := raft.NewInmemStore()
	r, err := raft.NewRaft(c, n.fsm, store, store, raft.NewInmemSnapshotStore(), g)
	if err != nil {
		t.Fatal(err)
	}
	n.Raft = r
	t.Cleanup(func() { _ = r.Shutdown().Error() })
	return n
}

// gatedCluster makes three nodes, of which a is slow to notice anything.
func gatedCluster(t *testing.T, hb heartbeats) []*gated {
	t.Helper()
	a := newGated(t, "a", hb, time.Minute)
	b, c := newGated(t, "b", hb, 300*time.Millisecond), newGated(t, "c", hb, 300*time.Millisecond)
	nodes := []*gated{a, b, c}
	var conf raft.Configuration
	for i, n := range nodes {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID("abc"[i : i+1]), Address: n.gate.LocalAddr()})
	}
	for _, n := range nodes {
		if err := n.BootstrapCluster(conf).Error(); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

// deposed drives three nodes through the interleaving: a leads, its timers
// being slow as those of a paused process; b or c is elected behind its back
// and commits an entry; the new leader's heartbeats reach a before its entries
// do; and then a gets a proposal. It reports what each replica applied.
func deposed(t *testing.T, hb heartbeats) [][]string {
	nodes := gatedCluster(t, hb)
	a, others := nodes[0], nodes[1:]
	addr := a.gate.LocalAddr()
	waitFor(t, "a to lead", func() bool {
		for _, n := range others {
			if n.State() == raft.Leader {
				_ = n.LeadershipTransferToServer("a", addr).Error()
			}
		}
		return a.State() == raft.Leader
	})
	commit(t, nodes, "base")
	waitFor(t, "base everywhere", func() bool { return len(others[0].fsm.list()) > 0 && len(others[1].fsm.list()) > 0 })
	for _, n := range others {
		n.gate.block(addr, blockAll)
	}
	a.gate.cut.Store(true)
	var lead *gated
	waitFor(t, "another leader", func() bool {
		i := slices.IndexFunc(others, func(n *gated) bool { return n.State() == raft.Leader })
		if i >= 0 {
			lead = others[i]
		}
		return i >= 0
	})
	commit(t, others, "acknowledged")
	term := a.CurrentTerm()
	for _, n := range others {
		n.gate.block(addr, blockEntries)
	}
	waitFor(t, "a heartbeat at a", func() bool { return a.CurrentTerm() > term })
	late := a.Apply([]byte("from the deposed leader"), time.Second)
	// The old leader writes the late entry if it still takes proposals, and
	// answers at once if not.
	answered := make(chan struct{})
	go func() { _ = late.Error(); close(answered) }()
	waitFor(t, "the late entry to be written or refused", func() bool {
		select {
		case <-answered:
			return true
		default:
			return a.LastIndex() >= lead.LastIndex()
		}
	})
	for _, n := range others {
		n.gate.block(addr, blockNothing)
	}
	a.gate.cut.Store(false)
	commit(t, nodes, "last")
	var lists [][]string
	for _, n := range nodes {
		waitFor(t, "the last entry everywhere", func() bool { return slices.Contains(n.fsm.list(), "last") })
		lists = append(lists, n.fsm.list())
	}
	return lists
}

// commit has an entry committed by whichever of the nodes leads: on a busy machine
// that may be another one each time it is looked at.
func commit(t *testing.T, nodes []*gated, entry string) {
	t.Helper()
	waitFor(t, "a leader to commit "+entry, func() bool {
		return slices.ContainsFunc(nodes, func(n *gated) bool {
			return n.State() == raft.Leader && n.Apply([]byte(entry), 5*time.Second).Error() == nil
		})
	})
}

func differ(lists [][]string) bool {
	return slices.ContainsFunc(lists[1:], func(l []string) bool { return !slices.Equal(l, lists[0]) })
}

func TestRaftsOwnTransportDiverges(t *testing.T) {
	t.Parallel()
	const attempts = 5
	for i := range attempts {
		if lists := deposed(t, besideTheLoop); differ(lists) {
			t.Logf("attempt %d: replicas hold %q", i+1, lists)
			return
		}
	}
	t.Errorf("no divergence in %d attempts: the test of our transport proves nothing any more", attempts)
}

func TestOurTransportDoesNotDiverge(t *testing.T) {
	t.Parallel()
	for i := range 5 {
		if lists := deposed(t, throughTheLoop); differ(lists) {
			t.Fatalf("attempt %d: replicas hold %q", i+1, lists)
		}
	}
}

// TestPreVoteStays lets a node that was cut off come back: without pre-vote it
// would have raised the term and deposed the leader.
func TestPreVoteStays(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	f := c.follower()
	lead := c.leader()
	term := lead.Term()
	f.layer.cut.Store(true)
	for _, m := range c.members {
		m.layer.cutTo.Store(raft.ServerAddress(f.addr))
	}
	for _, m := range c.members {
		m.trans.conns.mu.Lock()
		for conn := range m.trans.conns.open {
			_ = conn.Close()
		}
		m.trans.conns.mu.Unlock()
	}
	waitFor(t, "the cut-off node to want votes", func() bool { return f.raft.State() == raft.Candidate })
	propose(t, lead, "x")
	if got := f.Term(); got != term {
		t.Errorf("the candidate that nobody hears went to term %d from %d", got, term)
	}
	f.layer.cut.Store(false)
	for _, m := range c.members {
		m.layer.cutTo.Store(raft.ServerAddress(""))
	}
	c.agree([]string{"x"})
	if got := c.leader(); got != lead || got.Term() != term {
		t.Errorf("leader %s in term %d, was %s in %d", got.id, got.Term(), lead.id, term)
	}
}

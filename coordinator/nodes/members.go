package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/berth-scheduler/berth/coordinator/wait"
	"github.com/berth-scheduler/berth/proto/gossip"
)

const (
	rejoinEvery  = 30 * time.Second
	leaveTimeout = time.Second
	maxHints     = 20_000 // capacities held, so that a flood of names is bounded
)

// members is the coordinators' ear in the gossip: who is there, and how full
// each says its GPUs are. It is shown beside the ledger and decides nothing.
type members struct {
	list *memberlist.Memberlist // nil when gossip is off
	join []string
	meta []byte
	log  *slog.Logger

	mu     sync.Mutex
	states map[string]string // agents' node names → what gossip says
	hints  map[string]gossip.Capacity
}

func openMembers(cfg *Config, log *slog.Logger) (*members, error) {
	m := &members{
		join: cfg.GossipPeers, log: log,
		states: map[string]string{}, hints: map[string]gossip.Capacity{},
	}
	if cfg.Gossip == "" {
		return m, nil
	}
	host, p, err := net.SplitHostPort(cfg.Gossip)
	if err != nil {
		return nil, fmt.Errorf("gossip.addr: %w", err)
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		return nil, fmt.Errorf("gossip.addr: %w", err)
	}
	if m.meta, err = (gossip.Meta{Node: cfg.ID, Role: gossip.RoleCoordinator, Protocol: 1}).Append(nil); err != nil {
		return nil, err
	}
	mc := memberlist.DefaultLANConfig()
	mc.Name = gossip.RoleCoordinator.String() + "." + cfg.ID
	mc.BindAddr, mc.BindPort, mc.AdvertisePort = host, port, port
	mc.SecretKey = cfg.GossipKey
	mc.Delegate, mc.Events = m, m
	mc.Logger = slog.NewLogLogger(m.log.Handler(), slog.LevelDebug)
	if m.list, err = memberlist.Create(mc); err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	return m, nil
}

// run joins the other coordinators, again and again: after a long partition
// both sides have forgotten each other.
func (m *members) run(ctx context.Context) error {
	for {
		if m.list != nil && len(m.join) > 0 {
			if _, err := m.list.Join(m.join); err != nil {
				m.log.Debug("cannot join", "err", err)
			}
		}
		if !wait.Sleep(ctx, rejoinEvery-time.Duration(rand.Int64N(int64(rejoinEvery/4)))) { // #nosec G404 -- spreads what many do at once
			return ctx.Err()
		}
	}
}

func (m *members) close() error {
	if m == nil || m.list == nil {
		return nil
	}
	return errors.Join(m.list.Leave(leaveTimeout), m.list.Shutdown())
}

// view returns what gossip says of a node: alive, suspect, left or unknown.
func (m *members) view(node string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.states[node]; ok {
		return s
	}
	return "unknown"
}

// freeMiB returns how much memory a GPU has free, as its node gossips.
func (m *members) freeMiB(node, uuid string) (int64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := gossip.UUIDHash(uuid)
	for _, g := range m.hints[node].GPUs {
		if g.ID == id {
			return int64(g.FreeMiB), true
		}
	}
	return 0, false
}

// set records what gossip says of an agent. What it says of others, and what
// is no message of ours, is ignored.
func (m *members) set(n *memberlist.Node, state string) {
	meta, err := gossip.ParseMeta(n.Meta)
	if err != nil || meta.Role != gossip.RoleAgent {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.states[meta.Node]; known || len(m.states) < maxHints {
		m.states[meta.Node] = state
	}
}

// NotifyJoin implements memberlist.EventDelegate.
func (m *members) NotifyJoin(n *memberlist.Node) { m.set(n, "alive") }

// NotifyUpdate implements memberlist.EventDelegate.
func (m *members) NotifyUpdate(n *memberlist.Node) { m.set(n, "alive") }

// NotifyLeave implements memberlist.EventDelegate: a node left, or is taken
// for dead. Its lease decides what that means.
func (m *members) NotifyLeave(n *memberlist.Node) {
	state := "left"
	if n.State == memberlist.StateDead {
		state = "dead"
	}
	m.set(n, state)
}

// NodeMeta implements memberlist.Delegate.
func (m *members) NodeMeta(int) []byte { return m.meta }

// NotifyMsg implements memberlist.Delegate: a capacity of some node.
func (m *members) NotifyMsg(b []byte) { m.hear(b) }

// GetBroadcasts implements memberlist.Delegate: coordinators tell nothing.
func (m *members) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (m *members) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate: the capacity of a node
// that joins.
func (m *members) MergeRemoteState(b []byte, _ bool) {
	if len(b) > 0 {
		m.hear(b)
	}
}

func (m *members) hear(b []byte) {
	c, err := gossip.ParseCapacity(b)
	if err != nil {
		m.log.Debug("ignored a gossip message", "err", err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.hints[c.Node]
	if known && !c.Newer(old) || !known && len(m.hints) >= maxHints {
		return
	}
	m.hints[c.Node] = c
}

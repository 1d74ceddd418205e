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
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/proto/gossip"
	"github.com/berth-scheduler/berth/proto/gossip/roster"
)

const (
	rejoinEvery   = 30 * time.Second
	leaveTimeout  = time.Second
	updateTimeout = 5 * time.Second
	leadsEvery    = 200 * time.Millisecond // interval of checks of who leads
	maxStates     = 20_000                 // members whose state is held, so that a flood of names is bounded
)

// members is a coordinator's part in the gossip: which members there are, and what
// nodes say of themselves, which goes to hints.
type members struct {
	list   atomic.Pointer[memberlist.Memberlist] // nil if gossip is off, and until it is opened
	self   string                                // this coordinator's name among the members
	join   []string
	hints  *hints
	leads  func() bool
	log    *slog.Logger
	passes *rate.Limiter // for forwarding to other coordinators
	roster roster.Roster

	mu     sync.Mutex
	about  gossip.Meta       // this coordinator
	states map[string]string // agents' node names → what gossip says
}

func openMembers(n *Nodes, log *slog.Logger) (*members, error) {
	cfg := &n.cfg
	m := &members{
		self: gossip.RoleCoordinator.String() + "." + cfg.ID, join: cfg.GossipPeers, hints: n.hints, log: log, states: map[string]string{},
		leads: func() bool { return n.office.Term() != nil }, passes: rate.NewLimiter(gossip.PassRate, gossip.PassRate),
		about: gossip.Meta{Node: cfg.ID, Role: gossip.RoleCoordinator, Protocol: 1, Port: portOf(cfg.Address)},
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
	if _, err := m.about.Append(nil); err != nil {
		return nil, err
	}
	mc := memberlist.DefaultLANConfig()
	mc.Name = m.self
	mc.BindAddr, mc.BindPort, mc.AdvertisePort = host, port, port
	mc.SecretKey = cfg.GossipKey
	mc.Delegate, mc.Events = m, m
	mc.Logger = slog.NewLogLogger(m.log.Handler(), slog.LevelDebug)
	list, err := memberlist.Create(mc)
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	m.list.Store(list)
	return m, nil
}

// portOf returns the port of an address, 0 if it has none.
func portOf(addr string) uint16 {
	_, p, _ := net.SplitHostPort(addr)
	port, _ := strconv.ParseUint(p, 10, 16) // 0 if it is no port
	return uint16(port)
}

// run joins the other coordinators, repeatedly, since after a long partition both
// sides have forgotten each other, and announces who leads.
func (m *members) run(ctx context.Context) error {
	if m.list.Load() == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for {
			if len(m.join) > 0 {
				if _, err := m.list.Load().Join(m.join); err != nil {
					m.log.Debug("cannot join", "err", err)
				}
			}
			if !wait.Sleep(ctx, rejoinEvery-time.Duration(rand.Int64N(int64(rejoinEvery/4)))) { // #nosec G404 -- spreads what many do at once
				return ctx.Err()
			}
		}
	})
	g.Go(func() error {
		for wait.Sleep(ctx, leadsEvery) {
			if m.tellLead() {
				if err := m.list.Load().UpdateNode(updateTimeout); err != nil {
					m.log.Debug("cannot tell who leads", "err", err)
				}
			}
		}
		return ctx.Err()
	})
	return g.Wait()
}

// tellLead records whether this coordinator leads, and reports whether that is
// news.
func (m *members) tellLead() bool {
	var flags gossip.Flags
	if m.leads() {
		flags = gossip.FlagLeader
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.about.Flags
	m.about.Flags = flags
	return flags != was
}

func (m *members) close() error {
	if m == nil || m.list.Load() == nil {
		return nil
	}
	return errors.Join(m.list.Load().Leave(leaveTimeout), m.list.Load().Shutdown())
}

// view returns what gossip says of a node: alive, dead, left or unknown.
func (m *members) view(node string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.states[node]; ok {
		return s
	}
	return "unknown"
}

// count returns how many members there are, including this one; 0 if gossip is off.
func (m *members) count() int {
	if m == nil || m.list.Load() == nil {
		return 0
	}
	return m.list.Load().NumMembers()
}

// set records what gossip says of an agent. It ignores what gossip says of others,
// and messages that are not ours.
func (m *members) set(n *memberlist.Node, state string) {
	meta, err := gossip.ParseMeta(n.Meta)
	if err != nil || meta.Role != gossip.RoleAgent {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.states[meta.Node]; known || len(m.states) < maxStates {
		m.states[meta.Node] = state
	}
}

// NotifyJoin implements memberlist.EventDelegate.
func (m *members) NotifyJoin(n *memberlist.Node) {
	m.roster.NotifyJoin(n)
	m.set(n, "alive")
}

// NotifyUpdate implements memberlist.EventDelegate.
func (m *members) NotifyUpdate(n *memberlist.Node) {
	m.roster.NotifyUpdate(n)
	m.set(n, "alive")
}

// NotifyLeave implements memberlist.EventDelegate: a node left, or is assumed dead.
// Its lease decides what that means.
func (m *members) NotifyLeave(n *memberlist.Node) {
	m.roster.NotifyLeave(n)
	state := "left"
	if n.State == memberlist.StateDead {
		state = "dead"
	}
	m.set(n, state)
}

// NotifyMsg implements memberlist.Delegate: some node's message about itself, or
// one that does not reach every coordinator.
func (m *members) NotifyMsg(b []byte) {
	inner, relayed := gossip.Relayed(b)
	if !relayed {
		m.hints.hear(b)
		return
	}
	if !m.hints.hear(inner) || m.list.Load() == nil || !m.passes.Allow() {
		return
	}
	sent := 0
	for _, n := range m.roster.All() {
		meta, err := gossip.ParseMeta(n.Meta)
		if err != nil || meta.Role != gossip.RoleCoordinator || n.Name == m.self {
			continue
		}
		if sent++; sent > gossip.MaxCoordinators {
			break
		}
		if err := m.list.Load().SendBestEffort(n, inner); err != nil {
			m.log.Debug("cannot send", "to", n.Name, "err", err)
		}
	}
}

// NodeMeta implements memberlist.Delegate.
func (m *members) NodeMeta(int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, _ := m.about.Append(nil) // checked at opening
	return b
}

// GetBroadcasts implements memberlist.Delegate: coordinators broadcast nothing.
func (m *members) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (m *members) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (m *members) MergeRemoteState([]byte, bool) {}

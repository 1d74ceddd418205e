// Package members makes a node announce itself and the load of its GPUs to the cluster by
// gossip, and find the coordinators.
package members

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/proto/gossip"
	"github.com/berth-scheduler/berth/proto/gossip/roster"
)

const (
	rejoinEvery  = 30 * time.Second
	leaveTimeout = time.Second
	// sayNews is the shortest time between a message and the next with news, sayAgain between
	// messages without. Both grow with each nodesPerDelay members, except for what strays hold.
	sayNews       = time.Second
	sayAgain      = 5 * time.Second
	nodesPerDelay = 500
	// helpers is how many other members pass a message on, in case this node cannot reach the
	// leader.
	helpers = 2
	keySize = 32
)

// Config is what gossip needs. Key is 32 bytes (AES-256); Join lists the coordinators' gossip
// addresses.
type Config struct {
	Node   cluster.NodeID
	BootID string
	// Protocol is the version of the node link that the agent speaks.
	Protocol uint16
	Addr     string
	Key      []byte
	Join     []string
	Log      *slog.Logger
	// Transport carries the packets; nil means the network. It is for tests.
	Transport memberlist.Transport
}

// Members announces this node and the load of its GPUs to the cluster by gossip. It is a hint:
// nothing is placed or ended because of it.
type Members struct {
	cfg    Config
	list   atomic.Pointer[memberlist.Memberlist] // nil until it is created
	meta   []byte
	key    []byte
	passes *rate.Limiter // limits what is passed on for others
	roster roster.Roster

	mu   sync.Mutex
	gpus []gossip.GPU // their last usage
	said gossip.Capacity
	sent time.Time
}

// Open listens and gossips. Run joins the others.
func Open(cfg Config) (*Members, error) {
	meta, err := gossip.Meta{
		Node: string(cfg.Node), Role: gossip.RoleAgent, Protocol: cfg.Protocol, Boot: gossip.BootHash(cfg.BootID),
	}.Append(nil)
	if err != nil {
		return nil, err
	}
	host, port, err := splitAddr(cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("gossip.addr: %w", err)
	}
	m := &Members{cfg: cfg, meta: meta, key: make([]byte, keySize), passes: rate.NewLimiter(gossip.PassRate, gossip.PassRate)}
	if _, err := crand.Read(m.key); err != nil {
		return nil, err
	}
	mc := memberlist.DefaultLANConfig()
	mc.Name = m.name()
	mc.BindAddr, mc.BindPort, mc.AdvertisePort = host, port, port
	mc.SecretKey, mc.Transport = cfg.Key, cfg.Transport
	mc.Delegate, mc.Events = m, &m.roster
	mc.Logger = slog.NewLogLogger(cfg.Log.With("component", "gossip").Handler(), slog.LevelDebug)
	list, err := memberlist.Create(mc)
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	m.list.Store(list)
	return m, nil
}

// name returns the name of this member.
func (m *Members) name() string { return gossip.RoleAgent.String() + "." + string(m.cfg.Node) }

func splitAddr(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(p)
	return host, port, err
}

// Run joins the coordinators, and joins them again every 30 s: after a long partition both
// sides have forgotten each other. It leaves when ctx ends.
func (m *Members) Run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for {
			if _, err := m.list.Load().Join(m.cfg.Join); err != nil {
				m.cfg.Log.Debug("gossip: cannot join", "err", err)
			}
			if err := sleep(gctx, rejoinEvery-time.Duration(rand.Int64N(int64(rejoinEvery/4)))); err != nil { // #nosec G404 -- spreads what many do at once
				return err
			}
		}
	})
	g.Go(func() error {
		for {
			if err := sleep(gctx, m.pace(sayAgain)/5); err != nil {
				return err
			}
			m.again()
		}
	})
	err := g.Wait()
	return errors.Join(err, m.list.Load().Leave(leaveTimeout), m.list.Load().Shutdown())
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// pace scales d to the size of the cluster.
func (m *Members) pace(d time.Duration) time.Duration {
	return d * time.Duration(1+m.list.Load().NumMembers()/nodesPerDelay)
}

// Key returns the key with which this process signs its messages. Whoever has it is believed,
// so only the leader is told.
func (m *Members) Key() []byte { return m.key }

// Observe takes the usage of the GPUs, and tells the coordinators about changes, less often the
// larger the cluster is. What strays hold is reported within a second whatever the size: until
// the leader knows, it gives that memory away.
func (m *Members) Observe(gpus []gossip.GPU) {
	gpus = gpus[:min(len(gpus), gossip.MaxGPUs)]
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gpus = gpus
	every := sayNews
	if sameStrays(m.said.GPUs, gpus) {
		every = m.pace(sayNews)
	}
	if time.Since(m.sent) >= every && !sameCapacity(m.said.GPUs, gpus) {
		m.say()
	}
}

// again repeats the last message if that was long ago.
func (m *Members) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.sent) >= m.pace(sayAgain) {
		m.say()
	}
}

// say sends the usage of the GPUs to every coordinator. The caller holds m.mu.
func (m *Members) say() {
	c := gossip.Capacity{Node: string(m.cfg.Node), Boot: gossip.BootHash(m.cfg.BootID), Seq: m.said.Seq + 1, GPUs: m.gpus}
	if m.said.Seq == 0 {
		// A new process of the same boot must not count from where the last one began.
		c.Seq = uint64(time.Now().UnixMilli())
	}
	data, err := c.Append(nil, m.key)
	if err != nil {
		m.cfg.Log.Error("cannot encode capacity", "err", err)
		return
	}
	m.said, m.sent = c, time.Now()
	all := m.roster.All()
	m.send(coordinatorsOf(all), data)
	others := slices.DeleteFunc(all, func(n *memberlist.Node) bool { return n.Name == m.name() })
	rand.Shuffle(len(others), func(i, k int) { others[i], others[k] = others[k], others[i] })
	m.send(others[:min(len(others), helpers)], gossip.Relay(data))
}

// send sends data to each of to, once and without waiting.
func (m *Members) send(to []*memberlist.Node, data []byte) {
	for _, n := range to {
		if err := m.list.Load().SendBestEffort(n, data); err != nil {
			m.cfg.Log.Debug("gossip: cannot send", "to", n.Name, "err", err)
		}
	}
}

// coordinatorsOf returns the coordinators among members, those that claim to lead first,
// otherwise in any order: if there are more than there can be, some of them.
func coordinatorsOf(members []*memberlist.Node) []*memberlist.Node {
	var first, rest []*memberlist.Node
	for _, n := range members {
		switch meta, err := gossip.ParseMeta(n.Meta); {
		case err != nil || meta.Role != gossip.RoleCoordinator:
		case meta.Flags&gossip.FlagLeader != 0:
			first = append(first, n)
		default:
			rest = append(rest, n)
		}
	}
	for _, l := range [][]*memberlist.Node{first, rest} {
		rand.Shuffle(len(l), func(i, k int) { l[i], l[k] = l[k], l[i] })
	}
	out := append(first, rest...)
	return out[:min(len(out), gossip.MaxCoordinators)]
}

// Coordinators returns where the present coordinators serve agents, by their own account, and
// which of them claim to lead: one that is gone may be among them for a moment. The claims may
// come from anyone with the gossip key: each must prove with its certificate that it is a
// coordinator.
func (m *Members) Coordinators() (all, leaders []string) {
	for _, n := range coordinatorsOf(m.roster.All()) {
		meta, err := gossip.ParseMeta(n.Meta)
		if err != nil || meta.Port == 0 {
			continue
		}
		all = append(all, net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(meta.Port))))
		if meta.Flags&gossip.FlagLeader != 0 {
			leaders = append(leaders, all[len(all)-1])
		}
	}
	return all, leaders
}

// sameStrays reports whether strays hold as much as before of each GPU.
func sameStrays(a, b []gossip.GPU) bool {
	return slices.EqualFunc(a, b, func(x, y gossip.GPU) bool { return x.ID == y.ID && x.StrayMiB == y.StrayMiB })
}

// sameCapacity reports whether b contains nothing new: small changes of utilization are not
// news.
func sameCapacity(a, b []gossip.GPU) bool {
	return sameStrays(a, b) && slices.EqualFunc(a, b, func(x, y gossip.GPU) bool {
		return x.FreeMiB == y.FreeMiB && x.UtilMilli/100 == y.UtilMilli/100
	})
}

// NotifyMsg implements memberlist.Delegate: an agent ignores messages, except that it passes on
// to the coordinators what another agent sends it for them.
func (m *Members) NotifyMsg(b []byte) {
	inner, ok := gossip.Relayed(b)
	if _, err := gossip.ParseCapacity(inner); !ok || err != nil || m.list.Load() == nil || !m.passes.Allow() {
		return
	}
	m.send(coordinatorsOf(m.roster.All()), inner)
}

// NodeMeta implements memberlist.Delegate.
func (m *Members) NodeMeta(int) []byte { return m.meta }

// GetBroadcasts implements memberlist.Delegate: messages go directly to their receivers.
func (m *Members) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (m *Members) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (m *Members) MergeRemoteState([]byte, bool) {}

// Package members has a node tell the cluster by gossip that it is there, and how full
// its GPUs are.
package members

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

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/gossip"
)

const (
	rejoinEvery   = 30 * time.Second
	leaveTimeout  = time.Second
	minAdvertise  = time.Second
	nodesPerDelay = 100 // each hundred members make updates a second rarer
)

// Config is what gossip needs. Key is 32 bytes (AES-256); Join lists
// the coordinators' gossip addresses.
type Config struct {
	Node   cluster.NodeID
	BootID string
	// Protocol is the version of the node link that the agent speaks.
	Protocol uint16
	Addr     string
	Key      []byte
	Join     []string
	Log      *slog.Logger
}

// Members tells the cluster by gossip that this node is there and how full
// its GPUs are. It is a hint: nothing is placed or ended because of it.
type Members struct {
	cfg  Config
	list *memberlist.Memberlist
	out  *memberlist.TransmitLimitedQueue
	meta []byte

	mu       sync.Mutex
	capacity []byte // the newest, encoded
	last     gossip.Capacity
	sent     time.Time
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
	m := &Members{cfg: cfg, meta: meta}
	mc := memberlist.DefaultLANConfig()
	mc.Name = gossip.RoleAgent.String() + "." + string(cfg.Node)
	mc.BindAddr, mc.BindPort, mc.AdvertisePort = host, port, port
	mc.SecretKey = cfg.Key
	mc.Delegate = m
	mc.Logger = slog.NewLogLogger(cfg.Log.With("component", "gossip").Handler(), slog.LevelDebug)
	m.out = &memberlist.TransmitLimitedQueue{RetransmitMult: mc.RetransmitMult, NumNodes: func() int {
		if m.list == nil {
			return 1
		}
		return m.list.NumMembers()
	}}
	if m.list, err = memberlist.Create(mc); err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	return m, nil
}

func splitAddr(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(p)
	return host, port, err
}

// Run joins the coordinators, and joins them again every 30 s: after a long
// partition both sides have forgotten each other. It leaves when ctx ends.
func (m *Members) Run(ctx context.Context) error {
	for {
		if _, err := m.list.Join(m.cfg.Join); err != nil {
			m.cfg.Log.Debug("gossip: cannot join", "err", err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), m.list.Leave(leaveTimeout), m.list.Shutdown())
		case <-time.After(rejoinEvery - time.Duration(rand.Int64N(int64(rejoinEvery/4)))): // #nosec G404 -- spreads what many do at once
		}
	}
}

// Observe takes over what the cards show, and tells the others when it
// changed, the more rarely the larger the cluster is.
func (m *Members) Observe(usage []*nodev1.GPUUsage) {
	c := gossip.Capacity{Node: string(m.cfg.Node), Boot: gossip.BootHash(m.cfg.BootID)}
	for _, u := range usage {
		if len(c.GPUs) == gossip.MaxGPUs {
			break
		}
		util := uint16(gossip.UtilUnknown)
		if u.UtilMilli >= 0 && u.UtilMilli <= 1000 {
			util = uint16(u.UtilMilli)
		}
		c.GPUs = append(c.GPUs, gossip.GPU{
			ID: gossip.UUIDHash(u.Uuid), FreeMiB: uint32(max(0, u.FreeMib)), UtilMilli: util,
		})
	}
	every := minAdvertise * time.Duration(1+m.list.NumMembers()/nodesPerDelay)
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.sent) < every || sameCapacity(m.last, c) {
		return
	}
	c.Seq = m.last.Seq + 1
	if m.last.Seq == 0 {
		// A new process of the same boot must not count from where the last
		// one began.
		c.Seq = uint64(time.Now().UnixMilli())
	}
	data, err := c.Append(nil)
	if err != nil {
		m.cfg.Log.Error("cannot encode capacity", "err", err)
		return
	}
	m.last, m.capacity, m.sent = c, data, time.Now()
	m.out.QueueBroadcast(update(data))
}

// sameCapacity reports whether b says nothing new: small moves of utilization
// are not news.
func sameCapacity(a, b gossip.Capacity) bool {
	if len(a.GPUs) != len(b.GPUs) {
		return false
	}
	for i := range a.GPUs {
		x, y := a.GPUs[i], b.GPUs[i]
		if x.ID != y.ID || x.FreeMiB != y.FreeMiB || x.UtilMilli/100 != y.UtilMilli/100 {
			return false
		}
	}
	return true
}

// update is one capacity message; a newer one replaces it in the queue.
type update []byte

// Invalidates implements memberlist.Broadcast: this node has one capacity.
func (update) Invalidates(b memberlist.Broadcast) bool {
	_, ok := b.(update)
	return ok
}

// Message implements memberlist.Broadcast.
func (u update) Message() []byte { return u }

// Finished implements memberlist.Broadcast.
func (update) Finished() {}

// NodeMeta implements memberlist.Delegate.
func (m *Members) NodeMeta(int) []byte { return m.meta }

// NotifyMsg implements memberlist.Delegate: agents listen to nobody.
func (m *Members) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate.
func (m *Members) GetBroadcasts(overhead, limit int) [][]byte {
	return m.out.GetBroadcasts(overhead, limit)
}

// LocalState implements memberlist.Delegate: who joins learns our capacity.
func (m *Members) LocalState(bool) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.capacity
}

// MergeRemoteState implements memberlist.Delegate.
func (m *Members) MergeRemoteState([]byte, bool) {}

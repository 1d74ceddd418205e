package members

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/proto/gossip"
)

var clusterKey = bytes.Repeat([]byte{7}, 32)

// ear is a coordinator that only listens.
type ear struct {
	meta  []byte
	heard chan []byte
}

func (e *ear) NodeMeta(int) []byte             { return e.meta }
func (e *ear) NotifyMsg(b []byte)              { e.heard <- bytes.Clone(b) }
func (*ear) GetBroadcasts(int, int) [][]byte   { return nil }
func (*ear) LocalState(bool) []byte            { return nil }
func (*ear) MergeRemoteState(_ []byte, _ bool) {}

// newEar listens as a coordinator of a name that leads, and serves agents at port
// 7070, or so it says. It returns where it gossips.
func newEar(t *testing.T, name string) (e *ear, addr string) {
	t.Helper()
	meta, err := gossip.Meta{Node: name, Role: gossip.RoleCoordinator, Port: 7070, Flags: gossip.FlagLeader}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	e = &ear{meta: meta, heard: make(chan []byte, 1000)}
	mc := memberlist.DefaultLANConfig()
	mc.Name, mc.BindAddr, mc.BindPort, mc.SecretKey, mc.Delegate = "coordinator."+name, "127.0.0.1", 0, clusterKey, e
	mc.Logger = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	list, err := memberlist.Create(mc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = list.Shutdown() })
	return e, list.LocalNode().Address()
}

// cut is a network from which packets to some addresses never arrive.
type cut struct {
	memberlist.Transport
	mu   sync.Mutex
	from []string
}

func (c *cut) WriteTo(b []byte, addr string) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.from, addr) {
		return time.Now(), nil
	}
	return c.Transport.WriteTo(b, addr)
}

func (c *cut) off(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.from = append(c.from, addr)
}

func open(t *testing.T, name string, join []string) (*Members, *cut) {
	t.Helper()
	nt, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{"127.0.0.1"}, Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)})
	if err != nil {
		t.Fatal(err)
	}
	net := &cut{Transport: nt}
	m, err := Open(Config{
		Node: cluster.NodeID(name), BootID: name, Addr: "127.0.0.1:" + strconv.Itoa(nt.GetAutoBindPort()), Key: clusterKey, Join: join,
		Log: slog.New(slog.DiscardHandler), Transport: net,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return m, net
}

// awaitCapacity is the first word of a node that satisfies ok, as it came.
func (e *ear) await(t *testing.T, node string, ok func(gossip.Capacity) bool) []byte {
	t.Helper()
	late := time.After(10 * time.Minute)
	for {
		select {
		case b := <-e.heard:
			if inner, relayed := gossip.Relayed(b); relayed {
				b = inner
			}
			if c, err := gossip.ParseCapacity(b); err == nil && c.Node == node && ok(c) {
				return b
			}
		case <-late:
			t.Fatalf("nothing was heard of %s", node)
		}
	}
}

// TestOthersPassItOn: what a node says that reaches the leader no more comes to it
// through another one, as it was signed; and agents know by gossip who leads, and where.
func TestOthersPassItOn(t *testing.T) {
	t.Parallel()
	lead, addr := newEar(t, "c1")
	a, wire := open(t, "n1", []string{addr})
	open(t, "n2", []string{addr})
	lead.await(t, "n1", func(gossip.Capacity) bool { return true })
	lead.await(t, "n2", func(gossip.Capacity) bool { return true })
	all, leaders := a.Coordinators()
	if host, _, _ := net.SplitHostPort(addr); !slices.Equal(leaders, []string{host + ":7070"}) || !slices.Equal(all, leaders) {
		t.Errorf("coordinators %v, leaders %q; want the one at %s", all, leaders, addr)
	}
	for deadline := time.Now().Add(10 * time.Minute); a.list.Load().NumMembers() < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the nodes do not know each other")
		}
	}
	wire.off(addr)
	stop := make(chan struct{})
	defer close(stop)
	go func() { // until it came through: packets may be lost
		for mib := uint32(1); ; mib++ {
			a.Observe([]gossip.GPU{{ID: 5, StrayMiB: 6000, FreeMiB: mib}})
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	b := lead.await(t, "n1", func(c gossip.Capacity) bool { return len(c.GPUs) == 1 && c.GPUs[0].StrayMiB == 6000 })
	if !gossip.Signed(b, a.Key()) {
		t.Error("what another passed on is not as the node signed it")
	}
}

// TestNotEverythingIsPassedOn: what is no word of a node, and what is too much, goes
// nowhere.
func TestNotEverythingIsPassedOn(t *testing.T) {
	t.Parallel()
	lead, addr := newEar(t, "c1")
	a, _ := open(t, "n1", []string{addr})
	lead.await(t, "n1", func(gossip.Capacity) bool { return true })
	a.NotifyMsg([]byte("nothing"))
	a.NotifyMsg(gossip.Relay([]byte("nothing")))
	a.NotifyMsg(nil)
	a.passes.SetLimit(0)
	a.passes.SetBurst(3)
	for i := range uint64(10) {
		b, err := gossip.Capacity{Node: "n9", Seq: i + 1}.Append(nil, a.Key())
		if err != nil {
			t.Fatal(err)
		}
		a.NotifyMsg(gossip.Relay(b))
	}
	// What comes after them was sent after them.
	heard := 0
	for deadline := time.After(10 * time.Minute); ; {
		select {
		case b := <-lead.heard:
			if _, relayed := gossip.Relayed(b); relayed {
				continue // n1's own, for a leader that it might not reach
			}
			c, err := gossip.ParseCapacity(b)
			if err == nil && c.Node == "n1" {
				if heard > 3 || a.passes.Allow() {
					t.Errorf("%d words of others were passed on, want 3 at most", heard)
				}
				return
			}
			heard++
		case <-deadline:
			t.Fatal("nothing more was heard of n1")
		}
	}
}

package raftnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// testTiming is as fast as two busy cores under the race detector allow.
func testTiming() Timing {
	return Timing{HeartbeatTimeout: 800 * time.Millisecond, ElectionTimeout: 800 * time.Millisecond,
		LeaderLeaseTimeout: 600 * time.Millisecond, CommitTimeout: 10 * time.Millisecond}
}

// listFSM is a state machine that keeps the entries it was given, in order. An
// entry that it holds already changes nothing, so that one may be proposed
// again after an answer that left open what became of it.
type listFSM struct {
	mu       sync.Mutex
	ops      []string
	restores int
	block    chan struct{} // when set, Apply waits for it
}

func (f *listFSM) Apply(l *raft.Log) any {
	if f.block != nil {
		<-f.block
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if op := string(l.Data); !slices.Contains(f.ops, op) {
		f.ops = append(f.ops, op)
	}
	return len(f.ops)
}

func (f *listFSM) Snapshot() (raft.FSMSnapshot, error) {
	return listSnapshot(f.list()), nil
}

func (f *listFSM) Restore(rc io.ReadCloser) error {
	defer rc.Close()
	var ops []string
	if err := json.NewDecoder(rc).Decode(&ops); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops = ops
	f.restores++
	return nil
}

func (f *listFSM) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ops)
}

type listSnapshot []string

func (s listSnapshot) Persist(k raft.SnapshotSink) error {
	if err := json.NewEncoder(k).Encode([]string(s)); err != nil {
		_ = k.Cancel()
		return err
	}
	return k.Close()
}

func (listSnapshot) Release() {}

// tcpLayer is plain TCP on loopback. While cut is set nothing is
// dialled.
type tcpLayer struct {
	net.Listener
	cut   atomic.Bool
	cutTo atomic.Value // of one address, a raft.ServerAddress
}

func (l *tcpLayer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if l.cut.Load() || l.cutTo.Load() == addr {
		return nil, fmt.Errorf("dial %s: cut", addr)
	}
	return net.DialTimeout("tcp", string(addr), timeout)
}

// member is one node of a test cluster; node is nil while it is stopped.
type member struct {
	*Node
	id, addr, dir string
	fsm           *listFSM
	fatal         chan error
	layer         *tcpLayer
	cluster       *testCluster
}

type testCluster struct {
	t       testing.TB
	members []*member
	tune    func(*Config)
}

// newCluster makes n nodes on loopback and disk and starts them.
func newCluster(t testing.TB, n int, tune func(*Config)) *testCluster {
	t.Helper()
	c := &testCluster{t: t, tune: tune}
	base := t.TempDir()
	listeners := make([]net.Listener, n)
	for i := range n {
		listeners[i] = listen(t, "127.0.0.1:0")
		id := fmt.Sprintf("c%d", i)
		c.members = append(c.members, &member{id: id, addr: listeners[i].Addr().String(), dir: filepath.Join(base, id), fatal: make(chan error, 1), cluster: c})
	}
	for i, m := range c.members {
		c.open(m, listeners[i])
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, m := range c.members {
			if m.Node != nil {
				wg.Go(func() { kill(t, m) })
			}
		}
		wg.Wait()
	})
	return c
}

func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (c *testCluster) config(m *member, l net.Listener) Config {
	m.layer = &tcpLayer{Listener: l}
	m.fsm = &listFSM{}
	cfg := Config{
		Dir: m.dir, ClusterID: "test", ID: m.id, Advertise: m.addr, StreamLayer: m.layer, FSM: m.fsm,
		Log: slog.New(slog.DiscardHandler), Timing: testTiming(),
		Fatal: func(err error) {
			select {
			case m.fatal <- err:
			default:
			}
		},
	}
	for _, o := range c.members {
		cfg.Bootstrap = append(cfg.Bootstrap, Server{ID: o.id, Addr: o.addr})
	}
	if c.tune != nil {
		c.tune(&cfg)
	}
	return cfg
}

func (c *testCluster) open(m *member, l net.Listener) {
	c.t.Helper()
	n, err := Open(c.config(m, l))
	if err != nil {
		c.t.Fatalf("open %s: %v", m.id, err)
	}
	m.Node = n
	go func() { // the reader that each node has in production
		for range n.LeaderChanges() {
		}
	}()
}

// restart opens a stopped member again on its old address.
func (c *testCluster) restart(m *member) {
	c.t.Helper()
	c.open(m, listen(c.t, m.addr))
}

// kill ends a node as a crash would: no hand-over, connections cut first.
func kill(t testing.TB, m *member) {
	t.Helper()
	n := m.Node
	m.Node = nil
	n.closing.Store(true)
	_ = n.trans.Close()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := n.stop(ctx); err != nil {
		t.Errorf("stop %s: %v", m.id, err)
	}
}

// stand makes a member stand for election now, as a leader does that hands over.
func (c *testCluster) stand(m *member) {
	c.t.Helper()
	trans := raft.NewNetworkTransport(&tcpLayer{Listener: listen(c.t, "127.0.0.1:0")}, 1, time.Minute, io.Discard)
	defer trans.Close()
	now := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	if err := trans.TimeoutNow(raft.ServerID(m.id), raft.ServerAddress(m.addr), now, &raft.TimeoutNowResponse{}); err != nil {
		c.t.Fatal(err)
	}
}

// running are the members that are not stopped.
func (c *testCluster) running() []*member {
	var ms []*member
	for _, m := range c.members {
		if m.Node != nil {
			ms = append(ms, m)
		}
	}
	return ms
}

// leader waits until one node leads and can prove it.
func (c *testCluster) leader() *member {
	c.t.Helper()
	var lead *member
	waitFor(c.t, "a leader", func() bool {
		for _, m := range c.running() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			ok := m.IsLeader() && m.Barrier(ctx) == nil
			cancel()
			if ok {
				lead = m
				return true
			}
		}
		return false
	})
	return lead
}

func (c *testCluster) follower() *member {
	c.t.Helper()
	lead := c.leader()
	for _, m := range c.running() {
		if m != lead {
			return m
		}
	}
	c.t.Fatal("no follower")
	return nil
}

// propose commits what is certainly committed when it returns.
func propose(t testing.TB, m *member, op string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, _, err := m.Propose(ctx, []byte(op))
	for errors.Is(err, ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) { // a busy machine
		m = m.cluster.leader()
		_, _, err = m.Propose(ctx, []byte(op))
	}
	if err != nil {
		t.Fatalf("propose %q on %s: %v", op, m.id, err)
	}
}

// agree waits until all running nodes hold want, in order.
func (c *testCluster) agree(want []string) {
	c.t.Helper()
	for _, m := range c.running() {
		waitFor(c.t, m.id+" to hold all entries", func() bool { return slices.Equal(m.fsm.list(), want) })
	}
}

// waitFor polls, since the nodes run in real time.
func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

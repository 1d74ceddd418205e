// Package coordtest runs coordinators in one process for tests: real Raft on disk
// over loopback, and made-up identities instead of certificates.
package coordtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/limit"
	"github.com/berth-scheduler/berth/coordinator/notify"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/coordinator/space"
	"github.com/berth-scheduler/berth/coordinator/web"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// patience is when a call or a stop has failed, on any machine: a test that waits
// forever hides all that come after it.
const patience = 10 * time.Minute

// Metadata with which a test says who calls.
const (
	mdRole = "test-role"
	mdID   = "test-id"
	mdUID  = "berth-on-behalf-of-uid"
	mdGID  = "berth-on-behalf-of-gid"
)

// Options describes a Cluster.
type Options struct {
	N int
	// Absent is how many of the N, the last ones, wait for Restart.
	Absent int
	// Lease is the nodes'; 0 means one that does not lapse on any stalled machine.
	Lease time.Duration
	// MaxQueued, MaxBytes, MaxBytesPerUser and AllowRoot are passed on.
	MaxQueued                 int
	MaxBytes, MaxBytesPerUser int64
	AllowRoot                 bool
	Learning                  learner.Config
	// Clock is the coordinators'; nil means time.Now.
	Clock func() time.Time
	// MaxSlowdownMilli is the policy's, 0 the default one.
	MaxSlowdownMilli int64
	// Planner is passed on.
	Planner policies.Policy
	// Partitions are passed on.
	Partitions map[string]site.Chosen
	// GangTimeout and GangPorts are passed on.
	GangTimeout time.Duration
	GangPorts   [2]uint16
	// KeepFinished, SnapshotThreshold and SnapshotInterval are passed on.
	KeepFinished      int
	SnapshotThreshold uint64
	SnapshotInterval  time.Duration
	// CatchUp, HistoryMaxJobs and HistoryFileJobs are passed on.
	CatchUp                         time.Duration
	HistoryMaxJobs, HistoryFileJobs int
	// Waits, IdleEvery, IdleSeen, Power, Energy and Notices are passed on.
	Waits     coordinator.Waits
	Power     *lead.PowerSaving
	Energy    *lead.EnergySignal
	IdleEvery time.Duration
	IdleSeen  func(knownMs int64)
	Notices   notify.Notices
	// Limits are passed on; nil means none, since tests ask for much as one user.
	Limits *limit.Config
	// Timing is Raft's; the zero value means raftnode.FastTiming.
	Timing raftnode.Timing
	// Steady keeps a leader however busy the machine is, until it is stopped or
	// killed. One that is cut off stays for seconds, and it takes as long to
	// replace it.
	Steady bool
	// Statfs, if not nil, returns how much room coordinator i has; it is called
	// every few milliseconds.
	Statfs func(i int) (space.Free, error)
	// Credentials makes agents hand out credentials, as older ones did not.
	Credentials bool
	// Gossip makes the coordinators gossip, at the addresses that Gossip returns.
	Gossip bool
	// Web makes each coordinator serve the page for browsers, at what WebAddr
	// returns.
	Web bool
	// WebProxy is a proxy in front of the page that names browsers' users.
	WebProxy *web.Proxy
	// Simulate is the simulator of the page, nil for none.
	Simulate func(context.Context, *web.Simulation) ([]byte, error)
	// Registry takes the metrics of a cluster of one.
	Registry prometheus.Registerer
}

// Cluster is coordinators in this process.
type Cluster struct {
	t     testing.TB
	opts  Options
	dir   string
	peers []raftnode.Server
	api   []string // gRPC addresses
	ears  []string // of gossip
	webs  []string // of the page
	nodes []*node
	held  map[string]net.Listener
	led   bool // there is a leader, or will be one without help
}

type node struct {
	stop      context.CancelFunc
	done      chan struct{}
	raft, api *link
	socket    string
	killed    bool
	gate      *gate
	co        *coordinator.Coordinator
}

// Start starts a cluster; it is stopped when the test ends.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	o.Lease = cmp.Or(o.Lease, 1000*time.Hour)
	c := &Cluster{t: t, opts: o, dir: t.TempDir(), nodes: make([]*node, o.N), held: map[string]net.Listener{}}
	for i := range o.N {
		c.peers = append(c.peers, raftnode.Server{ID: fmt.Sprintf("c%d", i+1), Addr: c.take()})
		c.api = append(c.api, c.take())
		c.webs = append(c.webs, "")
		if o.Web {
			c.webs[i] = c.take()
		}
		if o.Gossip {
			c.ears = append(c.ears, FreeAddr(t))
		}
	}
	for i := range o.N - o.Absent {
		c.Restart(i)
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.Stop(i)
		}
	})
	c.Leader()
	return c
}

// take returns an address that is held until Restart needs it.
func (c *Cluster) take() string {
	addr, ln := takeAddr(c.t)
	c.held[addr] = ln
	c.t.Cleanup(func() { ln.Close() })
	return addr
}

func (c *Cluster) listen(addr string) net.Listener {
	if ln := c.held[addr]; ln != nil {
		delete(c.held, addr)
		return ln
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		c.t.Fatal(err)
	}
	return ln
}

// ports counts the ports that this process handed out.
var ports atomic.Uint32

// FreeAddr returns a loopback address with no listener, with a port below those
// that the kernel assigns to connections and to listeners who ask for any: it stays
// free while its listener is down. Until the test ends no other caller gets it, nor
// a development cluster: both mark what they take by an abstract Unix socket. Gangs
// do not meet there either.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, ln := takeAddr(t)
	ln.Close()
	return addr
}

// takeAddr is FreeAddr, and listens there.
func takeAddr(t testing.TB) (string, net.Listener) {
	t.Helper()
	const low, high = 12000, 20000
	for range 1000 {
		n := low + (uint32(os.Getpid())*617+ports.Add(1))%(high-low)
		mark, err := net.Listen("unix", fmt.Sprintf("@berth-dev-port-%d", n))
		if err != nil {
			continue
		}
		addr := fmt.Sprintf("127.0.0.1:%d", n)
		if ln, err := net.Listen("tcp", addr); err == nil {
			t.Cleanup(func() { mark.Close() })
			return addr, ln
		}
		mark.Close()
	}
	t.Fatalf("no free port between %d and %d", low, high)
	return "", nil
}

func (c *Cluster) space(i int) space.Config {
	if c.opts.Statfs == nil {
		return space.Config{}
	}
	return space.Config{Every: 5 * time.Millisecond, Statfs: func(string) (space.Free, error) { return c.opts.Statfs(i) }}
}

// Restart starts coordinator i on its directory, after Stop or Kill.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	if n := c.nodes[i]; n != nil {
		<-n.done // a killed one, once its files are free
	}
	raftLn, apiLn := c.listen(c.peers[i].Addr), c.listen(c.api[i])
	n := &node{done: make(chan struct{}), gate: newGate(), raft: newLink(raftLn), api: newLink(apiLn), socket: filepath.Join(c.t.TempDir(), "s")}
	sock, err := net.Listen("unix", n.socket)
	if err != nil {
		c.t.Fatal(err)
	}
	policy := scheduler.Default()
	if c.opts.MaxSlowdownMilli > 0 {
		policy.MaxSlowdownMilli = c.opts.MaxSlowdownMilli
	}
	limits := limit.Unlimited()
	if c.opts.Limits != nil {
		limits = *c.opts.Limits
	}
	ear := ""
	if c.opts.Gossip {
		ear = c.ears[i]
	}
	co, err := coordinator.New(coordinator.Config{
		Gossip: ear, GossipPeers: c.ears, GossipKey: []byte(GossipKey),
		ID: c.peers[i].ID, ClusterID: "test", Version: "test", Dir: filepath.Join(c.dir, c.peers[i].ID), Advertise: c.peers[i].Addr,
		Peers: c.peers, Timing: c.timing(), BetweenRaft: n.gate.before, Raft: n.raft, Listener: n.api, Credentials: insecure.NewCredentials(), Socket: sock,
		Peer: peer, Dial: func(addr string) (*grpc.ClientConn, error) { return c.dial(c.apiOf(addr), "coordinator", "peer") },
		Users: userName, AllowRoot: c.opts.AllowRoot, MinUID: 1000, Admins: []cluster.UID{2000},
		Lease: c.opts.Lease, MaxShares: 3, Policy: policy, Planner: c.opts.Planner, Partitions: c.opts.Partitions, Clock: c.opts.Clock, MaxQueued: c.opts.MaxQueued, MaxBytes: c.opts.MaxBytes, MaxBytesPerUser: c.opts.MaxBytesPerUser, Learning: c.opts.Learning, Registry: c.opts.Registry, Certs: certifier{},
		KeepFinished: c.opts.KeepFinished, SnapshotThreshold: c.opts.SnapshotThreshold, SnapshotInterval: c.opts.SnapshotInterval,
		GangTimeout: c.opts.GangTimeout, GangPorts: c.opts.GangPorts, Notices: c.opts.Notices, Limits: limits,
		Waits: c.opts.Waits, IdleEvery: c.opts.IdleEvery, Power: c.opts.Power, Energy: c.opts.Energy, IdleSeen: c.opts.IdleSeen, CatchUp: c.opts.CatchUp, HistoryMaxJobs: c.opts.HistoryMaxJobs, HistoryFileJobs: c.opts.HistoryFileJobs,
		Space: c.space(i), Web: c.web(i),
		Fatal: func(err error) { c.t.Errorf("%s cannot go on: %v", c.peers[i].ID, err) },
		Log:   slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop, n.co = cancel, co
	c.nodes[i] = n
	go func() {
		defer close(n.done)
		if err := co.Run(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
			c.t.Logf("%s: %v", c.peers[i].ID, err)
		}
	}()
}

// web returns the page configuration of coordinator i.
func (c *Cluster) web(i int) web.Config {
	if c.webs[i] == "" {
		return web.Config{}
	}
	return web.Config{Listener: c.listen(c.webs[i]), Names: []string{"127.0.0.1", "localhost"}, Proxy: c.opts.WebProxy, Simulate: c.opts.Simulate, Address: "http://" + c.webs[i]}
}

// WebAddr returns where coordinator i serves the page for browsers.
func (c *Cluster) WebAddr(i int) string { return c.webs[i] }

// GossipKey is the key of clusters that gossip.
const GossipKey = "0123456789abcdef0123456789abcdef"

// Gossip returns where the coordinators gossip.
func (c *Cluster) Gossip() []string { return c.ears }

// Coordinator returns coordinator i, which runs.
func (c *Cluster) Coordinator(i int) *coordinator.Coordinator { return c.nodes[i].co }

// Stop ends coordinator i gracefully.
func (c *Cluster) Stop(i int) {
	if n := c.nodes[i]; n != nil {
		n.stop()
		select {
		case <-n.done:
		case <-time.After(patience):
			stacks := make([]byte, 1<<20)
			c.t.Errorf("%s has not stopped within %v:\n%s", c.peers[i].ID, patience, stacks[:runtime.Stack(stacks, true)])
		}
		c.nodes[i] = nil
		c.led = c.led && len(c.alive()) > 0 // it hands over to one of them
	}
}

// Wipe removes everything that coordinator i has on disk, after Stop.
func (c *Cluster) Wipe(i int) {
	c.t.Helper()
	if err := os.RemoveAll(c.Dir(i)); err != nil {
		c.t.Fatal(err)
	}
}

// Dir returns where coordinator i keeps its files.
func (c *Cluster) Dir(i int) string { return filepath.Join(c.dir, c.peers[i].ID) }

// Peers returns all coordinators, by number.
func (c *Cluster) Peers() []raftnode.Server { return c.peers }

// Kill cuts coordinator i off at once, as the end of its process does: it notifies
// no other, and does not hand over leadership. What it has on disk stays.
func (c *Cluster) Kill(i int) {
	n := c.nodes[i]
	n.killed = true
	n.raft.set(true)
	n.api.set(true)
	n.raft.Close()
	n.api.Close()
	n.stop()
	c.led = false
}

// Cut removes coordinator i from Raft's network; clients still reach it.
func (c *Cluster) Cut(i int) { c.nodes[i].raft.set(true) }

// HoldApply keeps the entries that Raft commits from the state of coordinator i
// until release is called, which may be more than once.
func (c *Cluster) HoldApply(i int) (release func()) {
	g := c.nodes[i].gate
	g.mu.Lock()
	var once sync.Once
	release = func() { once.Do(g.mu.Unlock) }
	c.t.Cleanup(release)
	return release
}

func (c *Cluster) timing() raftnode.Timing {
	if c.opts.Steady {
		const long = 15 * time.Second // a leader that was cut off takes as long to stop
		return raftnode.Timing{HeartbeatTimeout: long, ElectionTimeout: long, LeaderLeaseTimeout: long, CommitTimeout: 20 * time.Millisecond}
	}
	if c.opts.Timing == (raftnode.Timing{}) {
		return raftnode.FastTiming()
	}
	return c.opts.Timing
}

// Mend undoes Cut.
func (c *Cluster) Mend(i int) { c.nodes[i].raft.set(false) }

// apiOf finds the gRPC address of the coordinator with a Raft address: in
// production they are one.
func (c *Cluster) apiOf(raftAddr string) string {
	for i, p := range c.peers {
		if p.Addr == raftAddr {
			return c.api[i]
		}
	}
	return raftAddr
}

// PanicUID is a user whose name cannot be looked up without a panic.
const PanicUID = 66_666

func userName(uid cluster.UID) string {
	if uid == PanicUID {
		panic("the test asked for it")
	}
	return "u" + strconv.Itoa(int(uid))
}

// peer reads the made-up identity of a test.
func peer(ctx context.Context) (role, id string, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get(mdRole)) != 1 {
		return "", "", coordinator.ErrNoCertificate
	}
	return md.Get(mdRole)[0], md.Get(mdID)[0], nil
}

// dial connects with a made-up identity.
func (c *Cluster) dial(addr, role, id string) (*grpc.ClientConn, error) {
	with := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(metadata.AppendToOutgoingContext(ctx, mdRole, role, mdID, id), patience)
	}
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(256<<10), grpc.WithInitialConnWindowSize(4<<20), // as daemons do
		grpc.WithUnaryInterceptor(func(ctx context.Context, m string, req, resp any, cc *grpc.ClientConn, inv grpc.UnaryInvoker, o ...grpc.CallOption) error {
			ctx, cancel := with(ctx)
			defer cancel()
			return inv(ctx, m, req, resp, cc, o...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, m string, s grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			ctx, cancel := with(ctx)
			context.AfterFunc(ctx, cancel) // nothing here sees the stream end before
			return s(ctx, d, cc, m, o...)
		}))
}

// Dial connects to coordinator i as a daemon of the given role and id.
func (c *Cluster) Dial(i int, role, id string) *grpc.ClientConn {
	c.t.Helper()
	cc, err := c.dial(c.api[i], role, id)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { cc.Close() })
	return cc
}

// Stranger connects to coordinator i without a certificate.
func (c *Cluster) Stranger(i int) *grpc.ClientConn {
	c.t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+c.api[i], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { cc.Close() })
	return cc
}

// Client connects to coordinator i over its unix socket: the caller is then
// the user that runs the test.
func (c *Cluster) Client(i int) *grpc.ClientConn {
	c.t.Helper()
	cc, err := grpc.NewClient("unix:"+c.nodes[i].socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { cc.Close() })
	return cc
}

// As returns a context in which calls on a coordinator's or gate's connection speak
// for a user.
func As(ctx context.Context, uid uint32) context.Context {
	s := strconv.FormatUint(uint64(uid), 10)
	return metadata.AppendToOutgoingContext(ctx, mdUID, s, mdGID, s)
}

// certifier answers with plain texts: certificates are tested elsewhere.
type certifier struct{}

// Issue implements nodes.Certifier.
func (certifier) Issue(csr []byte, role, id string) (cert, ca []byte, err error) {
	if len(csr) == 0 {
		return nil, nil, errors.New("the certificate request is empty")
	}
	return []byte(role + "/" + id), []byte("ca"), nil
}

// Token implements nodes.Certifier.
func (c certifier) Token() (string, []byte, error) {
	text := rand.Text()
	h, err := c.TokenHash(text)
	return text, h, err
}

// TokenHash implements nodes.Certifier.
func (certifier) TokenHash(secret string) ([]byte, error) {
	h := sha256.Sum256([]byte(secret))
	return h[:], nil
}

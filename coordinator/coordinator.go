// Package coordinator is the replicated head of a cluster: it answers users
// and agents, proposes commands to Raft, and, on the leader, plans, learns
// and watches the nodes.
package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/api/accounts"
	"github.com/berth-scheduler/berth/coordinator/api/admin"
	"github.com/berth-scheduler/berth/coordinator/api/admission"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/api/calls"
	"github.com/berth-scheduler/berth/coordinator/api/jobs"
	"github.com/berth-scheduler/berth/coordinator/archive"
	"github.com/berth-scheduler/berth/coordinator/bulk"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/limit"
	"github.com/berth-scheduler/berth/coordinator/members"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/coordinator/notify"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/peers"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/coordinator/recut"
	"github.com/berth-scheduler/berth/coordinator/space"
	"github.com/berth-scheduler/berth/coordinator/web"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// Config configures a coordinator. Fields are required unless marked.
type Config struct {
	ID, ClusterID, ClusterName string
	Version                    string
	// Dir holds the Raft log and snapshots. Space sets how little room must be left
	// there for users to be refused; it may be zero.
	Dir   string
	Space space.Config
	// Advertise is the address at which the others reach this one, for both Raft
	// and gRPC. Peers are all the coordinators of the cluster, including this one.
	Advertise string
	Peers     []raftnode.Server
	Timing    raftnode.Timing
	// BetweenRaft returns what sits between Raft and the state machine, nil for
	// nothing: tests hold entries back there.
	BetweenRaft func(raft.FSM) raft.FSM
	// Raft carries Raft's connections; Listener accepts connections of daemons,
	// whose handshake Credentials perform; Socket is where local users connect.
	// Joins, optional, accepts those of machines without a certificate, whose
	// handshake Credentials perform too; they may only ask to join.
	Raft        raft.StreamLayer
	Listener    net.Listener
	Joins       net.Listener
	Credentials credentials.TransportCredentials
	Socket      net.Listener
	// Peer returns the caller over Listener: a role and an id. The error matches
	// ErrNoCertificate if the caller showed no certificate.
	Peer func(ctx context.Context) (role, id string, err error)
	// CutDenied closes the connections for which denied, built for the call,
	// returns true; optional. It is called after a certificate was denied.
	CutDenied func(denied func(role, id, serial string) bool)
	// Dial connects to another coordinator.
	Dial func(addr string) (*grpc.ClientConn, error)
	// Certs answers joins and renewals; optional: without it no machine can join
	// here.
	Certs nodes.Certifier
	// Users names the accounts of this host.
	Users func(uid cluster.UID) string
	// AllowRoot lets uid 0 submit; MinUID is the least uid that may. Admins may do
	// everything; uid 0 always is one.
	AllowRoot bool
	MinUID    cluster.UID
	Admins    []cluster.UID
	// Lease is how long an agent may be silent before it is not trusted.
	Lease time.Duration
	// HeadroomMiB is kept free on every GPU; MaxShares bounds co-location.
	HeadroomMiB int64
	MaxShares   int
	Policy      scheduler.Policy
	// Planner runs the passes instead of the scheduler's own, nil for those. It is
	// called whenever something arrived, ended or changed, and each second while a
	// job waits.
	Planner policies.Policy
	// Elastic is how elastic jobs are sized.
	Elastic elastic.Rules
	// PreemptEvery is the least time between two passes whose preemptions are
	// carried out; 0 means a minute.
	PreemptEvery time.Duration
	// Partitions are the policies of partitions that differ from Policy and
	// Planner. Interval is Scheduling's. These five may be replaced while the
	// coordinator runs; see SetScheduling.
	Partitions map[string]site.Chosen
	Interval   time.Duration
	// Learning may be zero.
	Learning learner.Config
	// GangTimeout is how long the nodes of a multi-node job may take until all are
	// ready to start it, images pulled; 0 means ten minutes. GangPorts are the
	// first and the last port where the processes of a multi-node job meet; 0 means
	// 20000 to 29999.
	GangTimeout time.Duration
	GangPorts   [2]uint16
	// HistoryKeep is how long finished jobs are kept in this coordinator's store,
	// HistoryMaxJobs how many; 0 means 90 days and 1,000,000. They are deleted in
	// files of HistoryFileJobs, 0 means 8,192. KeepFinished is how many of the
	// newest a new cluster keeps in its state; 0 means 20,000.
	HistoryKeep     time.Duration
	HistoryMaxJobs  int
	HistoryFileJobs int
	KeepFinished    int
	// CatchUp bounds how long a query for finished jobs waits for this coordinator
	// to catch up with the leader; 0 means five seconds.
	CatchUp time.Duration
	// Waits bound how long calls wait here for others.
	Waits Waits
	// SnapshotThreshold is how many log entries accumulate before a snapshot, and
	// how many are kept behind it; SnapshotInterval is how often that is checked. 0
	// means 8,192 and a minute.
	SnapshotThreshold uint64
	SnapshotInterval  time.Duration
	// MaxQueued is how many jobs may wait; 0 means 200,000.
	MaxQueued int
	// MaxBytes is how many bytes the specs of all waiting and running jobs may
	// take, and MaxBytesPerUser those of one user's, with equal environments and
	// scripts counted once; 0 means 2 GiB and 256 MiB.
	MaxBytes, MaxBytesPerUser int64
	// MaxPerUser is how many jobs of one user may wait or run; 0 means three
	// quarters of MaxQueued.
	MaxPerUser int
	// InGroup reports whether a user, with a primary group, is in the group of that
	// name; nil knows only the numbers of primary groups.
	InGroup func(user string, gid uint32, group string) bool
	// MaxArrayTasks is how many tasks one array may have; 0 means 100,000.
	MaxArrayTasks int
	// MaxStreams is how many shells, commands and outputs users may have open here
	// at once, MaxStreamsPerUser how many one user; 0 means 512 and 32.
	MaxStreams, MaxStreamsPerUser int
	// Limits bound what one user may ask for at once and per second;
	// MaxConnsPerUser is how many connections to Socket a user may have open, 0
	// means 256.
	Limits          limit.Config
	MaxConnsPerUser int
	// Notices configures how users are notified about jobs; it may be zero.
	Notices notify.Notices
	// IdleEvery is the interval of checks for idle GPUs; 0 means two seconds.
	IdleEvery time.Duration
	// IdleSeen, if not nil, is called after each check with the milliseconds in all
	// for which the use of the jobs is known by then.
	IdleSeen func(knownMs int64)
	// Power is how idle nodes are powered down; nil leaves all of them up.
	Power *lead.PowerSaving
	// Energy is the cost of power; nil if unknown.
	Energy *lead.EnergySignal
	// Web configures the page for browsers; without a listener there is none.
	Web web.Config
	// Gossip is the address to gossip at; optional. GossipKey is 32 bytes.
	Gossip      string
	GossipPeers []string
	GossipKey   []byte
	// Clock defaults to time.Now.
	Clock    func() time.Time
	Registry prometheus.Registerer
	// Underway is told of requests in progress; nil records nothing.
	Underway *wait.Underway
	// Fatal is called once, with the cause, when this process must not go on; the
	// state on disk may be bad.
	Fatal func(error)
	Log   *slog.Logger
}

const (
	defaultMaxQueued = 200_000
	defaultMaxTasks  = 100_000
	handOverLimit    = 2 * time.Second
)

// ErrNoCertificate means that a caller has no certificate.
var ErrNoCertificate = errors.New("no client certificate")

// Coordinator is one head of the cluster. Create it with New, and call Run once.
type Coordinator struct {
	cfg       Config
	log       *slog.Logger
	fsm       *fsm.FSM
	raft      *raftnode.Node
	prop      *proposer.Proposer
	admission *admission.Admission
	accounts  *accounts.Service
	jobs      *jobs.Jobs
	admin     *admin.Admin
	members   *members.Members
	lead      *lead.Leader
	recut     *recut.Recutter
	auth      *authorize.Authorizer
	learn     *learner.Learner
	nodes     *nodes.Nodes
	metrics   *metrics
	peers     *peers.Conns
	calls     *calls.Calls
	archive   *archive.Archive
	web       *web.Server
	denials   chan struct{} // holds one after a certificate was denied
	space     *space.Watch

	office *office.Office
	fatal  sync.Once
	began  time.Time
}

// New opens the state and joins Raft. It serves nothing before Run.
func New(cfg Config) (*Coordinator, error) {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.MaxArrayTasks = cmp.Or(cfg.MaxArrayTasks, defaultMaxTasks)
	cfg.MaxQueued = cmp.Or(cfg.MaxQueued, defaultMaxQueued)
	cfg.MaxBytes, cfg.MaxBytesPerUser = cmp.Or(cfg.MaxBytes, 2<<30), cmp.Or(cfg.MaxBytesPerUser, 256<<20)
	cfg.MaxPerUser = cmp.Or(cfg.MaxPerUser, max(1, cfg.MaxQueued/4*3))
	cfg.Waits.fill()
	if cfg.Lease <= 0 {
		return nil, errors.New("coordinator config: Lease is missing")
	}
	c := &Coordinator{
		cfg: cfg, log: cfg.Log.With("component", "coordinator", "id", cfg.ID),
		metrics: newMetrics(cfg.Registry, cfg.Clock()), began: cfg.Clock(), denials: make(chan struct{}, 1),
	}
	large, err := bulk.Open(cfg.Dir, c.log)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	c.fsm = fsm.New(fsm.Options{Version: cfg.Version, OnDiverged: c.diverged, OnDenied: c.cutLater, Bulk: large.Keep, Together: together})
	c.cfg.Peer = c.undenied(cfg.Peer)
	c.peers = peers.New(cfg.Dial)
	c.archive = newArchive(c) // before the log is read: the state forgets what the archive has not taken
	machine := c.archive.Machine()
	if cfg.BetweenRaft != nil {
		machine = cfg.BetweenRaft(machine)
	}
	node, err := raftnode.Open(raftnode.Config{
		Dir: cfg.Dir, ID: cfg.ID, Advertise: cfg.Advertise, StreamLayer: cfg.Raft, FSM: machine, Reads: raftnode.Reads{Entry: fsm.CheckEntry, State: fsm.CheckSnapshot},
		Log: cfg.Log.With("component", "raft"), Timing: cfg.Timing, Bootstrap: cfg.Peers, ClusterID: cfg.ClusterID,
		Fatal: c.die, SnapshotThreshold: cfg.SnapshotThreshold, TrailingLogs: cfg.SnapshotThreshold, SnapshotInterval: cfg.SnapshotInterval,
	})
	if err != nil {
		c.archive.Close()
		return nil, err
	}
	c.raft, c.office = node, office.New(node, cfg.Advertise)
	c.space = space.New(cfg.Space, cfg.Dir, c.log, c.metrics.reg)
	c.prop = proposer.New(node, c.fsm, cfg.Clock, c.space.Propose)
	c.learn = learner.New(cfg.Learning, learner.Needs{FSM: c.fsm, Proposer: c.prop, Clock: cfg.Clock, Log: c.log.With("component", "learner"), Registry: c.metrics.reg})
	c.compose()
	c.metrics.watch(c)
	c.archive.Watch(c.metrics.reg)
	return c, nil
}

// SetScheduling replaces the policies, see lead.Leader. It may be called on any
// coordinator: one that does not lead plans nothing.
func (c *Coordinator) SetScheduling(s lead.Scheduling) { c.lead.SetScheduling(s) }

// Suits reports why policies cannot be used, see lead.Leader.
func (c *Coordinator) Suits(s *lead.Scheduling) error { return c.lead.Suits(s) }

// together runs functions at once, and returns when all have returned.
func together(fs ...func()) {
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(f)
	}
	wg.Wait()
}

// die ends the process through Config.Fatal, once.
func (c *Coordinator) die(err error) {
	c.fatal.Do(func() {
		c.log.Error("cannot go on", "err", err)
		c.cfg.Fatal(err)
	})
}

// diverged stops a replica whose state is not the leader's.
func (c *Coordinator) diverged(index uint64, want, got []byte) {
	c.die(fmt.Errorf("state at index %d differs from the leader's (hash %x, want %x): "+
		"stop this coordinator, move %s away and start it again: it rejoins by snapshot", index, got, want, c.cfg.Dir))
}

// Run serves until ctx ends, then hands leadership over and closes.
func (c *Coordinator) Run(ctx context.Context) error {
	defer c.archive.Close()
	if err := c.nodes.Open(); err != nil {
		return errors.Join(err, c.raft.Close())
	}
	daemons, local := c.servers()
	// Serving continues while leadership is handed over, so that requests in flight
	// are answered: the servers stop last.
	loops, lctx := errgroup.WithContext(ctx)
	loops.Go(func() error { return c.nodes.Run(lctx) })
	loops.Go(func() error { return c.holdOffices(lctx) })
	loops.Go(func() error { return c.archive.Run(lctx) })
	loops.Go(func() error { return c.archive.Mend(lctx) })
	loops.Go(func() error { return c.space.Run(lctx) })
	loops.Go(func() error { return c.cutDenied(lctx) })
	loops.Go(func() error { return c.web.Run(lctx) })
	serving := new(errgroup.Group)
	serving.Go(func() error { return daemons.Serve(c.cfg.Listener) })
	serving.Go(func() error { return local.Serve(c.cfg.Socket) })
	serving.Go(func() error { return local.Serve(c.web.Calls()) })
	servers := []*grpc.Server{daemons, local}
	if c.cfg.Joins != nil {
		joins := c.calls.JoinServer()
		c.nodes.RegisterJoin(joins)
		servers = append(servers, joins)
		serving.Go(func() error { return joins.Serve(c.cfg.Joins) })
	}
	err := loops.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	c.handOver()
	stopServers(servers...)
	c.learn.Wait() // after at most one that computes; no term begins any more
	err = errors.Join(err, c.raft.Close(), c.nodes.Close(), serving.Wait())
	c.peers.Close()
	return err
}

// handOver transfers leadership to another coordinator, to which requests that
// arrive meanwhile are forwarded.
func (c *Coordinator) handOver() {
	if !c.raft.IsLeader() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverLimit)
	defer cancel()
	if err := c.raft.TransferLeadership(ctx); err != nil {
		c.log.Debug("leadership not handed over", "err", err)
	}
}

// stopServers gives calls in flight a moment to finish, then cuts them off.
func stopServers(servers ...*grpc.Server) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wg sync.WaitGroup
		for _, s := range servers {
			wg.Go(s.GracefulStop)
		}
		wg.Wait()
	}()
	select {
	case <-done:
	case <-time.After(500 * time.Millisecond):
		for _, s := range servers {
			s.Stop()
		}
		<-done
	}
}

// Healthy returns nil while there is a leader to serve users.
func (c *Coordinator) Healthy() error {
	if _, addr := c.office.Leader(); addr == "" {
		return errors.New("the coordinators have no leader")
	}
	return nil
}

// Package nodes is the side of a coordinator that talks to agents: their sessions,
// on which each learns what should run on its node and reports what does, the
// leases by which the leader knows that they live, the visits that users' streams
// are connected to, how machines join, and what gossip says. It decides nothing
// about jobs. Every coordinator has one; what only a leader does, Watch and the
// sessions, lasts as long as its term.
package nodes

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/limit"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// MaxReason is the maximal length of a reason stored with a node or a GPU.
const MaxReason = 256

// Config says how a coordinator treats nodes. Fields are required unless marked.
type Config struct {
	ID, ClusterID string
	// Lease is how long an agent may be silent before it is not trusted.
	Lease time.Duration
	// HeadroomMiB is kept free on every GPU; MaxShares bounds co-location.
	HeadroomMiB int64
	MaxShares   int
	// Certs answers joins and renewals; optional: without it no machine can join
	// here.
	Certs Certifier
	// Coordinators are the addresses of all coordinators, for joining nodes.
	Coordinators []string
	// Address is where this one serves agents.
	Address string
	// Gossip is the address to gossip at; optional. GossipKey is 32 bytes.
	Gossip      string
	GossipPeers []string
	GossipKey   []byte
	// MaxStreams is how many streams users may have open here at once,
	// MaxStreamsPerUser how many one user; 0 means 512 and 32.
	MaxStreams, MaxStreamsPerUser int
	// VisitWait is how long an agent may take to call back.
	VisitWait time.Duration
}

// Certifier issues certificates for certificate requests in PEM.
type Certifier interface {
	// Issue signs the key of csr for role and id and returns the certificate
	// and the CA, both PEM.
	Issue(csr []byte, role, id string) (cert, ca []byte, err error)
	// Token creates a join token and returns its text and the hash to store.
	Token() (text string, hash []byte, err error)
	// TokenHash returns the hash of a token's secret.
	TokenHash(secret string) ([]byte, error)
}

// Needs is what the package depends on. All fields are required.
type Needs struct {
	FSM      *fsm.FSM
	Proposer *proposer.Proposer
	Office   *office.Office
	Clock    func() time.Time
	Log      *slog.Logger
	// Peer returns the caller over mutual TLS: a role and an id.
	Peer func(ctx context.Context) (role, id string, err error)
	// Changed is called with every change of the state, in order, and Missed when
	// there were too many to deliver some. SawAbsurd is called for impossible
	// measurements.
	Changed           func([]fsm.Change)
	Missed, SawAbsurd func()
}

// Nodes is what a coordinator knows of nodes besides the state, and its ends of
// their streams. It is safe for concurrent use.
type Nodes struct {
	cfg       Config
	fsm       *fsm.FSM
	prop      *proposer.Proposer
	office    *office.Office
	clock     func() time.Time
	log       *slog.Logger
	peer      func(ctx context.Context) (role, id string, err error)
	sawAbsurd func()

	live    *liveness
	feed    *feed
	relays  *relays
	members *members
	hints   *hints
	guesses *limit.Hosts // wrong join tokens
}

// New returns a coordinator's nodes. It serves and reports nothing before Run and
// Register.
func New(cfg Config, d Needs) *Nodes {
	n := &Nodes{
		cfg: cfg, fsm: d.FSM, prop: d.Proposer, office: d.Office, clock: d.Clock, log: d.Log, peer: d.Peer, sawAbsurd: d.SawAbsurd,
		live: newLiveness(d, cfg.Lease), feed: newFeed(d), relays: newRelays(cfg.MaxStreams, cfg.MaxStreamsPerUser),
		guesses: limit.NewHosts(time.Now),
	}
	n.hints = &hints{
		clock: d.Clock, log: d.Log.With("component", "gossip"), of: map[cluster.NodeID]hint{},
		known: func(id cluster.NodeID) bool { _, ok := n.fsm.Node(id); return ok },
		keyOf: n.live.key, size: func() int { return n.members.count() },
	}
	return n
}

// Open starts listening to gossip, if there is any. It comes before Run.
func (n *Nodes) Open() (err error) {
	n.members, err = openMembers(n, n.log.With("component", "gossip"))
	return err
}

// Run distributes changes of the state and keeps up the gossip, until ctx ends.
func (n *Nodes) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.feed.run(ctx) })
	g.Go(func() error { return n.members.run(ctx) })
	return g.Wait()
}

// Close leaves the gossip. It may be called whether or not Open was.
func (n *Nodes) Close() error { return n.members.close() }

// Begin begins a leader's term: every node has a whole lease to call.
func (n *Nodes) Begin() { n.live.reset() }

// Watch declares nodes unreachable whose lease ran out, until ctx ends. It runs on
// the leader.
func (n *Nodes) Watch(ctx context.Context) error { return n.live.run(ctx) }

// Register registers the services for agents with s.
func (n *Nodes) Register(s *grpc.Server) {
	noderpc.RegisterNodeServiceServer(s, &nodeServer{n: n})
	noderpc.RegisterRelayServiceServer(s, &relayServer{n: n})
}

// RegisterJoin registers the service for machines that want to join with s. It has
// no other method of the service for nodes: a stream would never end.
func (n *Nodes) RegisterJoin(s *grpc.Server) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: noderpc.NodeService_ServiceDesc.ServiceName, HandlerType: (*noderpc.NodeServiceServer)(nil),
		Methods: joinOnly(noderpc.NodeService_ServiceDesc.Methods), Metadata: noderpc.NodeService_ServiceDesc.Metadata,
	}, &nodeServer{n: n})
}

// Contact is what was last heard of a node.
type Contact struct {
	At     time.Time // zero if nothing was heard in this term
	Usage  map[cluster.GPUID]*nodev1.GPUUsage
	Detail map[cluster.GPUID]*apiv1.GPUDetail
	Gossip string    // alive, dead, left or unknown
	Heard  time.Time // by gossip, zero if not lately
	Images int       // that it holds
}

// Contact returns what was last heard of a node.
func (n *Nodes) Contact(id cluster.NodeID) Contact {
	at, usage := n.live.last(id)
	t, _ := n.hints.get(id)
	return Contact{At: at, Usage: usage, Detail: n.live.details(id), Gossip: n.members.view(string(id)), Heard: t.at, Images: n.live.images(id)}
}

// FreeMiB returns how much memory a GPU has free, by its node's gossip.
func (n *Nodes) FreeMiB(node cluster.NodeID, gpu cluster.GPUID) (int64, bool) {
	t, _ := n.hints.get(node)
	g, ok := t.gpu(gpu)
	return int64(g.FreeMiB), ok
}

// Emptied returns nodes with what their GPUs would sell without use outside Berth:
// stray processes come and go, and a job that fits when they are gone is not one
// that never fits; nor is one that fits when a GPU in MIG mode is cut for it. Nodes are
// immutable; those that differ are copies.
func (n *Nodes) Emptied(nodes []*cluster.Node) []*cluster.Node {
	return n.live.uncut(n.live.emptied(nodes))
}

// Telling returns the attempts that some node reports progress or an image pull of,
// by job.
func (n *Nodes) Telling() []cluster.AttemptID { return n.live.telling() }

// UseOf adds up what an attempt has used on all its nodes; false if one of them has
// not reported. Its progress is set all the same.
func (n *Nodes) UseOf(id cluster.AttemptID, a *cluster.Attempt) (Use, bool) {
	return n.live.useOf(id, a)
}

// Streams returns how many streams users have open here.
func (n *Nodes) Streams() int { return n.relays.count() }

// AdmitStream counts a stream of a user until the returned function is called.
func (n *Nodes) AdmitStream(uid cluster.UID) (func(), error) { return n.relays.admit(uid) }

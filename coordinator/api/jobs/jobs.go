// Package jobs serves users' requests about their jobs: it submits, shows, watches,
// changes and ends them, says why they wait and when they may start, reports those
// that have ended, and connects users' streams to running ones.
package jobs

import (
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/accounts"
	"github.com/berth-scheduler/berth/coordinator/api/admission"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/api/calls"
	"github.com/berth-scheduler/berth/coordinator/archive"
	"github.com/berth-scheduler/berth/coordinator/current"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/peers"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// Config bounds waits.
type Config struct {
	ID string // this coordinator's
	// LeaderWait is for a leader to exist, IndexWait for an index that was seen at
	// another coordinator.
	LeaderWait, IndexWait time.Duration
}

// Needs is what the services depend on. All fields are required.
type Needs struct {
	FSM       *fsm.FSM
	Proposer  *proposer.Proposer
	Office    *office.Office
	Auth      *authorize.Authorizer
	Calls     *calls.Calls
	Admission *admission.Admission
	Accounts  *accounts.Service
	Leader    *lead.Leader
	Learner   *learner.Learner
	Nodes     *nodes.Nodes
	// Cuts says for which cut of a GPU a waiting job waits, zero for none.
	Cuts    func(cluster.JobID) cluster.Reason
	Archive *archive.Archive
	Current *current.Current
	Peers   *peers.Conns
	Clock   func() time.Time
	Log     *slog.Logger
}

// Jobs is what the job services share.
type Jobs struct {
	cfg       Config
	fsm       *fsm.FSM
	prop      *proposer.Proposer
	office    *office.Office
	auth      *authorize.Authorizer
	calls     *calls.Calls
	admission *admission.Admission
	accounts  *accounts.Service
	lead      *lead.Leader
	learn     *learner.Learner
	nodes     *nodes.Nodes
	cuts      func(cluster.JobID) cluster.Reason
	archive   *archive.Archive
	current   *current.Current
	peers     *peers.Conns
	clock     func() time.Time
	log       *slog.Logger
}

// New creates the services.
func New(cfg Config, d Needs) *Jobs {
	return &Jobs{
		cfg: cfg, fsm: d.FSM, prop: d.Proposer, office: d.Office, auth: d.Auth, calls: d.Calls, admission: d.Admission, accounts: d.Accounts,
		lead: d.Leader, learn: d.Learner, nodes: d.Nodes, cuts: d.Cuts, archive: d.Archive, current: d.Current, peers: d.Peers, clock: d.Clock, log: d.Log,
	}
}

// Register registers the services with s.
func (c *Jobs) Register(s *grpc.Server) {
	apirpc.RegisterJobServiceServer(s, &jobServer{c: c})
	apirpc.RegisterHistoryServiceServer(s, &historyServer{c: c})
	apirpc.RegisterSeriesServiceServer(s, &seriesServer{c: c})
	apirpc.RegisterAttachServiceServer(s, &attachServer{c: c})
}

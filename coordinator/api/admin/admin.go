// Package admin serves administrators, and users who look around: the cluster, its
// nodes and GPUs, partitions, reservations, the predictor's weights, webhooks and
// backups.
package admin

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/figures"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/members"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/coordinator/notify"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/peers"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// Config sets what is shown of a coordinator, and who may add webhooks.
type Config struct {
	ID, ClusterID, ClusterName, Version string
	Policy                              scheduler.Policy
	Planner                             policies.Policy // nil for the scheduler's own passes
	Webhooks                            notify.WebhookUsers
	Mails                               bool // mail is sent here
	// LeaderWait is for a leader to exist.
	LeaderWait time.Duration
}

// Needs is what the services depend on. All fields are required.
type Needs struct {
	FSM      *fsm.FSM
	Raft     *raftnode.Node
	Proposer *proposer.Proposer
	Office   *office.Office
	Auth     *authorize.Authorizer
	Leader   *lead.Leader
	Learner  *learner.Learner
	Nodes    *nodes.Nodes
	Members  *members.Members
	Peers    *peers.Conns
	Figures  *figures.Figures
	Clock    func() time.Time
	Log      *slog.Logger
}

// Admin is what the services share.
type Admin struct {
	cfg     Config
	fsm     *fsm.FSM
	raft    *raftnode.Node
	prop    *proposer.Proposer
	office  *office.Office
	auth    *authorize.Authorizer
	lead    *lead.Leader
	learn   *learner.Learner
	nodes   *nodes.Nodes
	members *members.Members
	peers   *peers.Conns
	figures *figures.Figures
	clock   func() time.Time
	log     *slog.Logger
	builtIn fsm.WeightsVersion
}

// New creates the services.
func New(cfg Config, d Needs) *Admin {
	return &Admin{
		cfg: cfg, fsm: d.FSM, raft: d.Raft, prop: d.Proposer, office: d.Office, auth: d.Auth, lead: d.Leader, learn: d.Learner, nodes: d.Nodes,
		members: d.Members, peers: d.Peers, figures: d.Figures, clock: d.Clock, log: d.Log, builtIn: learner.BuiltIn(),
	}
}

// Register registers the services with s.
func (c *Admin) Register(s *grpc.Server) {
	apirpc.RegisterClusterServiceServer(s, &clusterServer{c: c})
	apirpc.RegisterModelServiceServer(s, &modelServer{c: c})
	apirpc.RegisterNotifyServiceServer(s, &notifyServer{c: c})
	apirpc.RegisterBackupServiceServer(s, &backupServer{c: c})
}

// order proposes what only administrators may do.
func (c *Admin) order(ctx context.Context, cmd *logv1.Command) (who authorize.Caller, r fsm.Result, err error) {
	who = authorize.CallerOf(ctx)
	if err := c.auth.May(who, authorize.Admin, nil); err != nil {
		return who, r, err
	}
	r, err = c.prop.One(ctx, cmd)
	return who, r, err
}

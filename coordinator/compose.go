package coordinator

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/coordinator/api/accounts"
	"github.com/berth-scheduler/berth/coordinator/api/admin"
	"github.com/berth-scheduler/berth/coordinator/api/admission"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/api/calls"
	"github.com/berth-scheduler/berth/coordinator/api/jobs"
	"github.com/berth-scheduler/berth/coordinator/archive"
	"github.com/berth-scheduler/berth/coordinator/current"
	"github.com/berth-scheduler/berth/coordinator/endpoints"
	"github.com/berth-scheduler/berth/coordinator/history"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/members"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/coordinator/notify"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/coordinator/recut"
	"github.com/berth-scheduler/berth/coordinator/web"
	"github.com/berth-scheduler/berth/coordinator/web/session"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// compose builds the parts, each from what it needs of those below it.
func (c *Coordinator) compose() {
	c.auth = authorize.New(authorize.Config{
		ID: c.cfg.ID, Users: c.cfg.Users, AllowRoot: c.cfg.AllowRoot, MinUID: c.cfg.MinUID, Admins: c.cfg.Admins, Peer: c.cfg.Peer, JobUserWait: c.cfg.Waits.JobUser,
	}, c.fsm)
	c.calls = calls.New(calls.Config{
		ID: c.cfg.ID, Credentials: c.cfg.Credentials, FirstWait: c.cfg.Waits.First, LeaderWait: c.cfg.Waits.Leader, Limits: c.cfg.Limits, MaxConnsPerUser: c.cfg.MaxConnsPerUser,
	}, calls.Needs{Auth: c.auth, Office: c.office, Peers: c.peers, Space: c.space, Figures: c.metrics.figures, Underway: c.cfg.Underway, Registry: c.metrics.reg, Log: c.log})
	c.nodes = newNodes(c)
	c.lead = newLeader(c)
	c.recut = recut.New(recut.Needs{FSM: c.fsm, Proposer: c.prop, Clock: c.cfg.Clock, Log: c.log, Cards: c.nodes.MIGCards, Card: c.nodes.MIGCard, Cut: c.nodes.Cut, Plan: func(snap *dispatch.Snapshot) dispatch.Plan { return lead.PlanOf(c.lead, snap) }})
	c.admission = admission.New(admission.Config{
		MaxQueued: c.cfg.MaxQueued, MaxPerUser: c.cfg.MaxPerUser, MaxArrayTasks: c.cfg.MaxArrayTasks, MaxBytes: c.cfg.MaxBytes, MaxBytesPerUser: c.cfg.MaxBytesPerUser,
		InGroup: c.cfg.InGroup, NoMail: c.cfg.Notices.Mail.Program == "",
	}, admission.Needs{FSM: c.fsm, Proposer: c.prop, Leader: c.lead, Nodes: c.nodes, Clock: c.cfg.Clock})
	c.accounts = accounts.New(accounts.Needs{
		FSM: c.fsm, Proposer: c.prop, Auth: c.auth, Office: c.office, Leader: c.lead, Clock: c.cfg.Clock, Log: c.log,
	})
	c.jobs = jobs.New(jobs.Config{ID: c.cfg.ID, LeaderWait: c.cfg.Waits.Leader, IndexWait: c.cfg.Waits.Index}, jobs.Needs{
		FSM: c.fsm, Proposer: c.prop, Office: c.office, Auth: c.auth, Calls: c.calls, Admission: c.admission, Accounts: c.accounts, Leader: c.lead, Learner: c.learn,
		Nodes: c.nodes, Cuts: c.recut.Reason, Archive: c.archive, Current: current.New(c.cfg.ID, c.cfg.CatchUp, c.fsm, c.office, c.peers), Peers: c.peers, Clock: c.cfg.Clock, Log: c.log,
	})
	c.members = members.New(members.Config{ID: c.cfg.ID, Dir: c.cfg.Dir, Version: c.cfg.Version}, members.Needs{
		FSM: c.fsm, Raft: c.raft, Office: c.office, Peers: c.peers, Archive: c.archive, Space: c.space, Peer: c.cfg.Peer,
	})
	c.admin = admin.New(admin.Config{
		ID: c.cfg.ID, ClusterID: c.cfg.ClusterID, ClusterName: c.cfg.ClusterName, Version: c.cfg.Version, Policy: c.cfg.Policy, Planner: c.cfg.Planner,
		Webhooks: c.cfg.Notices.Webhooks, Mails: c.cfg.Notices.Mail.Program != "", LeaderWait: c.cfg.Waits.Leader,
	}, admin.Needs{
		FSM: c.fsm, Raft: c.raft, Proposer: c.prop, Office: c.office, Auth: c.auth, Leader: c.lead, Learner: c.learn, Nodes: c.nodes, Members: c.members,
		Peers: c.peers, Figures: c.metrics.figures, Clock: c.cfg.Clock, Log: c.log,
	})
	c.web = newWeb(c)
}

// Endpoints serves the addresses where replicas of services take requests over
// HTTP; see package endpoints.
func (c *Coordinator) Endpoints() http.Handler { return endpoints.Handler(c.fsm) }

func newWeb(c *Coordinator) *web.Server {
	cfg := c.cfg.Web
	cfg.ClusterID, cfg.ClusterName, cfg.ID = c.cfg.ClusterID, c.cfg.ClusterName, c.cfg.ID
	return web.New(cfg, web.Needs{Clock: c.cfg.Clock, Log: c.log, Who: func(u session.User) web.Who {
		who := c.auth.User(u.UID, u.GID)
		return web.Who{Name: who.Name, Admin: who.Admin}
	}})
}

func newNodes(c *Coordinator) *nodes.Nodes {
	cfg := nodes.Config{
		ID: c.cfg.ID, ClusterID: c.cfg.ClusterID, Lease: c.cfg.Lease, HeadroomMiB: c.cfg.HeadroomMiB, MaxShares: c.cfg.MaxShares, Certs: c.cfg.Certs,
		Address: c.cfg.Advertise, Gossip: c.cfg.Gossip, GossipPeers: c.cfg.GossipPeers, GossipKey: c.cfg.GossipKey,
		MaxStreams: c.cfg.MaxStreams, MaxStreamsPerUser: c.cfg.MaxStreamsPerUser, VisitWait: c.cfg.Waits.Visit,
	}
	for _, p := range c.cfg.Peers {
		cfg.Coordinators = append(cfg.Coordinators, p.Addr)
	}
	return nodes.New(cfg, nodes.Needs{
		FSM: c.fsm, Proposer: c.prop, Office: c.office, Clock: c.cfg.Clock, Log: c.log, Peer: c.cfg.Peer,
		Changed: func(cs []fsm.Change) { c.lead.Note(cs) }, Missed: func() { c.lead.Again() }, SawAbsurd: c.learn.SawAbsurd,
	})
}

func newLeader(c *Coordinator) *lead.Leader {
	n := &c.cfg.Notices
	cfg := lead.Config{
		ClusterName: c.cfg.ClusterName, ClusterID: c.cfg.ClusterID, GangTimeout: c.cfg.GangTimeout, GangPorts: c.cfg.GangPorts,
		IdleEvery: c.cfg.IdleEvery, IdleSeen: c.cfg.IdleSeen, Power: c.cfg.Power, Energy: c.cfg.Energy,
		Mail: n.Mail, Guard: notify.Guard{Allow: n.Allow, PublicOnly: n.Webhooks == notify.WebhooksUsers}, Tries: n.Tries, FirstPause: n.FirstPause,
	}
	if p := c.cfg.Power; p != nil {
		with := *p
		with.Ended = func(ctx context.Context, from, before cluster.Time, most int, yield func(*cluster.Job) error) error {
			_, err := c.archive.Scan(ctx, &history.Query{EndedFrom: from, EndedBefore: before, Limit: most}, yield)
			return err
		}
		cfg.Power = &with
	}
	return lead.New(cfg, lead.Needs{
		FSM: c.fsm, Proposer: c.prop, Company: c.learn.Company, Figures: c.metrics.figures, Clock: c.cfg.Clock,
		Log: c.log, NoticeLog: c.cfg.Log, Registry: c.metrics.reg, UseOf: c.nodes.UseOf, Telling: c.nodes.Telling, Held: c.nodes.Held, Awaits: func(j cluster.JobID, n cluster.NodeID, g cluster.GPUID) bool { return c.recut.Awaits(j, n, g) }, Holders: c.nodes.Holders,
	}, lead.Scheduling{
		Site:     site.Site{Chosen: site.Chosen{Policy: c.cfg.Policy, Planner: c.cfg.Planner, Elastic: c.cfg.Elastic}, Partitions: c.cfg.Partitions},
		Interval: c.cfg.Interval, PreemptEvery: c.cfg.PreemptEvery,
	})
}

func newArchive(c *Coordinator) *archive.Archive {
	return archive.New(archive.Config{
		ID: c.cfg.ID, Dir: c.cfg.Dir, Keep: c.cfg.HistoryKeep, MaxJobs: c.cfg.HistoryMaxJobs, FileJobs: c.cfg.HistoryFileJobs,
	}, archive.Needs{
		FSM: c.fsm, Peers: c.peers, Members: func() []raftnode.Member { return c.raft.Members() }, Log: c.log, StoreLog: c.cfg.Log,
	})
}

// servers creates the servers for daemons and for local users, and registers the
// services.
func (c *Coordinator) servers() (daemons, local *grpc.Server) {
	daemons, local = c.calls.Servers()
	for _, s := range []*grpc.Server{daemons, local} {
		c.jobs.Register(s)
		c.admin.Register(s)
		apirpc.RegisterAccountServiceServer(s, c.accounts)
		c.web.Register(s)
	}
	c.nodes.Register(daemons)
	c.members.Register(daemons)
	return daemons, local
}

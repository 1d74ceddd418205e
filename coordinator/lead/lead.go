// Package lead is what only a leader does besides answering: it plans and proposes
// its plans, ends what is over, gives up late gangs, carries out the idle policies
// of partitions, notifies users about their jobs, and has replicas compare their
// states. Run lasts for one term; what the loops remember is soft state, which a
// new leader rebuilds. Planning starts in planner.go; what is planned is in
// scheduler/site.
package lead

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/figures"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/coordinator/notify"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// Config may be zero, except for its names.
type Config struct {
	ClusterName, ClusterID string
	// GangTimeout is how long the nodes of a multi-node job may take until all are
	// ready to start it; 0 means ten minutes. GangPorts are the first and the last
	// port where the processes of a multi-node job meet; 0 means 20000 to 29999.
	GangTimeout time.Duration
	GangPorts   [2]uint16
	// IdleEvery is the interval of checks for idle GPUs; 0 means two seconds.
	// IdleSeen, if not nil, is called after each check with the milliseconds in all
	// for which the use of the jobs is known by then.
	IdleEvery time.Duration
	IdleSeen  func(knownMs int64)
	// ServicesEvery is the interval of checks of services; 0 means one second.
	ServicesEvery time.Duration
	// Notices are sent by mail and to webhooks that Guard allows. Tries and
	// FirstPause are those of notify.Config.
	Mail       notify.Mailer
	Guard      notify.Guard
	Tries      int
	FirstPause time.Duration
	// Power is how idle nodes are powered down; nil leaves all of them up.
	Power *PowerSaving
	// Energy is the cost of power; nil if unknown.
	Energy *EnergySignal
}

// Needs is what a leader depends on. All fields are required.
type Needs struct {
	FSM      *fsm.FSM
	Proposer *proposer.Proposer
	Company  *learner.Company
	Figures  *figures.Figures
	Clock    func() time.Time
	// Log is the coordinator's; NoticeLog has no component yet.
	Log, NoticeLog *slog.Logger
	Registry       prometheus.Registerer
	// UseOf returns what an attempt has used on all its nodes; false if one of them
	// has not reported.
	UseOf func(cluster.AttemptID, *cluster.Attempt) (nodes.Use, bool)
	// Telling returns the attempts that some node reports progress or an image pull
	// of, by job.
	Telling func() []cluster.AttemptID
	// Held returns what stray processes hold of GPUs by gossip, beyond what the
	// ledger knows.
	Held func() map[cluster.GPUID]int64
	// Awaits reports whether a job about to start on one GPU waits instead until the
	// GPU is cut for it.
	Awaits func(cluster.JobID, cluster.NodeID, cluster.GPUID) bool
	// Holders returns the nodes that hold images which jobs run in; nil means none.
	Holders func([]*cluster.Job) map[string][]cluster.NodeID
}

// Leader does a leader's work during Run.
type Leader struct {
	Idling
	cfg       Config
	fsm       *fsm.FSM
	prop      *proposer.Proposer
	clock     func() time.Time
	log       *slog.Logger
	noticeLog *slog.Logger
	useOf     func(cluster.AttemptID, *cluster.Attempt) (nodes.Use, bool)
	telling   func() []cluster.AttemptID
	held      func() map[cluster.GPUID]int64
	awaits    func(cluster.JobID, cluster.NodeID, cluster.GPUID) bool
	holders   func([]*cluster.Job) map[string][]cluster.NodeID
	metrics   *metrics
	sched     atomic.Pointer[Scheduling]
	plan      *planner
	needs     atomic.Pointer[site.Needs]
	demand    demand
	energy    energy
}

// New returns a leader that plans by s.
func New(cfg Config, d Needs, s Scheduling) *Leader {
	l := &Leader{
		cfg: cfg, fsm: d.FSM, prop: d.Proposer, clock: d.Clock, log: d.Log, noticeLog: d.NoticeLog, useOf: d.UseOf, telling: d.Telling, held: d.Held, awaits: d.Awaits, holders: d.Holders,
		metrics: newMetrics(d.Registry, d.Figures),
	}
	l.sched.Store(&s)
	l.plan = newPlanner(l, d.Company)
	l.energy.register(l, d.Registry)
	return l
}

// Run does a leader's work until ctx ends.
func (l *Leader) Run(ctx context.Context) error {
	if err := l.Suits(l.Scheduling()); err != nil { // the one set at the start, when it could not be checked
		l.log.ErrorContext(ctx, "jobs wait that the policy never starts", "err", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, loop := range []func(context.Context) error{
		l.plan.run, l.expire, l.undoLate, l.checkpoints, l.sendNotices, l.markLimits, l.watchIdle, l.resizeAll, l.noteProgress, l.trials, l.services, l.savePower, l.deferJobs,
	} {
		g.Go(func() error { return loop(ctx) })
	}
	return g.Wait()
}

// stateSeen is the index of the state that a loop looked at last: among a hundred
// thousand jobs it looks at all of them only when something changed.
type stateSeen uint64

// changed reports whether the state has changed since it was asked last.
func (s *stateSeen) changed(f *fsm.FSM) bool {
	was := *s
	*s = stateSeen(f.Index())
	return *s != was
}

// Note records what changed; it never blocks.
func (l *Leader) Note(cs []fsm.Change) { l.plan.note(cs) }

// Again asks for a full pass.
func (l *Leader) Again() { l.plan.again() }

package agent

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Visitors serves users who look into the attempts of this node, for as long
// as ctx lasts, by calling the leader at conn back; package relay does.
type Visitors interface {
	Serve(ctx context.Context, conn grpc.ClientConnInterface, v *Visit)
}

// Visit is one user's wish to see or enter one attempt.
type Visit struct {
	Ask *nodev1.Visit
	// Refused says why it cannot be granted; then nothing below holds.
	Refused error
	// Node is this one.
	Node cluster.NodeID
	// Launch has the attempt's id, its user, its directory and its output
	// files, and nothing else.
	Launch *Launch
	// Runtime has the attempt; nil when it is not here any more.
	Runtime Runtime
	// Journal remembers which of the attempt's requests must not be done again.
	Journal *journal.Journal
	// Audience is whom a signal to the attempt reaches when nothing else is said:
	// not a shell that runs a script, nor what starts several tasks and passes
	// signals on.
	Audience Audience
	// Runs closes when the attempt's first process runs, Over when it has
	// ended and how is on disk. Both are closed of one that is not here any more.
	Runs, Over <-chan struct{}
}

// milestones are points of an attempt's life that others wait for.
type milestones struct {
	runs, over         chan struct{}
	runsOnce, overOnce sync.Once
	// visited says that somebody who logged in was moved into its control group.
	visited atomic.Bool
}

func newMilestones() *milestones {
	return &milestones{runs: make(chan struct{}), over: make(chan struct{})}
}

func (m *milestones) running() { m.runsOnce.Do(func() { close(m.runs) }) }

func (m *milestones) ended() {
	m.running()
	m.overOnce.Do(func() { close(m.over) })
}

// visit answers one user, in a goroutine of its own.
func (a *Agent) visit(ctx context.Context, conn grpc.ClientConnInterface, ask *nodev1.Visit) {
	if a.cfg.Visitors == nil {
		return // the leader says that nobody answered
	}
	a.workers.Go(func() {
		v, err := a.admitVisit(ask)
		if err != nil {
			v = &Visit{Ask: ask, Refused: err}
		}
		a.cfg.Visitors.Serve(ctx, conn, v)
	})
}

// admitVisit checks against what this agent itself knows of the attempt, and
// believes the leader only about one that is forgotten here.
func (a *Agent) admitVisit(ask *nodev1.Visit) (*Visit, error) {
	as := ask.GetOf()
	id := conv.AttemptOf(as)
	a.mu.Lock()
	t := a.tasks[id]
	a.mu.Unlock()
	v := &Visit{Ask: ask, Node: a.cfg.Node}
	gone := newMilestones()
	gone.ended()
	v.Runs, v.Over = gone.runs, gone.over
	if t != nil {
		v.Runs, v.Over = t.points.runs, t.points.over
		if own, _ := t.wants(); own != nil {
			if own.Token != as.GetToken() || own.Uid != as.GetUid() || own.Gid != as.GetGid() {
				return nil, cluster.Errorf(cluster.CodeConflict, "node %s has another attempt of job %s than the leader means; try again", a.cfg.Node, id.Job)
			}
			as = own
		}
		v.Runtime, v.Journal, v.Audience = a.runtimeFor(as), a.journal, audienceOf(as)
	}
	if ask.GetUid() != as.GetUid() && !ask.GetAdmin() {
		return nil, cluster.Errorf(cluster.CodeDenied, "the job belongs to another user")
	}
	user, err := a.cfg.Users.Resolve(as.GetUid(), as.GetGid(), as.GetUser())
	if err != nil {
		return nil, &cluster.Error{Code: cluster.CodeDenied, Msg: "node " + string(a.cfg.Node) + " does not take this user: " + err.Error()}
	}
	v.Launch = &Launch{
		ID: id, Token: cluster.Token(as.GetToken()), UID: as.GetUid(), GID: as.GetGid(), Groups: user.Groups,
		Image: as.GetImage(), Dir: submitDirOf(as, user),
	}
	a.setOutput(v.Launch, as, v.Launch.Dir)
	return v, nil
}

// audienceOf is whom signals to an attempt are meant for: not the shell that runs
// its script, nor who runs its ranks and passes signals on.
func audienceOf(as *nodev1.Assignment) Audience {
	if len(as.Script) > 0 || as.GetRanks().GetTasks() > 1 {
		return ToOthers
	}
	return ToAll
}

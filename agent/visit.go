package agent

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/agent/relay"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Visitors serves users who look into the attempts of this node until ctx ends, by calling
// back the leader at conn; package relay implements it.
type Visitors interface {
	Serve(ctx context.Context, conn grpc.ClientConnInterface, v *relay.Visit)
}

// milestones are points in an attempt's life that others wait for.
type milestones struct {
	runs, over     chan struct{}
	running, ended func()
	// visited is set once a login session was moved into its control group.
	visited atomic.Bool
}

func newMilestones() *milestones {
	m := &milestones{runs: make(chan struct{}), over: make(chan struct{})}
	m.running = sync.OnceFunc(func() { close(m.runs) })
	m.ended = sync.OnceFunc(func() {
		m.running()
		close(m.over)
	})
	return m
}

// visit answers one user in a goroutine of its own.
func (a *Agent) visit(ctx context.Context, conn grpc.ClientConnInterface, ask *nodev1.Visit) {
	if a.cfg.Visitors == nil {
		return // the leader reports that there was no answer
	}
	a.workers.Go(func() {
		v, err := a.admitVisit(ask)
		if err != nil {
			v = &relay.Visit{Ask: ask, Refused: err}
		}
		a.cfg.Visitors.Serve(ctx, conn, v)
	})
}

// seriesDir is where an agent keeps the time series of its GPUs.
const seriesDir = "series"

// admitVisit checks a visit against what the agent itself knows of the attempt. It trusts
// the leader only about an attempt that is forgotten here.
func (a *Agent) admitVisit(ask *nodev1.Visit) (*relay.Visit, error) {
	if ask.GetOpen().GetSeries() != nil {
		return &relay.Visit{Ask: ask, Node: a.cfg.Node, Series: a.series}, nil // of GPUs, whichever job had them
	}
	as := ask.GetOf()
	id := conv.AttemptOf(as)
	t := a.task(id)
	v := &relay.Visit{Ask: ask, Node: a.cfg.Node}
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
	var err error
	if v.Launch, err = a.launcher.Outline(as); err != nil {
		return nil, &cluster.Error{Code: cluster.CodeDenied, Msg: "node " + string(a.cfg.Node) + " does not take this user: " + err.Error()}
	}
	return v, nil
}

// audienceOf returns the audience of signals to an attempt: neither the shell that runs its
// script nor the process that runs its ranks and passes signals on.
func audienceOf(as *nodev1.Assignment) runtime.Audience {
	if len(as.Script) > 0 || as.GetRanks().GetTasks() > 1 {
		return runtime.ToOthers
	}
	return runtime.ToAll
}

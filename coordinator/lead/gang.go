package lead

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	defaultGangTimeout = 10 * time.Minute
	firstGangPort      = 20_000
	lastGangPort       = 29_999
	// undoEvery is how often the leader checks for late gangs.
	undoEvery = time.Second
)

// ports are those where live attempts meet, by host.
type ports map[string]map[uint16]struct{}

func (u ports) on(host string) map[uint16]struct{} {
	if u[host] == nil {
		u[host] = map[uint16]struct{}{}
	}
	return u[host]
}

// assignPorts gives each start of several processes a port for them to meet at, and
// replicas of services one to take requests at: the same for the same attempt,
// unless a live one on the same host has it.
func (p *planner) assignPorts(starts []dispatch.Start) {
	var used ports
	for i := range starts {
		st := &starts[i]
		j, ok := p.fsm.Job(st.Job)
		if !ok || !j.Spec.Ranked() && j.Spec.Service == nil {
			continue
		}
		if used == nil {
			used = p.portsInUse()
		}
		on := used.on(nodes.HostOf(p.fsm, st.Berth.Node))
		st.Port = p.choosePort(j, st.Attempt, on)
		on[st.Port] = struct{}{}
	}
}

func (p *planner) portsInUse() ports {
	used := ports{}
	live, _ := p.fsm.Jobs(fsm.Query{
		States: []cluster.JobState{cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable},
		Keep:   func(j *cluster.Job) bool { return j.Live() != nil && j.Live().Port != 0 },
	})
	for _, j := range live {
		used.on(nodes.HostOf(p.fsm, j.Live().Berth.Node))[j.Live().Port] = struct{}{}
	}
	return used
}

// choosePort chooses by the attempt's identity and its job's arrival time, so that
// clusters on one machine, whose jobs have the same ids, choose different ports.
func (p *planner) choosePort(j *cluster.Job, attempt uint32, used map[uint16]struct{}) uint16 {
	first, last := p.ports[0], p.ports[1]
	if first == 0 || last < first {
		first, last = firstGangPort, lastGangPort
	}
	n := uint32(last-first) + 1
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, j.ID, attempt, int64(j.Submitted)) // never fails
	at := h.Sum32() % n
	for range n {
		if _, taken := used[first+uint16(at)]; !taken {
			break
		}
		at = (at + 1) % n
	}
	return first + uint16(at)
}

// undoLate gives up gangs of which not all nodes became ready in time, until ctx
// ends. The log has when each began to wait, so that a new leader continues where
// the last one was.
func (l *Leader) undoLate(ctx context.Context) error {
	bound := l.cfg.GangTimeout
	if bound <= 0 {
		bound = defaultGangTimeout
	}
	for wait.Sleep(ctx, min(undoEvery, bound/4)) {
		now := cluster.TimeOf(l.clock())
		late, _ := l.fsm.Jobs(fsm.Query{
			States: []cluster.JobState{cluster.JobStarting, cluster.JobUnreachable},
			Keep: func(j *cluster.Job) bool {
				a := j.Live()
				return a != nil && a.Gang != nil && !a.Gang.Go && !a.Gang.Stopping() && now.Sub(a.Placed) > bound
			},
		})
		for _, j := range late {
			a := j.Live()
			why := fmt.Sprintf("%s not ready to start within %s", notReady(a), bound)
			_, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_UndoGang{UndoGang: &logv1.UndoGang{Job: uint64(j.ID), Attempt: a.No, Why: why}}})
			if err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "cannot give up a gang that is late", "job", j.ID.String(), "err", err)
			} else if err == nil {
				l.log.InfoContext(ctx, "gang given up before its start", "job", j.ID.String(), "attempt", a.No, "reason", why)
			}
		}
	}
	return ctx.Err()
}

// notReady names the nodes that delay the others.
func notReady(a *cluster.Attempt) string {
	var ids []cluster.NodeID
	for rank, b := range a.Berths() {
		if !a.Gang.Parts[rank].Ready {
			ids = append(ids, b.Node)
		}
	}
	if len(ids) == 1 {
		return "node " + string(ids[0]) + " was"
	}
	return "nodes " + hostnames.Fold(ids) + " were"
}

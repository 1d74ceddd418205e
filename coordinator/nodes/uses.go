package nodes

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// maxUses bounds the attempts in one heartbeat: more than run on a node.
const maxUses = 4096

// Use is a node's last report on an attempt.
type Use struct {
	At                       cluster.Time
	BusyMs, KnownMs, PeakMiB int64
	// Progress is the progress that it reports, nil if none.
	Progress *cluster.Progress
	// Probe is the result of its health check, nil for none.
	Probe *service.Probe
	// Pull is the progress of its image pull, nil for none; of several nodes that
	// of the slowest.
	Pull *cluster.Pull
}

// used records what a node's attempts have used.
func (l *liveness) used(node cluster.NodeID, us []*nodev1.AttemptUse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		return
	}
	at := cluster.TimeOf(l.clock())
	us = us[:min(len(us), maxUses)]
	if n.uses == nil {
		n.uses = make(map[cluster.AttemptID]Use, len(us))
	}
	clear(n.uses)
	n.tells = false
	for _, u := range us {
		id := cluster.AttemptID{Job: cluster.JobID(u.Job), No: u.Attempt}
		if s := u.Steps; s != nil && s.Metric != nil {
			if n.curves == nil {
				n.curves = curves{}
			}
			n.curves.add(id, l.clock(), Point{s.Step, *s.Metric})
		}
		use := Use{at, max(0, u.BusyMs), max(0, u.KnownMs), max(0, u.PeakMib), conv.ProgressFromNode(u.Steps, at), conv.ProbeFromNode(u.Probe), conv.PullFromNode(u.Pull)}
		n.uses[id], n.tells = use, n.tells || use.Progress != nil || use.Pull != nil
	}
}

// telling returns the attempts that some node reports progress or an image pull of,
// by job.
func (l *liveness) telling() (out []cluster.AttemptID) {
	l.mu.Lock()
	for _, n := range l.nodes {
		if !n.tells {
			continue
		}
		for id, u := range n.uses {
			if u.Progress != nil || u.Pull != nil {
				out = append(out, id)
			}
		}
	}
	l.mu.Unlock()
	slices.SortFunc(out, func(a, b cluster.AttemptID) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.No, b.No)) })
	return slices.Compact(out) // a job on several nodes is told of by each
}

// useOf adds up what an attempt has used on all its nodes; of progress, the
// farthest counts. ok is false if one of them has not reported; the progress is set
// all the same.
func (l *liveness) useOf(id cluster.AttemptID, a *cluster.Attempt) (sum Use, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := true
	for _, node := range a.NodeIDs() {
		n := l.nodes[node]
		if n == nil {
			all = false
			continue
		}
		u, there := n.uses[id]
		if !there {
			all = false
			continue
		}
		if sum.At == 0 || u.At < sum.At {
			sum.At = u.At
		}
		sum.BusyMs, sum.KnownMs, sum.PeakMiB = sum.BusyMs+u.BusyMs, sum.KnownMs+u.KnownMs, max(sum.PeakMiB, u.PeakMiB)
		sum.Probe = u.Probe // of replicas, which are on one node
		if u.Pull.Behind(sum.Pull) {
			sum.Pull = u.Pull
		}
		if p := u.Progress; p != nil && (sum.Progress == nil || p.Step > sum.Progress.Step) {
			sum.Progress = p
		}
	}
	return sum, all && sum.At != 0
}

package nodes

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// maxUses is of how many attempts one heartbeat may tell: more than run on a node.
const maxUses = 4096

// Use is what a node said last of an attempt.
type Use struct {
	At                       cluster.Time
	BusyMs, KnownMs, PeakMiB int64
	// Progress is how far it says that it is, nil when it says nothing.
	Progress *cluster.Progress
	// Probe is what asking for its health gave, nil for none.
	Probe *service.Probe
	// Pull is how far its image is that is being fetched, nil for none; of several nodes
	// that of the slowest.
	Pull *cluster.Pull
}

// used takes over what a node's attempts have used.
func (l *liveness) used(node cluster.NodeID, us []*nodev1.AttemptUse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		return
	}
	at := cluster.TimeOf(l.clock())
	us = us[:min(len(us), maxUses)]
	n.uses = make(map[cluster.AttemptID]Use, len(us))
	for _, u := range us {
		id := cluster.AttemptID{Job: cluster.JobID(u.Job), No: u.Attempt}
		if s := u.Steps; s != nil && s.Metric != nil {
			if n.curves == nil {
				n.curves = curves{}
			}
			n.curves.add(id, l.clock(), Point{s.Step, *s.Metric})
		}
		n.uses[id] = Use{at, max(0, u.BusyMs), max(0, u.KnownMs), max(0, u.PeakMib), conv.ProgressFromNode(u.Steps, at), conv.ProbeFromNode(u.Probe), conv.PullFromNode(u.Pull)}
	}
}

// useOf adds up what an attempt has used on all its nodes; of how far it is, the
// farthest counts. ok is false when one of them has not told; how far it is stands
// there all the same.
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

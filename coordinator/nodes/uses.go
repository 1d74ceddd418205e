package nodes

import (
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// maxUses is of how many attempts one heartbeat may tell: more than run on a node.
const maxUses = 4096

// Use is what a node said last of an attempt.
type Use struct {
	At                       cluster.Time
	BusyMs, KnownMs, PeakMiB int64
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
		n.uses[cluster.AttemptID{Job: cluster.JobID(u.Job), No: u.Attempt}] = Use{at, max(0, u.BusyMs), max(0, u.KnownMs), max(0, u.PeakMib)}
	}
}

// useOf adds up what an attempt has used on all its nodes; false when one of them
// has not told.
func (l *liveness) useOf(id cluster.AttemptID, a *cluster.Attempt) (sum Use, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, node := range a.NodeIDs() {
		n := l.nodes[node]
		if n == nil {
			return Use{}, false
		}
		u, there := n.uses[id]
		if !there {
			return Use{}, false
		}
		if sum.At == 0 || u.At < sum.At {
			sum.At = u.At
		}
		sum.BusyMs, sum.KnownMs, sum.PeakMiB = sum.BusyMs+u.BusyMs, sum.KnownMs+u.KnownMs, max(sum.PeakMiB, u.PeakMiB)
	}
	return sum, sum.At != 0
}

package site

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// Policies other than the scheduler's own know nothing of reservations, nor of jobs
// that ask for certain nodes. So jobs that may use the same nodes are planned
// together, one set after another, each on what it may use: first the set whose
// oldest job has waited longest. What one set starts the next finds taken, and what
// one reserves for its first job that does not fit the next finds reserved.

// planApart calls plan for each set of jobs that may use the same nodes.
func planApart(snap *dispatch.Snapshot, plan func(*dispatch.Snapshot, []policies.Kept) (dispatch.Plan, []policies.Kept)) dispatch.Plan {
	if len(snap.Reservations) == 0 && !slices.ContainsFunc(snap.Waiting, asksWhere) {
		all, _ := plan(snap, nil)
		return all
	}
	sets, told := apart(snap)
	out := dispatch.Plan{BaseIndex: snap.Index, Unplaced: told}
	all := *snap
	all.Ledger, all.Running = snap.Ledger.Clone(), slices.Clone(snap.Running)
	kept := map[cluster.NodeID]policies.Kept{}
	for _, set := range sets {
		view := all
		view.Waiting = set
		view.Nodes = allowedNodes(snap, set[0])
		p, keeps := plan(&view, slices.Collect(maps.Values(kept)))
		for _, k := range keeps {
			kept[k.Node] = k
		}
		out.Moves, out.Preempt, out.Unplaced = append(out.Moves, p.Moves...), append(out.Preempt, p.Preempt...), append(out.Unplaced, p.Unplaced...)
		for i := range p.Starts {
			st := p.Starts[i]
			if !all.Ledger.TakeStart(&st) {
				continue
			}
			out.Starts = append(out.Starts, st)
			at, ok := slices.BinarySearchFunc(set, st.Job, func(j *cluster.Job, id cluster.JobID) int { return cmp.Compare(j.ID, id) })
			if !ok {
				continue
			}
			all.Running = append(all.Running, st.Began(set[at], snap.Now))
		}
		slices.SortFunc(all.Running, func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) })
	}
	return out
}

// apart sorts the waiting jobs into sets that may use the same nodes, and gives the
// reason for those that may use none.
func apart(snap *dispatch.Snapshot) (sets [][]*cluster.Job, told []dispatch.Unplaced) {
	by := map[string]int{}
	for _, j := range snap.Waiting {
		if r := snap.Reservations.Outside(j, snap.Now); r.Code != "" {
			told = append(told, dispatch.Unplaced{Job: j.ID, Reason: r})
			continue
		}
		key := setKey(snap, j)
		i, ok := by[key]
		if !ok {
			i = len(sets)
			by[key] = i
			sets = append(sets, nil)
		}
		sets[i] = append(sets[i], j)
	}
	slices.SortStableFunc(sets, func(a, b []*cluster.Job) int { return cmp.Compare(oldest(a), oldest(b)) })
	return sets, told
}

func oldest(jobs []*cluster.Job) cluster.Time {
	return slices.MinFunc(jobs, func(a, b *cluster.Job) int { return cmp.Compare(a.Eligible, b.Eligible) }).Eligible
}

// asksWhere reports whether a job asks for certain nodes only, beyond what the
// policies know themselves: that it wants its nodes exclusively.
func asksWhere(j *cluster.Job) bool {
	return j.Spec.Restricted() || j.Spec.Where.InReservation() != ""
}

// setKey is equal for jobs that may use the same nodes.
func setKey(snap *dispatch.Snapshot, j *cluster.Job) string {
	var b strings.Builder
	if w := j.Spec.Where; asksWhere(j) {
		fmt.Fprintf(&b, "%s\x00%s\x00%s\x00%s\x00", w.Nodes, w.Exclude, w.Features, w.Reservation)
	}
	end := j.LatestEnd(snap.Now)
	for i, r := range snap.Reservations {
		if start, _, ok := r.Window(snap.Now); ok && start < end {
			fmt.Fprintf(&b, "%d,", i)
		}
	}
	return b.String()
}

// allowedNodes returns what a job may use of the nodes.
func allowedNodes(snap *dispatch.Snapshot, j *cluster.Job) []*cluster.Node {
	out := make([]*cluster.Node, 0, len(snap.Nodes))
	for _, n := range snap.Nodes {
		if w := j.Spec.Where; w != nil && !j.Spec.Allows(n) && (j.Spec.Node == "" || j.Spec.Restricted()) {
			continue
		}
		kept := func(g cluster.GPU) bool {
			b := cluster.Berth{Node: n.ID, GPUs: []cluster.GPUShare{{GPU: g.ID}}}
			return snap.Reservations.Keeps(j, &b, snap.Now).Code != ""
		}
		bare := cluster.Berth{Node: n.ID}
		switch {
		case snap.Reservations.Keeps(j, &bare, snap.Now).Code != "":
			continue
		case slices.ContainsFunc(n.GPUs, kept):
			part := *n
			part.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), kept)
			n = &part
		}
		out = append(out, n)
	}
	return out
}

package site

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
)

// View is the live state that the fast path reads.
type View interface {
	scheduler.View
	Partitions() []*cluster.Partition
}

// OnRelease is the fast path: it starts jobs waiting in the queues of gpus by the
// policy of their partition. again reports that only a full pass can decide whose
// turn it is: on GPUs for which several partitions wait, or which a policy without
// queues plans, and while GPUs are promised beyond the queues. w is from the last
// passes; jobs that arrived since wait for the next pass anyway.
func OnRelease(v View, gpus []cluster.GPUID, s *Site, w Waits) (plan dispatch.Plan, again bool) {
	if w.Promised {
		// The fast path reads only the queues of these GPUs, and would allocate
		// what a deadline elsewhere was promised, or what is reserved for a job on
		// several nodes.
		return plan, true
	}
	parts := v.Partitions()
	if len(parts) == 0 {
		if s.Planner != nil {
			return plan, false // it runs a pass whenever something ends
		}
		return scheduler.OnRelease(v, gpus, s.Policy), false
	}
	groups := map[string][]cluster.GPUID{}
	var order []string
	for _, g := range gpus {
		name, ok := sole(v, g, parts, w.Partitions)
		if !ok || s.Of(name).Planner != nil {
			again = true
			continue
		}
		if groups[name] == nil {
			order = append(order, name)
		}
		groups[name] = append(groups[name], g)
	}
	plan.BaseIndex = v.Index()
	for _, name := range order {
		// Groups may meet on one node; what then does not fit is rejected, and
		// planned again.
		plan.Starts = append(plan.Starts, scheduler.OnRelease(v, groups[name], s.Of(name).Policy).Starts...)
	}
	return plan, again
}

// sole finds the only partition with jobs waiting for a GPU; ok is false if there
// may be several. A GPU without a queue belongs to none, and nothing can start
// there.
func sole(st View, g cluster.GPUID, parts []*cluster.Partition, waited map[string]struct{}) (name string, ok bool) {
	q := st.Queue(g)
	u, there := st.Ledger().GPU(g)
	if !there || len(q) == 0 {
		return "", true
	}
	j, there := st.Job(q[0].Job)
	if !there {
		return "", false
	}
	name = j.Spec.Partition
	if _, all := waited[""]; all && name != "" {
		return "", false
	}
	for _, p := range parts {
		if _, waits := waited[p.Name]; waits && p.Name != name && (name == "" || p.Nodes.Holds(u.Node) && p.HasType(u.Type)) {
			return "", false
		}
	}
	return name, true
}

package coordinator

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/scheduler"
)

// onRelease is the fast path: it starts those who wait in the queues of gpus
// by the policy of their partition. again tells that only a full pass can say
// whose turn it is: on cards for which several partitions wait, or which a
// policy without queues plans. waited are the partitions of which somebody
// waited after the last full pass; who came since waits for the next pass
// anyway.
func onRelease(v releaseView, gpus []cluster.GPUID, sched *Scheduling, waited map[string]struct{}) (plan cluster.Plan, again bool) {
	parts := v.Partitions()
	if len(parts) == 0 {
		if sched.Planner != nil {
			return plan, false // it passes whenever something ends, see note
		}
		return scheduler.OnRelease(v, gpus, sched.Policy), false
	}
	groups := map[string][]cluster.GPUID{}
	var order []string
	for _, g := range gpus {
		name, ok := sole(v.State, g, parts, waited)
		if !ok || sched.of(name).Planner != nil {
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
		// Groups may meet on one node; what does not fit then is rejected, and
		// planned again.
		plan.Starts = append(plan.Starts, scheduler.OnRelease(v, groups[name], sched.of(name).Policy).Starts...)
	}
	return plan, again
}

// sole finds the only partition that somebody waits for on a card; ok is false
// when there may be several. A card without a queue is nobody's, and nothing
// can be started there.
func sole(st *fsm.State, g cluster.GPUID, parts []*cluster.Partition, waited map[string]struct{}) (name string, ok bool) {
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

// releaseView is the live state for the fast path, with what is known of
// sharing.
type releaseView struct {
	*fsm.State
	know *cluster.Interference
}

// Interference implements scheduler.CompanyView.
func (v releaseView) Interference() *cluster.Interference { return v.know }

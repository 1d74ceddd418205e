package policies

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// left is the most that any place has left of each resource at the end of a
// pass, for reasons.
type left struct {
	mem, milli, cpu, host int64
	empty                 int // on one host
	free                  bool
}

// teller says why tasks that do not start wait.
type teller struct {
	*scene.Scene
	keeper *keeper
	guard  *guard // nil without tenants
}

// tell gives each job that does not start its reason.
func (tl *teller) tell() {
	if len(tl.Tasks) == len(tl.Plan.Starts) || tl.Pol.MaxReasons < 0 {
		return
	}
	most := make([]left, len(tl.Fleet.Classes))
	plain := left{}
	for gi := range tl.Fleet.Groups {
		g := &tl.Fleet.Groups[gi]
		h, m := &tl.Fleet.Hosts[g.Host], &most[g.Class]
		m.mem, m.milli, m.empty = max(m.mem, g.Mem), max(m.milli, g.Milli), max(m.empty, g.Empty)
		m.cpu, m.host = max(m.cpu, h.Use.CPUMilli-h.Use.UsedCPU), max(m.host, h.Use.MemMiB-h.Use.UsedMem)
		m.free = m.free || g.Free
	}
	for i := range tl.Fleet.Hosts {
		h := &tl.Fleet.Hosts[i]
		plain.cpu, plain.host = max(plain.cpu, h.Use.CPUMilli-h.Use.UsedCPU), max(plain.host, h.Use.MemMiB-h.Use.UsedMem)
	}
	tl.Plan.Unplaced = make([]dispatch.Unplaced, 0, len(tl.Tasks)-len(tl.Plan.Starts))
	for _, t := range tl.Tasks {
		if !t.Gone {
			tl.Plan.Unplaced = append(tl.Plan.Unplaced, dispatch.Unplaced{Job: t.ID, Reason: tl.reason(t, most, &plain)})
		}
	}
}

// reason says what a job lacks on the fastest class that could run it.
func (tl *teller) reason(t *scene.Task, most []left, plain *left) cluster.Reason {
	if len(tl.Fleet.Hosts) == 0 {
		if len(tl.Snap.Nodes) == 0 {
			return cluster.Reason{Code: cluster.ReasonNoNodes, Detail: "no node is registered"}
		}
		return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: "every node is drained or silent"}
	}
	m, n := plain, (*scene.Need)(nil)
	for c := range t.Needs {
		if o := &t.Needs[c]; o.OK && (n == nil || o.Dur < n.Dur) {
			n, m = o, &most[c]
		}
	}
	if n == nil {
		switch {
		case t.GPUs == 0:
			n = &scene.Need{}
		case t.Never.Code != "":
			return t.Never
		case !slices.ContainsFunc(tl.Snap.Nodes, func(n *cluster.Node) bool { return len(n.GPUs) > 0 }):
			return cluster.Reason{Code: cluster.ReasonNeverFits, Detail: "no node has a GPU"}
		default:
			return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: "every node with GPUs is drained or silent"}
		}
	}
	if tl.guard != nil && t.GPUs > 0 && len(tl.Plan.Unplaced) < tl.Pol.MaxReasons {
		if r := tl.guard.reason(t); r.Code != "" {
			return r
		}
	}
	return tl.lacking(t, n, m)
}

func (tl *teller) lacking(t *scene.Task, n *scene.Need, m *left) cluster.Reason {
	because := func(code cluster.ReasonCode, format string, args ...any) cluster.Reason {
		if len(tl.Plan.Unplaced) >= tl.Pol.MaxReasons {
			return cluster.Reason{Code: code} // words cost more than the pass
		}
		return cluster.Reason{Code: code, Detail: fmt.Sprintf(format, args...)}
	}
	if t.Spans() {
		return tl.spanReason(t)
	}
	switch {
	case t.GPUs > 1 && n.Share.Exclusive && m.empty < t.GPUs:
		return because(cluster.ReasonGPUs, "at most %d GPUs empty on one node, needs %d", m.empty, t.GPUs)
	case n.Share.Exclusive && m.empty == 0:
		return because(cluster.ReasonExclusive, "no GPU is empty, needs one alone")
	case t.GPUs > 0 && !m.free:
		return because(cluster.ReasonGPUSlots, "no GPU takes one more job")
	case n.Share.MemMiB > m.mem && t.GPUs > 0:
		return because(cluster.ReasonGPUMem, "at most %s free on one GPU, needs %s", cluster.MemText(m.mem), cluster.MemText(n.Share.MemMiB))
	case n.Share.Milli > m.milli && t.GPUs > 0:
		return because(cluster.ReasonGPUCompute, "at most %s of the compute of one GPU free, needs %s", say.Percent(m.milli), say.Percent(n.Share.Milli))
	case t.CPU > m.cpu:
		return because(cluster.ReasonCPU, "at most %s free on one node, needs %s", say.Cores(m.cpu), say.Cores(t.CPU))
	case t.Mem > m.host:
		return because(cluster.ReasonHostMem, "at most %s of host memory free on one node, needs %s", cluster.MemText(m.host), cluster.MemText(t.Mem))
	case tl.keeper.before(t) != 0:
		return because(cluster.ReasonQueueOrder, "job %d is before it and waits for room", tl.keeper.before(t))
	}
	return because(cluster.ReasonResources, "no place has all at once that it needs, beside whom it may lie")
}

// spanReason returns how many nodes have room for a task over several: for the
// class with the most.
func (tl *teller) spanReason(t *scene.Task) cluster.Reason {
	if len(tl.Plan.Unplaced) >= tl.Pol.MaxReasons {
		return cluster.Reason{Code: cluster.ReasonNodes} // words cost more than the pass
	}
	most, what := 0, "cores and host memory free"
	for hi := range tl.Fleet.Hosts {
		if when, ok := tl.ClearsPlain(t, &tl.Fleet.Hosts[hi]); t.GPUs == 0 && ok && when == tl.Now {
			most++
		}
	}
	for c := range t.Needs {
		if !t.Needs[c].OK || tl.Fleet.Classes[c].Family != int32(c) {
			continue
		}
		x := tl.OfFamily(t, int32(c), func(gi int32) (rules.Part, bool) {
			defer tl.Fleet.Remember(gi)()
			return rules.Part{}, tl.RoomOn(t, gi)
		})
		if n := len(x.Parts); n > most || most == 0 {
			most, what = n, fmt.Sprintf("room for %d of %s", t.GPUs, tl.Fleet.Classes[c].GPUType)
		}
	}
	switch {
	case most >= t.Nodes && tl.keeper.before(t) != 0:
		return cluster.Reason{Code: cluster.ReasonQueueOrder, Detail: fmt.Sprintf("%s with room, but job %d is before it and waits for room", say.Nodes(most), tl.keeper.before(t))}
	case most >= t.Nodes && t.Job.Spec.Where.Named():
		what += ", not all that it asks for by name"
	}
	if t.Whole {
		what += " and nobody there"
	}
	return cluster.Reason{Code: cluster.ReasonNodes, Detail: fmt.Sprintf("%s with %s, needs %d at once", say.Nodes(most), what, t.Nodes) + say.FewSwitches(t.Job, cluster.Time(tl.Now))}
}

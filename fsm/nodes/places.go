package nodes

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// InPartition reports whether a GPU belongs to p.
func (f *Fleet) InPartition(p *cluster.Partition, gpu cluster.GPUID) bool {
	n := f.nodes.Get(f.gpuNode[gpu])
	if n == nil || !p.Nodes.Holds(n.ID) {
		return false
	}
	g := n.GPU(gpu)
	return g != nil && p.HasType(g.Type)
}

// NoPartition refuses a job of a missing partition; what else the partition
// requires of its jobs is the leader's to check.
func (f *rules) NoPartition(spec *cluster.Spec) *cluster.Error {
	if spec.Partition == "" || f.parts.Get(spec.Partition) != nil {
		return nil
	}
	return cluster.Errorf(cluster.CodeInvalid, "partition %q is not known; see: berth partition list", spec.Partition)
}

// WaitsFor returns why a job waits that has not been considered yet.
func (f *rules) WaitsFor(spec *cluster.Spec) cluster.Reason {
	if p := f.parts.Get(spec.Partition); p != nil && p.Down {
		return cluster.Reason{Code: cluster.ReasonPartitionDown}
	}
	return cluster.Reason{Code: cluster.ReasonUnconfirmed}
}

// outside returns which part of a berth is neither in the job's partition nor in
// the lending one, the zero Reason for none.
func (f *Fleet) outside(j *cluster.Job, b *cluster.Berth, loan string) cluster.Reason {
	p := f.parts.Get(j.Spec.Partition)
	if own := p; loan != "" {
		p = f.parts.Get(loan)
		switch {
		case own == nil || p == nil || !slices.Contains(p.Lend.To, own.Name):
			return Stale("partition %s lends nothing to the job's", loan)
		case own.Down:
			return Stale("partition %s is down", own.Name)
		}
	}
	switch {
	case p == nil:
		return cluster.Reason{}
	case p.Down:
		return Stale("partition %s is down", p.Name)
	case !p.Nodes.Holds(b.Node):
		return Stale("node %s is not in partition %s", b.Node, p.Name)
	}
	if i := slices.IndexFunc(b.GPUs, func(g cluster.GPUShare) bool { return !f.InPartition(p, g.GPU) }); i >= 0 {
		return Stale("GPU %s is not in partition %s", b.GPUs[i].GPU, p.Name)
	}
	return cluster.Reason{}
}

// OutsideQueue returns why a job may not wait for a GPU.
func (f *Fleet) OutsideQueue(j *cluster.Job, gpu cluster.GPUID) cluster.Reason {
	p := f.parts.Get(j.Spec.Partition)
	switch {
	case p == nil:
		return cluster.Reason{}
	case p.Down:
		return Stale("partition %s is down", p.Name)
	case !f.InPartition(p, gpu):
		return Stale("GPU %s is not in partition %s", gpu, p.Name)
	}
	return cluster.Reason{}
}

// Elsewhere returns why a job may not use a start's berths, the zero Reason if it
// may: its nodes are not what it asks for, or reservations exclude it.
func (f *Fleet) Elsewhere(j *cluster.Job, st *dispatch.Start) cluster.Reason {
	if j.Spec.Where == nil && len(f.reserved) == 0 {
		return cluster.Reason{}
	}
	if r := f.reserved.Outside(j, f.rest.At().Now); r.Code != "" {
		return r
	}
	named := 0
	for _, b := range st.Berths() {
		n := f.nodes.Get(b.Node)
		if n == nil {
			return Stale("node %s is gone", b.Node) // removed since it was planned
		}
		if why := j.Spec.Refuses(n); why != "" {
			return Stale("node %s %s", b.Node, why)
		}
		if w := j.Spec.Where; w.Named() && w.Nodes.Holds(b.Node) {
			named++
		}
		if r := f.reserved.Keeps(j, b, f.rest.At().Now); r.Code != "" {
			return r
		}
		if r := f.notWhole(j, n, b); r.Code != "" {
			return r
		}
	}
	if w := j.Spec.Where; w.Named() && named < w.Nodes.Len() {
		return Stale("%d of the nodes that it asks for were planned, it needs all of %s", named, w.Nodes)
	}
	return cluster.Reason{}
}

// notWhole returns what is taken of a node that a job wants for itself.
func (f *Fleet) notWhole(j *cluster.Job, n *cluster.Node, b *cluster.Berth) cluster.Reason {
	if !j.Spec.WholeNodes() {
		return cluster.Reason{}
	}
	if f.rest.Busy(n.ID) {
		return cluster.Reason{Code: cluster.ReasonExclusive, Detail: "node " + string(n.ID) + " has others on it, it is wanted alone"}
	}
	if b.CPUMilli < n.CPUMilli {
		return Stale("a part of node %s was planned, all of it is asked for", n.ID)
	}
	return cluster.Reason{}
}

// elsewhereQueue returns why a job may not wait for a GPU of n.
func (f *Fleet) elsewhereQueue(j *cluster.Job, n *cluster.Node) cluster.Reason {
	if j.Spec.Where == nil {
		return cluster.Reason{}
	}
	if why := j.Spec.Refuses(n); why != "" {
		return Stale("node %s %s", n.ID, why)
	}
	if j.Spec.WholeNodes() {
		return Stale("job %d wants whole nodes and waits in no queue", j.ID)
	}
	return cluster.Reason{}
}

// Stale returns the reason that a plan is out of date.
func Stale(format string, args ...any) cluster.Reason {
	return cluster.Reason{Code: cluster.ReasonStale, Detail: fmt.Sprintf(format, args...)}
}

// Strangers returns whose job on a GPU of the berth may not share it with j.
func (f *Fleet) Strangers(j *cluster.Job, b *cluster.Berth) cluster.Reason {
	n := f.nodes.Get(b.Node)
	for _, gs := range b.GPUs {
		g := n.GPU(gs.GPU)
		if g == nil || g.Scope == cluster.ScopeAnyone {
			continue
		}
		for _, id := range f.gpuJobs[gs.GPU] {
			if !g.Scope.Allows(f.rest.Owner(id), &j.Owner) {
				return cluster.Reason{Code: cluster.ReasonSharing, Detail: fmt.Sprintf("GPU %s is shared %s; job %d there is not of them", g.ID, g.Scope.Among(), id)}
			}
		}
	}
	return cluster.Reason{}
}

// Unlike returns how a start differs from what the job asked for.
func (f *Fleet) Unlike(j *cluster.Job, st *dispatch.Start) cluster.Reason {
	if j.Spec.Node != "" && j.Spec.Node != st.Berth.Node {
		return Stale("node %s was planned, %s is asked for", st.Berth.Node, j.Spec.Node)
	}
	for _, b := range st.Berths() {
		if r := f.unlikeBerth(j, b, st.Loan); r.Code != "" {
			return r
		}
	}
	return f.unlikeGang(j, st)
}

// unlikeBerth is Unlike for the berth on one node.
func (f *Fleet) unlikeBerth(j *cluster.Job, b *cluster.Berth, loan string) cluster.Reason {
	if n := len(b.GPUs); !j.Spec.Takes(n) && !(n == 0 && j.Spec.OrCPU) && !(n > j.Spec.GPUs && j.Spec.GPUs > 0 && j.Spec.WholeNodes()) {
		return Stale("%d GPUs were planned, %d are asked for", n, j.Spec.GPUs)
	}
	if r := f.outside(j, b, loan); r.Code != "" {
		return r
	}
	if j.Spec.MemMiB == 0 && b.MemMiB < j.MinHostMemMiB {
		return Stale("%d MiB of host memory were planned, it needs %d", b.MemMiB, j.MinHostMemMiB)
	}
	for _, g := range b.GPUs {
		if (j.Spec.Exclusive || j.NeedWhole || j.Spec.WholeNodes()) && !g.Share.Exclusive {
			return Stale("a share was planned, whole GPUs are asked for")
		}
		if u, ok := f.ledger.GPU(g.GPU); ok && j.Spec.GPUType != "" && u.Type != j.Spec.GPUType {
			return Stale("GPU type %s was planned, %s is asked for", u.Type, j.Spec.GPUType)
		}
		if !g.Share.Exclusive && g.Share.MemMiB < j.MinGPUMemMiB {
			return Stale("%d MiB were planned, it needs %d", g.Share.MemMiB, j.MinGPUMemMiB)
		}
	}
	return cluster.Reason{}
}

// unlikeGang returns how the nodes of a start differ from what the job asked for:
// that many, each once, with GPUs of one type.
func (f *Fleet) unlikeGang(j *cluster.Job, st *dispatch.Start) cluster.Reason {
	if n := 1 + len(st.Rest); !j.Spec.TakesNodes(n) {
		return Stale("%d nodes were planned, %d are asked for", n, j.Spec.NodeCount())
	}
	if len(st.Rest) == 0 {
		return cluster.Reason{}
	}
	seen, gpuType := map[cluster.NodeID]struct{}{}, ""
	for _, b := range st.Berths() {
		if _, twice := seen[b.Node]; twice {
			return Stale("node %s was planned twice", b.Node)
		}
		seen[b.Node] = struct{}{}
		for _, g := range b.GPUs {
			u, ok := f.ledger.GPU(g.GPU)
			if ok && gpuType != "" && u.Type != gpuType {
				return Stale("GPUs of types %s and %s were planned, all are to be alike", gpuType, u.Type)
			}
			gpuType = u.Type
		}
	}
	return cluster.Reason{}
}

// Unpromised returns why j may not wait for nodes on which its deadline is kept,
// the zero Reason if it may.
func (f *Fleet) Unpromised(j *cluster.Job, on []cluster.NodeID) cluster.Reason {
	switch {
	case j.Spec.Deadline == 0 || !j.Spec.Spans():
		return Stale("job %d has no deadline that several nodes could keep", j.ID)
	case !j.Spec.TakesNodes(len(on)):
		return Stale("%d nodes were planned for job %d, which needs %d", len(on), j.ID, j.Spec.NodeCount())
	}
	for i, id := range on {
		if n := f.nodes.Get(id); n == nil || !j.Spec.Allows(n) || slices.Contains(on[:i], id) {
			return Stale("node %s is none that job %d may have", id, j.ID)
		}
	}
	return cluster.Reason{}
}

// Immovable returns why j may not wait for a GPU, the zero Reason if it may.
func (f *Fleet) Immovable(j *cluster.Job, m *dispatch.QueueMove) cluster.Reason {
	n := f.nodes.Get(f.gpuNode[m.GPU])
	switch {
	case n == nil:
		return Stale("GPU %s is gone", m.GPU)
	case !n.Schedulable():
		return Stale("node %s of GPU %s is drained or silent", n.ID, m.GPU)
	case !n.Open(n.GPU(m.GPU)):
		return Stale("GPU %s of node %s is %s", m.GPU, n.ID, n.Why(n.GPU(m.GPU)))
	case j.Spec.GPUs == 0:
		return Stale("job %d needs no GPU to wait for", m.Job)
	case j.Spec.NodeCount() > 1:
		return Stale("job %d needs several nodes and waits in no queue", m.Job)
	case j.Spec.Node != "" && j.Spec.Node != n.ID:
		return Stale("GPU %s is on node %s, the job asks for %s", m.GPU, n.ID, j.Spec.Node)
	case j.Spec.GPUType != "" && j.Spec.GPUType != n.GPU(m.GPU).Type:
		return Stale("GPU %s is of type %s, the job asks for %s", m.GPU, n.GPU(m.GPU).Type, j.Spec.GPUType)
	}
	if r := f.elsewhereQueue(j, n); r.Code != "" {
		return r
	}
	return f.OutsideQueue(j, m.GPU)
}

package sim

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// held is what is allocated of a GPU, as the ledger counts it.
type held struct {
	mem, milli int64
	shares     int32
	exclusive  bool
}

// hosted is what is allocated of a node.
type hosted struct{ cpu, mem int64 }

// kin is a class of GPUs that are alike to the scheduler.
type kin struct {
	rep   *cluster.GPU
	slots []int32 // in order of nodes and ids
}

// zoom shows the scheduler only those GPUs that it can choose for a job that waits
// alone: of each class the first in use that holds it and the first empty one, or
// the empty ones of the node with the fewest that suffice. A pass then costs
// microseconds, whatever the fleet. It must decide what a pass over the whole fleet
// decides, which TestZoomChangesNothing checks; if cores and host memory are
// counted it cannot tell.
type zoom struct {
	e     *engine
	pol   scheduler.Policy
	kins  []kin
	held  []held
	hosts []hosted
	lo    []int32 // first slot of each node
	picks []int32
	used  int32 // the pick with residents, -1 for none
	// tight means that cores or host memory are counted on some node. Rules about
	// them consider whole nodes and all nodes.
	tight bool
}

func newZoom(e *engine) *zoom {
	b, ok := e.opt.Planner.(Berth)
	if !ok {
		return nil
	}
	z := &zoom{e: e, pol: b.Policy, held: make([]held, len(e.slots)), hosts: make([]hosted, len(e.nodes)), lo: make([]int32, len(e.nodes)+1)}
	c := int32(0)
	for i, n := range e.nodes {
		z.lo[i] = c
		z.tight = z.tight || n.CPUMilli < workload.PlentyCPUMilli || n.MemMiB < workload.PlentyMemMiB
		for k := range n.GPUs {
			g := &n.GPUs[k]
			at := slices.IndexFunc(z.kins, func(o kin) bool {
				return o.rep.Type == g.Type && o.rep.SellableMiB == g.SellableMiB && o.rep.MaxShares == g.MaxShares
			})
			if at < 0 {
				at = len(z.kins)
				z.kins = append(z.kins, kin{rep: g})
			}
			z.kins[at].slots = append(z.kins[at].slots, c)
			c++
		}
	}
	z.lo[len(e.nodes)] = c
	return z
}

// book tracks the ledger.
func (z *zoom) book(b *cluster.Berth, node int32, sign int64) {
	z.hosts[node].cpu += sign * b.CPUMilli
	z.hosts[node].mem += sign * b.MemMiB
	for _, g := range b.GPUs {
		h := &z.held[z.e.slotAt[g.GPU]]
		h.mem += sign * g.Share.MemMiB
		h.milli += sign * g.Share.Milli
		h.shares += int32(sign)
		if g.Share.Exclusive {
			h.exclusive = sign > 0
		}
	}
}

// answer is the result of zooming in.
type answer uint8

const (
	cannotTell answer = iota
	fitsNowhere
	zoomed
)

// look finds the GPUs that matter for a job.
func (z *zoom) look(j *cluster.Job) answer {
	if z.tight || j.Spec.GPUs == 0 || j.Spec.Node != "" || j.MinGPUMemMiB > 0 || j.MinHostMemMiB > 0 || z.e.opt.MTBF > 0 {
		return cannotTell
	}
	cpu, mem := cmp.Or(j.Spec.CPUMilli, z.pol.DefaultCPUMilli), cmp.Or(j.Spec.MemMiB, z.pol.DefaultMemMiB)
	z.picks, z.used = z.picks[:0], -1
	for i := range z.kins {
		k := &z.kins[i]
		s, est, why := rules.ShareOn(j, k.rep, z.pol)
		switch {
		case why.Code != "":
		case len(z.kins) > 1 && j.Spec.GPUMemMiB == 0 && est.GPUMemP95MiB > k.rep.SellableMiB:
			return cannotTell // it is left out if another class is large enough
		case s.Exclusive:
			z.wholeCards(k, j.Spec.GPUs, cpu, mem)
		case j.Spec.GPUs > 1 || len(z.kins) > 1:
			return cannotTell // its class may depend on which residents suit it on many GPUs
		default:
			z.oneShare(k, s, cpu, mem)
		}
	}
	if len(z.picks) == 0 {
		return fitsNowhere
	}
	slices.Sort(z.picks)
	return zoomed
}

func (z *zoom) roomy(node int32, cpu, mem int64) bool {
	n, h := z.e.nodes[node], &z.hosts[node]
	return n.CPUMilli-h.cpu >= cpu && n.MemMiB-h.mem >= mem
}

// oneShare picks the first GPU in use that holds the share, and the first empty
// one.
func (z *zoom) oneShare(k *kin, s cluster.Share, cpu, mem int64) {
	used, empty := false, false
	limit := int32(max(1, k.rep.MaxShares))
	for _, c := range k.slots {
		h := &z.held[c]
		switch {
		case h.shares == 0 && empty, h.shares > 0 && used:
			continue
		case h.exclusive || h.shares >= limit || k.rep.SellableMiB-h.mem < s.MemMiB || cluster.WholeGPU-h.milli < s.Milli:
			continue
		case !z.roomy(z.e.slots[c].node, cpu, mem):
			continue
		}
		z.picks = append(z.picks, c)
		if h.shares == 0 {
			empty = true
		} else {
			used, z.used = true, c
		}
		if used && empty {
			return
		}
	}
}

// wholeCards picks n empty GPUs of the node with the fewest that suffice.
func (z *zoom) wholeCards(k *kin, n int, cpu, mem int64) {
	best, least := int32(-1), 0
	for i := 0; i < len(k.slots); {
		node, free := z.e.slots[k.slots[i]].node, 0
		for ; i < len(k.slots) && z.e.slots[k.slots[i]].node == node; i++ {
			if z.held[k.slots[i]].shares == 0 {
				free++
			}
		}
		if free >= n && (best < 0 || free < least) && z.roomy(node, cpu, mem) {
			best, least = node, free
		}
	}
	if best < 0 {
		return
	}
	for _, c := range k.slots {
		if n > 0 && z.e.slots[c].node == best && z.held[c].shares == 0 {
			z.picks = append(z.picks, c)
			n--
		}
	}
}

// decided reports whether a plan made from the picks stands. If the scheduler
// declined the GPU in use, since its residents do not suit the job, others in use
// might have done.
func (z *zoom) decided(plan *dispatch.Plan) bool {
	return len(plan.Starts) == 1 && (z.used < 0 || plan.Starts[0].Berth.GPUs[0].GPU == z.e.slots[z.used].id)
}

// snapshot returns the cluster with only the picked GPUs.
func (z *zoom) snapshot(j *cluster.Job) *dispatch.Snapshot {
	s := &dispatch.Snapshot{Index: z.e.st.Index(), Now: z.e.wallTime(), Waiting: []*cluster.Job{j}}
	for i := 0; i < len(z.picks); {
		node := z.e.slots[z.picks[i]].node
		n := *z.e.nodes[node]
		n.GPUs = nil
		for ; i < len(z.picks) && z.e.slots[z.picks[i]].node == node; i++ {
			n.GPUs = append(n.GPUs, z.e.nodes[node].GPUs[z.picks[i]-z.lo[node]])
		}
		s.Nodes = append(s.Nodes, &n)
	}
	s.Ledger = dispatch.NewLedger(s.Nodes)
	var on []int32
	for _, n := range s.Nodes {
		h := &z.hosts[z.e.slots[z.e.slotAt[n.GPUs[0].ID]].node]
		s.Ledger.Take(&cluster.Berth{Node: n.ID, CPUMilli: h.cpu, MemMiB: h.mem})
		for k := range n.GPUs {
			z.lie(s.Ledger, n.ID, n.GPUs[k].ID)
			on = z.e.lying(on, z.e.slotAt[n.GPUs[k].ID])
		}
	}
	slices.Sort(on)
	for _, r := range slices.Compact(on) {
		view, _ := z.e.st.Job(cluster.JobID(r + 1))
		s.Running = append(s.Running, view)
	}
	return s
}

// lie takes from a GPU what its residents have.
func (z *zoom) lie(l *dispatch.Ledger, node cluster.NodeID, id cluster.GPUID) {
	for _, r := range z.e.slots[z.e.slotAt[id]].residents {
		view, _ := z.e.st.Job(cluster.JobID(r.id + 1))
		for _, g := range view.Last().Berth.GPUs {
			if g.GPU == id {
				l.Take(&cluster.Berth{Node: node, GPUs: []cluster.GPUShare{g}})
			}
		}
	}
}

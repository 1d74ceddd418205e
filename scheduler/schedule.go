// Package scheduler decides where jobs go: pure functions from a snapshot to a plan.
package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Mode is how GPUs are given away.
type Mode string

// The modes.
const (
	ModeFFD  Mode = "ffd"
	ModeSlot Mode = "slot"
)

// Policy is what a site may choose.
type Policy struct {
	Mode               Mode
	MaxShares          int
	MinConfidenceMilli int64
	DefaultCPUMilli    int64
	DefaultMemMiB      int64
}

// Default returns the default policy.
func Default() Policy {
	return Policy{Mode: ModeFFD, MaxShares: 3, MinConfidenceMilli: 300, DefaultCPUMilli: 1000, DefaultMemMiB: 2048}
}

// View is live state for the fast path.
type View interface {
	Now() cluster.Time
	Index() uint64
	Ledger() *cluster.Ledger
	Job(cluster.JobID) (*cluster.Job, bool)
	Node(cluster.NodeID) (*cluster.Node, bool)
	Queue(cluster.GPUID) []cluster.Waiter
}

// ShareOn is what job takes on gpu.
func ShareOn(job *cluster.Job, gpu *cluster.GPU, pol Policy) (cluster.Share, cluster.Estimate, cluster.Reason) {
	e, ok := cluster.EstimateFor(job.Estimates, gpu.Type)
	if !ok {
		e = cluster.Estimate{GPUType: gpu.Type, GPUMemMiB: gpu.SellableMiB, GPUMemP95MiB: gpu.SellableMiB, Milli: cluster.WholeGPU, Source: "none"}
	}
	if job.Spec.GPUType != "" && job.Spec.GPUType != gpu.Type {
		return cluster.Share{}, e, cluster.Reason{Code: cluster.ReasonGPUType, Detail: fmt.Sprintf("wants %s, this is %s", job.Spec.GPUType, gpu.Type)}
	}
	mem := max(e.GPUMemP95MiB, job.MinGPUMemMiB)
	if job.Spec.GPUMemMiB > 0 {
		mem = max(job.Spec.GPUMemMiB, job.MinGPUMemMiB)
	}
	milli := e.Milli
	if job.Spec.GPUMilli > 0 {
		milli = job.Spec.GPUMilli
	}
	if job.Spec.GPUMemMiB > gpu.SellableMiB {
		return cluster.Share{}, e, cluster.Reason{Code: cluster.ReasonNeverFits, Detail: fmt.Sprintf("needs %d MiB, the card sells %d", job.Spec.GPUMemMiB, gpu.SellableMiB)}
	}
	whole := pol.Mode == ModeSlot || job.Spec.Exclusive || job.NeedWhole || !gpu.Shareable() || mem >= gpu.SellableMiB ||
		job.Spec.GPUMemMiB == 0 && e.ConfidenceMilli < pol.MinConfidenceMilli
	if whole {
		return cluster.Share{MemMiB: gpu.SellableMiB, Milli: cluster.WholeGPU, Exclusive: true}, e, cluster.Reason{}
	}
	return cluster.Share{MemMiB: max(1, mem), Milli: min(cluster.WholeGPU, max(1, milli))}, e, cluster.Reason{}
}

type pass struct {
	pol   Policy
	led   *cluster.Ledger
	nodes []*cluster.Node
	now   cluster.Time
	que   map[cluster.GPUID][]cluster.Waiter
	load  map[cluster.GPUID]time.Duration
	plan  cluster.Plan
}

// Schedule decides where the waiting jobs of snap go.
func Schedule(snap *cluster.Snapshot, pol Policy) cluster.Plan {
	p := &pass{pol: pol, led: snap.Ledger.Clone(), nodes: snap.Nodes, now: snap.Now, que: snap.Queues, load: map[cluster.GPUID]time.Duration{}}
	p.plan.BaseIndex = snap.Index
	jobs := slices.Clone(snap.Waiting)
	slices.SortFunc(jobs, func(a, b *cluster.Job) int {
		return cmp.Or(cmp.Compare(b.Spec.GPUs, a.Spec.GPUs), cmp.Compare(size(b), size(a)), cmp.Compare(a.ID, b.ID))
	})
	for _, j := range jobs {
		if !p.place(j) {
			p.enqueue(j)
		}
	}
	return p.plan
}

func size(j *cluster.Job) int64 {
	s := int64(0)
	for _, e := range j.Estimates {
		s = max(s, e.GPUMemP95MiB)
	}
	return s
}

func (p *pass) place(j *cluster.Job) bool {
	cpu, mem := host(j, p.pol)
	for _, empty := range []bool{false, true} {
		for _, n := range p.nodes {
			if !n.Schedulable() || j.Spec.Node != "" && j.Spec.Node != n.ID {
				continue
			}
			b := cluster.Berth{Node: n.ID, CPUMilli: cpu, MemMiB: mem}
			var est cluster.Estimate
			for i := range n.GPUs {
				if len(b.GPUs) == j.Spec.GPUs {
					break
				}
				u, _ := p.led.GPU(n.GPUs[i].ID)
				if (u.Shares == 0) != empty && j.Spec.GPUs == 1 {
					continue
				}
				s, e, r := ShareOn(j, &n.GPUs[i], p.pol)
				if r.Code != "" || s.MemMiB > u.FreeMiB() || s.Milli > u.FreeMilli() || u.FreeShares() < 1 || s.Exclusive && u.Shares > 0 {
					continue
				}
				est = e
				b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: n.GPUs[i].ID, Share: s})
			}
			if len(b.GPUs) != j.Spec.GPUs || p.led.Fits(&b).Code != "" {
				continue
			}
			p.led.Take(&b)
			st := cluster.Start{Job: j.ID, Attempt: uint32(len(j.Attempts)) + 1, Berth: b, Estimate: est, Why: "first fit"}
			for _, g := range b.GPUs {
				if q := p.que[g.GPU]; len(q) > 0 && q[0].Job != j.ID {
					st.Overtook = fmt.Sprintf("job %d does not fit", q[0].Job)
				}
			}
			p.plan.Starts = append(p.plan.Starts, st)
			return true
		}
	}
	return false
}

func host(j *cluster.Job, pol Policy) (cpu, mem int64) {
	cpu, mem = j.Spec.CPUMilli, j.Spec.MemMiB
	if cpu == 0 {
		cpu = pol.DefaultCPUMilli
	}
	if mem == 0 {
		mem = pol.DefaultMemMiB
	}
	return cpu, mem
}

func (p *pass) enqueue(j *cluster.Job) {
	if j.State == cluster.JobQueued || j.Spec.GPUs == 0 {
		return
	}
	var best cluster.GPUID
	var bestLoad time.Duration
	for _, n := range p.nodes {
		if !n.Schedulable() || len(n.GPUs) < j.Spec.GPUs || j.Spec.Node != "" && j.Spec.Node != n.ID {
			continue
		}
		for i := range n.GPUs {
			_, e, r := ShareOn(j, &n.GPUs[i], p.pol)
			if r.Code != "" {
				continue
			}
			l := p.load[n.GPUs[i].ID] + time.Duration(len(p.que[n.GPUs[i].ID]))*time.Second + e.Duration
			if best == "" || l < bestLoad {
				best, bestLoad = n.GPUs[i].ID, l
			}
		}
	}
	if best != "" {
		p.load[best] = bestLoad
		p.plan.Moves = append(p.plan.Moves, cluster.QueueMove{Job: j.ID, GPU: best, Rank: int64(j.ID), EstStart: p.now.Add(bestLoad), Reason: cluster.ReasonResources})
	}
}

// OnRelease starts the heads of the queues of gpus.
func OnRelease(v View, gpus []cluster.GPUID, pol Policy) cluster.Plan {
	snap := &cluster.Snapshot{Index: v.Index(), Now: v.Now(), Ledger: v.Ledger(), Queues: map[cluster.GPUID][]cluster.Waiter{}}
	for _, g := range gpus {
		u, ok := v.Ledger().GPU(g)
		if !ok {
			continue
		}
		n, ok := v.Node(u.Node)
		if !ok {
			continue
		}
		snap.Nodes = append(snap.Nodes, n)
		q := v.Queue(g)
		snap.Queues[g] = q
		for i := 0; i < len(q) && i < 8; i++ {
			if j, ok := v.Job(q[i].Job); ok {
				snap.Waiting = append(snap.Waiting, j)
			}
		}
	}
	return Schedule(snap, pol)
}

// Explanation is one reason, with how many GPUs it concerns.
type Explanation struct {
	Reason cluster.Reason
	Count  int
}

// Explain says why job waits.
func Explain(snap *cluster.Snapshot, job *cluster.Job, pol Policy) []Explanation { return nil }

// NeverFits tells whether no node could ever run job.
func NeverFits(nodes []*cluster.Node, job *cluster.Job, pol Policy) error { return nil }

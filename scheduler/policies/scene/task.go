package scene

import (
	"cmp"
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Need is what a job takes of each GPU of one class.
type Need struct {
	Share cluster.Share
	Est   cluster.Estimate
	Dur   int64 // microseconds, at least 1
	OK    bool  // it can ever run there
}

// Task is one waiting job in a pass.
type Task struct {
	Facts
	Job   *cluster.Job
	Needs []Need // by class
	Gone  bool   // started in this pass
	// Never says why no class at all can run it.
	Never cluster.Reason
	CPU   int64
	Mem   int64
	Whole bool // it wants its nodes exclusively
	// What it was computed from, and its key in an order that does not change.
	revision uint64
	terms    dispatch.Terms
	At       Key
	Listed   uint64 // the memory's plan in which it last waited
}

// Facts are what orders depend on, of a waiting or of a running job. Durations are
// microseconds, service is microseconds of one GPU.
type Facts struct {
	ID   cluster.JobID
	UID  cluster.UID
	GPUs int // on each of its nodes
	// Nodes is how many it has, 0 stands for one.
	Nodes int
	// Since is when it last began to wait, Submitted when it first came.
	Since, Submitted int64
	Dur              int64 // of a whole run on its fastest type
	Left             int64 // of it still to do
	Attained         int64 // GPU time received over all attempts
	ran              int64 // wall time received over all attempts
	Size             int64 // least dominant fraction of a GPU, thousandths
	Deadline         int64 // 0 is none
	Weight           int64 // thousandths
	Preemptible      bool
	Attempts         []cluster.Attempt
}

// factsOf collects them; dur is the length of a whole run.
func factsOf(j *cluster.Job, terms dispatch.Terms, dur, now int64) Facts {
	f := Facts{
		ID: j.ID, UID: j.Owner.UID, GPUs: j.Spec.GPUs, Nodes: j.Spec.NodeCount(), Since: int64(j.Eligible), Submitted: int64(j.Submitted), Dur: dur,
		Deadline: int64(terms.Deadline), Weight: terms.WeightMilli, Preemptible: terms.Preemptible, Attempts: j.Attempts,
	}
	if f.Weight <= 0 {
		f.Weight = 1000
	}
	for i := range j.Attempts {
		a := &j.Attempts[i]
		if a.Started == 0 {
			continue
		}
		end := cmp.Or(int64(a.Ended), now)
		f.ran += max(0, end-int64(a.Started))
	}
	f.Attained = f.ran * int64(f.Width())
	f.Left = dur
	if f.Preemptible { // it continues from where it was
		f.Left = max(1, dur-f.ran)
	} else if a := j.Live(); a != nil && a.Started > 0 {
		f.Left = max(1, dur-max(0, now-int64(a.Started)))
	}
	return f
}

// GPUTime returns what is left to do times the GPUs it takes.
func (f *Facts) GPUTime() int64 { return f.Left * int64(f.Width()) }

// Cards returns how many GPUs it takes on all of its nodes.
func (f *Facts) Cards() int { return f.GPUs * max(1, f.Nodes) }

// Width returns the weight of its time: its GPUs, one for a job without any.
func (f *Facts) Width() int { return max(1, f.Cards()) }

// NewTask computes what j takes on each class of GPUs.
func (p *Scene) NewTask(j *cluster.Job) *Task {
	t := &Task{Job: j, Needs: make([]Need, len(p.Fleet.Classes)), revision: j.Revision, terms: p.Snap.Terms[j.ID], Whole: j.Spec.WholeNodes()}
	t.CPU, t.Mem = rules.HostOf(j, p.Pol)
	dur, size := int64(rules.Forever), int64(cluster.WholeGPU)
	if j.Spec.GPUs == 0 {
		e, _ := cluster.EstimateFor(j.Estimates, cluster.CPUType)
		dur, size = rules.DurationOf(j, &e, p.Pol), 0
	}
	roomy := p.roomyFor(j)
	for c := range p.Fleet.Classes {
		k, n := &p.Fleet.Classes[c], &t.Needs[c]
		if j.Spec.GPUs == 0 {
			break
		}
		var why cluster.Reason
		n.Share, n.Est, why = rules.ShareOn(j, k.Rep, *p.Pol)
		if why.Code != "" {
			if t.Never.Code == "" || t.Never.Code == cluster.ReasonGPUType {
				t.Never = why
			}
			continue
		}
		if roomy && k.Sellable < j.MinGPUMemMiB {
			continue // it ran out of memory before, and there are larger GPUs
		}
		n.Dur = rules.DurationOf(j, &n.Est, p.Pol)
		if n.OK = p.addMargin(j, n, k); !n.OK {
			t.Never = cluster.Reason{Code: cluster.ReasonNeverFits, Detail: fmt.Sprintf("predicted %s and a margin are more than %s sells, %s", cluster.MemText(n.Est.GPUMemMiB), k.GPUType, cluster.MemText(k.Sellable))}
			continue
		}
		dur = min(dur, n.Dur)
		size = min(size, Dominant(n.Share, k.Sellable))
	}
	if dur == rules.Forever {
		dur = rules.DurationOf(j, &cluster.Estimate{}, p.Pol)
	}
	t.Facts = factsOf(j, t.terms, dur, p.Now)
	t.Size = size
	return t
}

// addMargin raises a predicted memory by the placement's margin. It reports false
// if the GPU does not sell so much.
func (p *Scene) addMargin(j *cluster.Job, n *Need, k *mirror.Class) bool {
	if p.marginMilli == 0 || j.Spec.GPUMemMiB > 0 || n.Est.ConfidenceMilli < p.Pol.MinConfidenceMilli {
		return true
	}
	want := n.Est.GPUMemMiB + (n.Est.GPUMemMiB*p.marginMilli+999)/1000
	if !n.Share.Exclusive {
		n.Share.MemMiB = max(n.Share.MemMiB, want)
	}
	return want <= k.Sellable
}

// roomyFor reports whether some class has the memory that an earlier attempt
// of j ran out of.
func (p *Scene) roomyFor(j *cluster.Job) bool {
	if j.MinGPUMemMiB <= 0 {
		return false
	}
	for c := range p.Fleet.Classes {
		k := &p.Fleet.Classes[c]
		if k.Sellable < j.MinGPUMemMiB {
			continue
		}
		if _, _, why := rules.ShareOn(j, k.Rep, *p.Pol); why.Code == "" {
			return true
		}
	}
	return false
}

// Dominant returns the larger of a share's fractions of memory and compute.
func Dominant(s cluster.Share, sellable int64) int64 {
	if s.Exclusive || sellable <= 0 {
		return cluster.WholeGPU
	}
	return min(cluster.WholeGPU, max(s.Milli, s.MemMiB*cluster.WholeGPU/sellable))
}

// Spans reports whether a task needs several nodes, or all of one.
func (t *Task) Spans() bool { return t.Nodes > 1 || t.Whole }

// CoresOn returns how many cores of a host t takes.
func (t *Task) CoresOn(h *mirror.Host) int64 {
	if t.Whole {
		return h.Use.CPUMilli
	}
	return t.CPU
}

// MemOn returns how much memory of a host t takes, in MiB.
func (t *Task) MemOn(h *mirror.Host) int64 {
	if t.Job.Spec.TakesAllMem() {
		return h.Use.MemMiB
	}
	return t.Mem
}

// FactsOfRun returns the facts of a running job, with Since when its attempt began.
func (p *Scene) FactsOfRun(r *mirror.Run) Facts {
	f := factsOf(r.Job, p.Snap.Terms[r.Job.ID], rules.DurationOf(r.Job, &r.Est, p.Pol), p.Now)
	f.Since = r.Began
	for _, g := range r.Berth.GPUs {
		if u, ok := p.Fleet.Led.GPU(g.GPU); ok {
			f.Size = max(f.Size, Dominant(g.Share, u.SellableMiB))
		}
	}
	return f
}

// CouldBeOn reports whether a host has what t asks of one if it were empty.
func (t *Task) CouldBeOn(h *mirror.Host) bool {
	return h.Use.CPUMilli >= t.CPU && h.Use.MemMiB >= t.Mem && (t.Job.Spec.Node == "" || t.Job.Spec.Node == h.Node.ID)
}

// Key is what an order compares: lower goes first.
type Key struct{ A, B int64 }

// Package ladder decides what a job that ran out of memory asks for next.
package ladder

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// maxSharedOOMs is how often a job may run out of memory on a share of a GPU.
const maxSharedOOMs = 2

// Ladder decides what happens to a job that ran out of GPU memory. After the first
// time it gets a larger share, after the second a whole GPU, and after failing on a
// whole GPU one with more sellable memory, if there is one that could ever run it;
// each step is larger than the last. Otherwise the failure is final.
//
// So is hitting the memory that the user declared: the number is also a cap, and
// hitting it is the job's own fault. With neighbours it is not: one above its share
// may have taken the memory that this job was refused, so the job gets the benefit
// of the doubt, unless it was itself above its share.
//
// A job whose share was cut to what it used, to make room or because it was idle,
// and that then needed more than was left to it but no more than it had been
// granted, is rerun with its original grant: that is not its fault and does not
// count.
//
// For host memory see hostRung.
//
// It only reads nodes, in any order.
type Ladder struct {
	// Nodes are all of the cluster, including those out of service.
	Nodes iter.Seq[*cluster.Node]
	// Partition is the job's, nil for none.
	Partition *cluster.Partition
	// TrustPeak treats a job above its declared share as innocent if it had
	// neighbours, and EndAtWhole ends one for which a whole GPU was too small. Both
	// are former rules, kept for what was committed under them.
	TrustPeak, EndAtWhole bool
	// HostFinal, a former rule, ends a job that hit its host memory cap whoever set
	// it.
	HostFinal bool
	// IdleIsOwn, a former rule, treats a share that was cut because its job was
	// idle as all that the job was granted.
	IdleIsOwn bool
}

// Rung is the outcome of running out of memory.
type Rung struct {
	// Again reports whether the job is rerun: on a GPU of its own if Whole is set,
	// and with at least MinGPUMemMiB on each.
	Again        bool
	Whole        bool
	MinGPUMemMiB int64
	// MinHostMemMiB is the least host memory on each of its nodes, 0 for what it
	// would get anyway.
	MinHostMemMiB int64
	// Why says in numbers why there is no rerun, or what comes next, where the end
	// of the attempt does not say so.
	Why string
}

// Next returns the rung after a, the latest attempt of j, which ran out of memory.
func (l *Ladder) Next(j *cluster.Job, a *cluster.Attempt) Rung {
	if !a.Usage.GPUOOM && a.State == cluster.JobOutOfMemory {
		return l.hostRung(j, a)
	}
	r := l.gpuRung(j, a)
	if r.Again {
		r.MinHostMemMiB = j.MinHostMemMiB
	}
	return r
}

// gpuRung returns the rung of a job that ran out of GPU memory.
func (l *Ladder) gpuRung(j *cluster.Job, a *cluster.Attempt) Rung {
	if !a.Usage.GPUOOM || len(a.Berth.GPUs) == 0 {
		return Rung{}
	}
	granted, outgrew := l.granted(a)
	if outgrew {
		was := granted
		return Rung{
			Again: true, Whole: was.Exclusive, MinGPUMemMiB: was.MemMiB,
			Why: fmt.Sprintf("its share had been cut to what it used; it runs again with the %d MiB that it was granted", was.MemMiB),
		}
	}
	if a.Berth.GPUs[0].Share.Exclusive {
		if l.EndAtWhole {
			return Rung{}
		}
		return l.larger(j, a)
	}
	share := granted.MemMiB
	own := len(a.Neighbours) == 0 || !l.TrustPeak && a.Usage.GPUMemPeakMiB > share
	if j.Spec.GPUMemMiB > 0 && share <= j.Spec.GPUMemMiB && own {
		return Rung{}
	}
	ooms := 0
	for i := range j.Attempts {
		if o := &j.Attempts[i]; o.Usage.GPUOOM {
			if _, outgrew := l.granted(o); !outgrew {
				ooms++
			}
		}
	}
	if ooms > maxSharedOOMs {
		return Rung{}
	}
	return Rung{Again: true, Whole: ooms == maxSharedOOMs, MinGPUMemMiB: min(max(share+share/2, withMargin(a.Usage.GPUMemPeakMiB)), l.mostFor(j.Spec))}
}

// granted returns what an attempt was granted of its first GPU, and whether it ran
// out of memory since that was cut.
func (l *Ladder) granted(a *cluster.Attempt) (cluster.Share, bool) {
	was := a.BeforeCut()
	if len(was) == 0 || l.IdleIsOwn && !a.WasCut() {
		if len(a.Berth.GPUs) == 0 {
			return cluster.Share{}, false
		}
		return a.Berth.GPUs[0].Share, false
	}
	return was[0].Share, a.Usage.GPUMemPeakMiB <= was[0].Share.MemMiB
}

// withMargin returns the request for a job with a known peak.
func withMargin(peakMiB int64) int64 { return peakMiB * 11 / 10 }

// larger returns the rung of a job that had whole GPUs.
func (l *Ladder) larger(j *cluster.Job, a *cluster.Attempt) Rung {
	had := a.Berth.GPUs[0].Share.MemMiB
	gpuType := a.Estimate.GPUType
	most, on := int64(0), ""
	for n := range l.Nodes { // the maximum of both is independent of the order
		if n.ID == a.Berth.Node {
			if g := n.GPU(a.Berth.GPUs[0].GPU); g != nil {
				gpuType = g.Type
			}
		}
		mib, t := n.Largest(j.Spec, l.may(n))
		if mib > most || mib == most && t > on {
			most, on = mib, t
		}
	}
	switch {
	case j.Spec.GPUMemMiB > 0:
		return Rung{Why: fmt.Sprintf("it declares %d MiB and took more than all %d MiB of a %s", j.Spec.GPUMemMiB, had, gpuType)}
	case most <= had:
		return Rung{Why: fmt.Sprintf("it had all %d MiB of a %s, and no larger GPU could ever run it", had, gpuType)}
	case hadAsMuch(j, a):
		return Rung{Why: fmt.Sprintf("it had all %d MiB of a %s, and no less before; the largest that could ever run it is %s with %d MiB", had, gpuType, on, most)}
	}
	return Rung{Again: true, Whole: true, MinGPUMemMiB: min(max(had+1, withMargin(a.Usage.GPUMemPeakMiB)), most)}
}

// may returns a function that reports which GPU types of a node the job's partition
// allows.
func (l *Ladder) may(n *cluster.Node) func(gpuType string) bool {
	p := l.Partition
	if p == nil {
		return nil
	}
	return func(gpuType string) bool { return p.Nodes.Holds(n.ID) && p.HasType(gpuType) }
}

// mostFor returns the most memory that a share of one GPU can have for a job, so
// that no job waits for more than there is.
func (l *Ladder) mostFor(spec *cluster.Spec) int64 {
	most := int64(0)
	for n := range l.Nodes { // the maximum is independent of the order
		if spec.Node != "" && spec.Node != n.ID {
			continue
		}
		for i := range n.GPUs {
			if g := &n.GPUs[i]; spec.GPUType == "" || g.Type == spec.GPUType {
				most = max(most, g.SellableMiB)
			}
		}
	}
	return cmp.Or(most, cluster.MaxMemMiB)
}

// hadAsMuch reports whether the job ran out of memory before with a whole GPU as
// large as that of a. This happens when larger ones are out of service: the job
// must not fail on such a GPU again and again until they are back.
func hadAsMuch(j *cluster.Job, a *cluster.Attempt) bool {
	return slices.ContainsFunc(j.Attempts, func(o cluster.Attempt) bool {
		return o.No < a.No && o.Usage.GPUOOM && len(o.Berth.GPUs) > 0 && o.Berth.GPUs[0].Share.Exclusive &&
			o.Berth.GPUs[0].Share.MemMiB >= a.Berth.GPUs[0].Share.MemMiB
	})
}

// maxHostOOMs is how often a job may run out of host memory that it did not declare.
const maxHostOOMs = 3

// hostRung returns the rung of a job that ran out of host memory. A declared amount
// is final. If it was predicted or the default, the job is rerun after the first
// time with twice as much, after the second with the fraction of a node's memory
// that matches its GPUs, and at least twice as much again, after the third with all
// memory of a node. Each is more than the last and at most that of the largest node
// that could ever run it. Jobs without GPUs have the default, which is final.
func (l *Ladder) hostRung(j *cluster.Job, a *cluster.Attempt) Rung {
	if l.HostFinal || j.Spec.MemMiB > 0 || j.Spec.GPUs == 0 || a.Berth.MemMiB <= 0 {
		return Rung{}
	}
	had, ooms := a.Berth.MemMiB, 0
	for i := range j.Attempts {
		if o := &j.Attempts[i]; o.State == cluster.JobOutOfMemory && !o.Usage.GPUOOM {
			ooms++
		}
	}
	most, part := l.hostMost(j, len(a.Berth.GPUs) == 0)
	if most <= had {
		return Rung{Why: fmt.Sprintf("it had %d MiB, and no node that could ever run it has more", had)}
	}
	next := 2 * had
	switch {
	case ooms > maxHostOOMs:
		return Rung{Why: fmt.Sprintf("it was given more %d times", maxHostOOMs)}
	case ooms == maxHostOOMs:
		next = most
	case ooms == maxHostOOMs-1:
		next = max(next, part)
	}
	next = min(next, most)
	return Rung{
		Again: true, Whole: j.NeedWhole, MinGPUMemMiB: j.MinGPUMemMiB, MinHostMemMiB: next,
		Why: fmt.Sprintf("it declared none, and runs again with %d MiB", next),
	}
}

// hostMost returns the most host memory of a node that could ever run j, and the
// most that falls to its GPUs on one node if all GPUs get equal parts.
func (l *Ladder) hostMost(j *cluster.Job, onCores bool) (most, part int64) {
	for n := range l.Nodes { // the maximum of both is independent of the order
		able := onCores && j.Spec.Allows(n) && (l.Partition == nil || l.Partition.Nodes.Holds(n.ID))
		if mib, _ := n.Largest(j.Spec, l.may(n)); mib >= max(1, j.MinGPUMemMiB) {
			able, part = true, max(part, n.MemMiB*int64(j.Spec.GPUs)/int64(len(n.GPUs)))
		}
		if able {
			most = max(most, n.MemMiB)
		}
	}
	return most, part
}

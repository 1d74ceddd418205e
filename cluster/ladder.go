package cluster

import (
	"fmt"
	"iter"
	"slices"
)

// maxSharedOOMs is how often a job may run out of memory on a share of a GPU.
const maxSharedOOMs = 2

// Ladder settles what becomes of a job that ran out of GPU memory. After the
// first time it gets a larger share, after the second a whole GPU, and after one
// with a whole GPU another that sells more, if there is one that could ever run
// it; each of those is larger than the last. Else it is final.
//
// So is one at the memory that the user declared: the number is also a cap, and
// hitting it is the job's own doing. Beside others it is not: a neighbour above
// its share may have taken what this job was refused, and so it gets the benefit
// of the doubt, unless it was itself above its share.
//
// It reads nodes only, in any order, and changes nothing.
type Ladder struct {
	// Nodes are all of the cluster, those out of service too.
	Nodes iter.Seq[*Node]
	// Partition is the job's, nil for none.
	Partition *Partition
	// TrustPeak takes a job above its declared share for innocent beside others,
	// and EndAtWhole ends one for which a whole GPU was too small: both were once
	// the rule, and stay so for what was committed then.
	TrustPeak, EndAtWhole bool
}

// Rung is where an out-of-memory leads.
type Rung struct {
	// Again reports whether the job runs once more: on a GPU of its own if Whole is
	// set, and with at least MinGPUMemMiB on each.
	Again        bool
	Whole        bool
	MinGPUMemMiB int64
	// Why says in numbers why there is no next time, where the end of the attempt
	// does not say it.
	Why string
}

// Next is the rung after a, the latest attempt of j, which ended in want of memory.
func (l *Ladder) Next(j *Job, a *Attempt) Rung {
	if !a.Usage.GPUOOM || len(a.Berth.GPUs) == 0 {
		return Rung{}
	}
	if a.Berth.GPUs[0].Share.Exclusive {
		if l.EndAtWhole {
			return Rung{}
		}
		return l.larger(j, a)
	}
	share := a.Berth.GPUs[0].Share.MemMiB
	own := len(a.Neighbours) == 0 || !l.TrustPeak && a.Usage.GPUMemPeakMiB > share
	if j.Spec.GPUMemMiB > 0 && share <= j.Spec.GPUMemMiB && own {
		return Rung{}
	}
	ooms := 0
	for i := range j.Attempts {
		if j.Attempts[i].Usage.GPUOOM {
			ooms++
		}
	}
	if ooms > maxSharedOOMs {
		return Rung{}
	}
	return Rung{Again: true, Whole: ooms == maxSharedOOMs, MinGPUMemMiB: min(max(share+share/2, withMargin(a.Usage.GPUMemPeakMiB)), l.mostFor(j.Spec))}
}

// withMargin is what a job asks for that is known to have had a peak.
func withMargin(peakMiB int64) int64 { return peakMiB * 11 / 10 }

// larger is the rung of a job that had whole GPUs.
func (l *Ladder) larger(j *Job, a *Attempt) Rung {
	had := a.Berth.GPUs[0].Share.MemMiB
	gpuType := a.Estimate.GPUType
	most, on := int64(0), ""
	for n := range l.Nodes { // the maximum of both does not depend on the order
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

// may is which types of GPU of a node the job may have, by its partition.
func (l *Ladder) may(n *Node) func(gpuType string) bool {
	p := l.Partition
	if p == nil {
		return nil
	}
	return func(gpuType string) bool { return p.Nodes.Holds(n.ID) && p.HasType(gpuType) }
}

// mostFor is the most memory that a share of one GPU can have for a job, so that
// none waits for more than there is.
func (l *Ladder) mostFor(spec *Spec) int64 {
	most := int64(0)
	for n := range l.Nodes { // the maximum does not depend on the order
		if spec.Node != "" && spec.Node != n.ID {
			continue
		}
		for i := range n.GPUs {
			if g := &n.GPUs[i]; spec.GPUType == "" || g.Type == spec.GPUType {
				most = max(most, g.SellableMiB)
			}
		}
	}
	if most == 0 {
		return MaxMemMiB
	}
	return most
}

// hadAsMuch reports whether the job ran out of memory before with a whole GPU as
// large as that of a. So it is when the larger ones are out of service: it must
// not die on the same card again and again until they are back.
func hadAsMuch(j *Job, a *Attempt) bool {
	return slices.ContainsFunc(j.Attempts, func(o Attempt) bool {
		return o.No < a.No && o.Usage.GPUOOM && len(o.Berth.GPUs) > 0 && o.Berth.GPUs[0].Share.Exclusive &&
			o.Berth.GPUs[0].Share.MemMiB >= a.Berth.GPUs[0].Share.MemMiB
	})
}

package rules

import (
	"cmp"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// Way is how a job takes GPUs of one class.
type Way uint8

const (
	WayNone  Way = iota // cannot
	WayShare            // a slice of each
	WayWhole            // each alone
)

// Need is what a job takes of each GPU of one class.
type Need struct {
	Mem, Milli int64
	Busy       int64 // how much of it the job is expected to keep busy: Milli, or more if that is overcommitted
	Dur        int64 // microseconds, never 0
	Way        Way
	Why        Veto
	Tight      bool // it may need more than the GPU sells, by a confident prediction
	// Behind is the way of a job that could run there but for a reservation; Way is
	// WayNone then.
	Behind Way
	// Like is the same for the jobs of a pass that need the same of the class, 0 for
	// one that no other job is like, and -1 if that is not known; see match in scheduler.
	Like int32
}

// Veto is why a job can never run on a class of GPU.
type Veto uint8

// The vetoes, and none.
const (
	VetoNone      Veto = iota
	vetoType           // it wants another type
	vetoDeclared       // the declared memory is more than the GPU sells
	vetoPredicted      // the predicted peak is more than the GPU sells
	vetoPower          // its predicted power is above its limit
	vetoCost           // its predicted cost is above its limit
	VetoObserved       // it ran out of more memory, and there are larger GPUs
	VetoWhere          // it asks for other nodes
	VetoReserved       // a reservation keeps it away, or it asks for another one
	VetoTight          // it may need more than the GPU sells, and there are larger GPUs
)

// ShareOn returns what job would take of each GPU like gpu, and the estimate used.
// A Reason with a code says why the job can never run there.
//
// Memory is the declared cap if there is one, otherwise the upper quantile of the
// prediction; either is raised if an earlier attempt proved it too little. A job
// takes the GPU alone if it asks to, if an earlier attempt ran out of memory and
// demands it or all that the GPU sells, if it wants several GPUs without declaring
// its memory, if the GPU's memory cannot be capped, or if it has neither a
// prediction nor a declared cap. A confident prediction above what the GPU sells is
// a veto (SchedTune, section IV-C). If only its upper quantile is above, the job
// takes the GPU alone, and a pass avoids that GPU if a larger one will do. Compute
// is the declared one, or what is predicted, reduced by Policy.OvercommitMilli if
// that is confident; unknown compute is all of it.
func ShareOn(job *cluster.Job, gpu *cluster.GPU, pol Policy) (cluster.Share, cluster.Estimate, cluster.Reason) {
	e, known := cluster.EstimateFor(job.Estimates, gpu.Type)
	n := NeedOn(job, gpu, &e, &pol)
	if !known {
		e = cluster.Estimate{GPUType: gpu.Type, GPUMemMiB: n.Mem, GPUMemP95MiB: n.Mem, Milli: n.Milli, Duration: job.Spec.Duration, Source: "none"}
	}
	if n.Way == WayNone {
		return cluster.Share{}, e, VetoReason(job, gpu, &e, &n, &pol)
	}
	return n.Share(gpu.SellableMiB), e, cluster.Reason{}
}

// Share returns the need as a share of a GPU that sells so much.
func (n *Need) Share(sellable int64) cluster.Share {
	if n.Way == WayWhole {
		return cluster.Share{MemMiB: sellable, Milli: cluster.WholeGPU, Exclusive: true}
	}
	return cluster.Share{MemMiB: n.Mem, Milli: n.Milli}
}

// Dominant returns the larger of the fractions of memory and compute, in
// thousandths of a GPU.
func (n *Need) Dominant(sellable int64) int64 {
	if n.Way == WayWhole || sellable <= 0 {
		return cluster.WholeGPU
	}
	return min(cluster.WholeGPU, max(n.Milli, n.Mem*cluster.WholeGPU/sellable))
}

// NeedOn returns what a job takes of each GPU like gpu, by an estimate for its
// type.
func NeedOn(job *cluster.Job, gpu *cluster.GPU, e *cluster.Estimate, pol *Policy) Need {
	s := job.Spec
	n := Need{Dur: DurationOf(job, e, pol)}
	sure := e.GPUType != "" && e.ConfidenceMilli >= pol.MinConfidenceMilli
	switch {
	case s.GPUType != "" && s.GPUType != gpu.Type:
		n.Why = vetoType
	case s.GPUMemMiB > gpu.SellableMiB:
		n.Why = vetoDeclared
	case s.GPUMemMiB == 0 && sure && e.GPUMemMiB > gpu.SellableMiB:
		n.Why = vetoPredicted
	}
	if n.Why != VetoNone || gpu.SellableMiB <= 0 {
		return n
	}
	n.Mem = cmp.Or(s.GPUMemMiB, max(e.GPUMemMiB, e.GPUMemP95MiB))
	n.Tight = s.GPUMemMiB == 0 && sure && e.GPUMemP95MiB > gpu.SellableMiB
	n.Mem = max(1, n.Mem, job.MinGPUMemMiB)
	n.Milli = cmp.Or(s.GPUMilli, e.Milli)
	if n.Milli <= 0 || n.Milli > cluster.WholeGPU {
		n.Milli = cluster.WholeGPU
	}
	n.Way = WayShare
	if pol.Mode == ModeSlot || s.Exclusive || s.WholeNodes() || job.NeedWhole || !gpu.Shareable() || pol.MaxShares < 2 ||
		n.Mem >= gpu.SellableMiB || s.GPUMemMiB == 0 && (!sure || s.GPUs > 1) {
		n.Way, n.Mem, n.Milli = WayWhole, gpu.SellableMiB, cluster.WholeGPU
	}
	n.Busy = n.Milli
	if n.Way == WayShare && s.GPUMilli == 0 && e.Milli > 0 && sure {
		n.Milli = pol.reserved(n.Milli)
	}
	if n.Why = pol.beyond(job, gpu.Type, e, &n, gpu.SellableMiB); n.Why != VetoNone {
		n.Way = WayNone
	}
	return n
}

// reserved returns how much compute a job reserves that is predicted to keep milli
// busy. It is rounded up, so that what is predicted never adds up to more than
// OvercommitMilli.
func (p *Policy) reserved(milli int64) int64 {
	if p.OvercommitMilli <= cluster.WholeGPU {
		return milli
	}
	return (milli*cluster.WholeGPU + p.OvercommitMilli - 1) / p.OvercommitMilli
}

// Calm returns how much compute must stay free next to a share so that what is
// predicted of a GPU adds up to no more than all of it.
func (n *Need) Calm(pol *Policy) int64 {
	if n.Milli == n.Busy {
		return 0
	}
	return cluster.WholeGPU - pol.reserved(cluster.WholeGPU)
}

// DurationOf returns how long job is expected to hold its berth, in microseconds.
func DurationOf(job *cluster.Job, e *cluster.Estimate, pol *Policy) int64 {
	d := e.Duration
	if d <= 0 {
		d = job.Spec.Duration
	}
	if job.Spec.Service != nil { // it runs until it is ended, whatever earlier ones did
		d = cluster.MaxTimeDays * 24 * time.Hour
	}
	if limit := job.Spec.TimeLimit; limit > 0 && (d <= 0 || d > limit) {
		d = limit
	}
	if d <= 0 {
		d = pol.AssumedDuration
	}
	return max(1, d.Microseconds())
}

// VetoReason says in words why a job can never run on a GPU.
func VetoReason(job *cluster.Job, gpu *cluster.GPU, e *cluster.Estimate, n *Need, pol *Policy) cluster.Reason {
	r := cluster.Reason{Code: cluster.ReasonNeverFits}
	limited := *n
	limited.Way = WayShare // as it would be
	switch n.Why {
	case vetoPower:
		r.Detail = fmt.Sprintf("is predicted to draw %d W on %s, at most %d W are allowed (--max-power)",
			e.PowerW*int64(max(1, job.Spec.GPUs)*job.Spec.NodeCount()), gpu.Type, job.Spec.MaxPowerW)
	case vetoCost:
		r.Detail = fmt.Sprintf("is predicted to take %s on %s, a price of at most %s is allowed (--max-cost)",
			pol.GoalWords(job, gpu.Type, e, &limited, gpu.SellableMiB), gpu.Type, say.Times(job.Spec.MaxCostMilli))
	case VetoWhere:
		r.Code, r.Detail = cluster.ReasonWhere, "is on no node that it asks for (--nodelist, --exclude, --constraint)"
	case VetoReserved:
		r.Code, r.Detail = cluster.ReasonReservation, "is kept by a reservation, or the job asks for one elsewhere"
	case vetoType:
		r.Code = cluster.ReasonGPUType
		r.Detail = fmt.Sprintf("wants %s, this is %s", job.Spec.GPUType, gpu.Type)
	case vetoDeclared:
		r.Detail = fmt.Sprintf("needs %s, %s sells %s", cluster.MemText(job.Spec.GPUMemMiB), gpu.Type, cluster.MemText(gpu.SellableMiB))
	case vetoPredicted:
		r.Detail = fmt.Sprintf("is predicted to need %s, %s sells %s; declare its memory to overrule the prediction",
			cluster.MemText(e.GPUMemMiB), gpu.Type, cluster.MemText(gpu.SellableMiB))
	default:
		r.Detail = fmt.Sprintf("%s sells no memory", gpu.Type)
	}
	return r
}

// HostOf returns what a job takes of each of its nodes: what it asks for;
// otherwise, for a GPU job, what is predicted confidently, but at least the floor;
// without a prediction, what its partition gives for each GPU, or else the floor.
// The floor is the partition's, or else the policy's default. An amount that an
// attempt proved too little is raised. If types of GPUs differ the least counts, so
// that each remains open to the job.
func HostOf(job *cluster.Job, pol *Policy) (cpuMilli, memMiB int64) {
	s := job.Spec
	cpuMilli, memMiB = s.CPUMilli, s.MemMiB
	if cpuMilli > 0 && memMiB > 0 {
		return cpuMilli, memMiB
	}
	cpu, mem := predictedHost(job, pol)
	gpus := int64(s.GPUs)
	if cpuMilli == 0 {
		cpuMilli = unasked(cpu, s.Host.LeastCPUMilli, gpus*s.Host.CPUPerGPUMilli, pol.DefaultCPUMilli)
	}
	if memMiB == 0 {
		memMiB = max(job.MinHostMemMiB, unasked(mem, s.Host.LeastMemMiB, gpus*s.Host.MemPerGPUMiB, pol.DefaultMemMiB))
	}
	return cpuMilli, memMiB
}

// unasked returns what a job gets that does not ask; 0 is unknown or not set.
func unasked(predicted, least, unknown, usual int64) int64 {
	if predicted == 0 && unknown > 0 {
		return unknown
	}
	least = cmp.Or(least, usual)
	return max(predicted, least)
}

// predictedHost returns 0 for what cannot be predicted.
func predictedHost(job *cluster.Job, pol *Policy) (cpuMilli, memMiB int64) {
	if job.Spec.GPUs == 0 {
		return 0, 0
	}
	for i := range job.Estimates {
		e := &job.Estimates[i]
		if e.GPUType == cluster.CPUType || max(e.ConfidenceMilli, e.HostConfidenceMilli) < pol.MinConfidenceMilli {
			continue
		}
		cpuMilli, memMiB = leastKnown(cpuMilli, e.CPUMilli), leastKnown(memMiB, e.HostMemMiB)
	}
	return cpuMilli, memMiB
}

// leastKnown returns the lesser of two figures where 0 means none.
func leastKnown(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// LeastMilli returns the least of GPUs that a job takes anywhere on nodes, in
// thousandths; 0 for one that needs none, or fits nowhere.
func LeastMilli(nodes []*cluster.Node, j *cluster.Job, pol Policy) int64 {
	least := int64(0)
	if j.Spec.GPUs == 0 || j.Spec.OrCPU {
		return 0
	}
	for _, n := range nodes {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			e, _ := cluster.EstimateFor(j.Estimates, g.Type)
			nd := NeedOn(j, g, &e, &pol)
			if nd.Way == WayNone {
				continue
			}
			if m := int64(j.Spec.GPUs*j.Spec.NodeCount()) * cluster.ShareMilli(nd.Share(g.SellableMiB), g.SellableMiB); least == 0 || m < least {
				least = m
			}
		}
	}
	return least
}

// Package resize decides what running jobs hold of GPUs once their use is known:
// less once the peak of their memory is steady, and more before they need it. The
// leader of a cluster and the simulator run the same functions; what they share
// with the state machine, which checks each change again, is in package cluster.
package resize

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Every is the interval of checks for jobs that use less of their GPUs than they
// hold, or more than was left to them.
const Every = 2 * time.Second

// TakeBack is for how long after its end a job that reached its reduced share has
// others preempted for it.
const TakeBack = 10 * time.Minute

// Use is the last report about an attempt: its time, for how long its use of GPUs
// is known, how much of them it kept busy, in thousandths of one times
// milliseconds, and the most memory that it held of one.
type Use struct {
	At                       cluster.Time
	BusyMs, KnownMs, PeakMiB int64
}

// Steady is since when the peak of an attempt's GPU memory has not risen, and its
// use at that time. The zero value has seen nothing.
type Steady struct {
	peak int64
	at   Use
}

// Add records what an attempt used.
func (s *Steady) Add(u Use) {
	if u.PeakMiB > s.peak || u.KnownMs < s.at.KnownMs {
		s.peak, s.at = u.PeakMiB, u
	}
}

// Peak returns the most memory that the attempt held of a GPU.
func (s *Steady) Peak() int64 { return s.peak }

// milli returns how much of each of its GPUs an attempt has used since its peak is
// steady, in thousandths; a whole one if unknown.
func (s *Steady) milli(u Use, cards int) int64 {
	known := u.KnownMs - s.at.KnownMs
	if known <= 0 || cards == 0 {
		return cluster.WholeGPU
	}
	return min(cluster.WholeGPU, max(0, u.BusyMs-s.at.BusyMs)/known/int64(cards))
}

// Shares returns the shares that the live attempt of j, which runs on n, should
// have of its GPUs, given what it used: nil if it has them. A job that was not
// reduced yet must satisfy cluster.Job.MayResize.
func (s *Steady) Shares(j *cluster.Job, n *cluster.Node, u Use, mode cluster.ResizeMode) []cluster.GPUShare {
	a, rule := j.Live(), mode.Rule()
	var was []cluster.GPUShare
	if a.WasCut() {
		was = a.Resize.Was
	} else if s.peak == 0 || j.Spec.GPUMemMiB > 0 && !rule.Declared || u.At.Sub(max(s.at.At, a.Started)) < rule.Wait(a.Estimate.Duration) {
		return nil
	}
	sellable, ok := movable(n, a)
	if !ok {
		return nil
	}
	return rule.Shares(a.Berth.GPUs, was, sellable, s.peak, s.milli(u, len(a.Berth.GPUs)))
}

// movable returns the memories that an attempt's GPUs sell, false if a GPU cannot
// change the cap of a running job, or is not shared.
func movable(n *cluster.Node, a *cluster.Attempt) (sellable []int64, ok bool) {
	for _, s := range a.Berth.GPUs {
		g := n.GPU(s.GPU)
		if g == nil || !g.Shareable() || g.CapMode != "watch" && g.CapMode != "sim" {
			return nil, false
		}
		sellable = append(sellable, g.SellableMiB)
	}
	return sellable, true
}

// CutShort reports whether a job waits because it reached its reduced share, and
// may start at once: then others are preempted for it.
func CutShort(j *cluster.Job, now cluster.Time) bool {
	a := j.Last()
	return a != nil && a.WasCut() && a.Usage.GPUOOM && j.Hold == nil && now.Sub(a.Ended) < TakeBack
}

// WhoYields returns the newest job that joined the GPUs of j since its share was
// reduced, that can save its state and has no deadline; nil without one, and while
// a job there is already being preempted. Ties go by the order of jobs.
func WhoYields(jobs []*cluster.Job, j *cluster.Job, now cluster.Time) (newest *cluster.Job) {
	last := j.Last()
	for _, o := range jobs {
		switch {
		case o.ID == j.ID || o.Live() == nil || !meet(o.Live(), last) || o.Live().Placed < last.Resize.At:
		case o.Preempting() || o.Cancel != nil:
			return nil
		case o.Unpreemptible(now) != "" || o.Spec.Deadline != 0:
		case newest == nil || o.Live().Started > newest.Live().Started:
			newest = o
		}
	}
	return newest
}

// HasRoom reports whether the GPUs of a running job have the memory and the compute
// for other shares of it, next to those of the other jobs on its node.
func HasRoom(n *cluster.Node, jobs []*cluster.Job, j *cluster.Job, to []cluster.GPUShare) bool {
	for _, want := range to {
		g := n.GPU(want.GPU)
		if g == nil {
			return false
		}
		mem, milli := want.Share.MemMiB, want.Share.Milli
		for _, o := range jobs {
			if o.ID == j.ID || o.Live() == nil {
				continue
			}
			for _, has := range o.Live().HeldGPUs() {
				if has.GPU == want.GPU {
					mem, milli = mem+has.Share.MemMiB, milli+has.Share.Milli
				}
			}
		}
		if mem > g.SellableMiB || milli > cluster.WholeGPU {
			return false
		}
	}
	return true
}

// meet reports whether two attempts have shares of one GPU.
func meet(a, b *cluster.Attempt) bool {
	for _, x := range a.Berth.GPUs {
		for _, y := range b.Berth.GPUs {
			if x.GPU == y.GPU {
				return true
			}
		}
	}
	return false
}

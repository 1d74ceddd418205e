package jobs

import (
	"math"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/nodes"
)

// leastShown is the minimum number of waiting tasks of an array shown to a pass.
const leastShown = 64

// window determines how many waiting tasks of each array are shown to a pass.
// Showing more than could start, and queue until the next pass, would cost time and
// log space and change nothing: they are all alike.
type window struct {
	folds            int
	gpus             int   // GPUs that take jobs
	shares, cpu, mem int64 // free shares, cores in thousandths, and MiB
}

func newWindow(fleet *nodes.Fleet, folds int) window {
	w := window{folds: folds}
	for _, n := range fleet.Nodes() { // sums are independent of the order
		if !n.Schedulable() {
			continue
		}
		u, _ := fleet.Ledger().Node(n.ID)
		w.cpu += max(0, u.CPUMilli-u.UsedCPU)
		w.mem += max(0, u.MemMiB-u.UsedMem)
		for i := range n.GPUs {
			g, ok := fleet.Ledger().GPU(n.GPUs[i].ID)
			if !ok || g.Closed {
				continue
			}
			w.gpus++
			w.shares += int64(g.FreeShares())
		}
	}
	return w
}

// of returns how many tasks of a fold are shown besides queued ones of its array.
func (w *window) of(j *cluster.Job, queued int) int {
	fit := int64(math.MaxInt32)
	nodes := int64(j.Spec.NodeCount())
	if j.Spec.GPUs > 0 && !j.Spec.OrCPU {
		fit = w.shares / (int64(j.Spec.GPUs) * nodes)
	}
	if c := j.Spec.CPUMilli; c > 0 {
		fit = min(fit, w.cpu/(c*nodes))
	}
	if m := j.Spec.MemMiB; m > 0 {
		fit = min(fit, w.mem/(m*nodes))
	}
	if fit == math.MaxInt32 { // it does not say what it takes
		fit = w.cpu / 100
	}
	if w.folds > 4 {
		fit = min(fit, max(leastShown, 4*fit/int64(w.folds)))
	}
	wait := max(leastShown, min(w.gpus, 4*w.gpus/w.folds)) - queued
	return int(fit) + max(0, wait)
}

// Startable returns the waiting jobs that may start at now, by id, how many more
// tasks there are like the last one shown of an array, and the earliest later time
// at which another job may start; 0 if none waits for its time alone.
func Startable(r *Roll, now cluster.Time) (ready []*cluster.Job, more map[cluster.JobID]int, next cluster.Time) {
	due := &Set{}
	var folds []*cluster.Job
	room := map[cluster.JobID]int{}
	for j := range r.Barred.All {
		switch j.Barred(now).Code {
		case "":
			if !r.throttled(j) {
				if j.Fold != nil {
					folds = append(folds, j)
				} else {
					due.Put(j)
				}
				break
			}
			left, seen := room[j.ArrayJobID]
			a := r.Arrays[j.ArrayJobID]
			if !seen {
				left = a.Room()
			}
			n := min(left, j.Count())
			if a.Spec.Service != nil && len(j.Attempts) == 0 {
				n = max(0, min(n, a.Throttle-a.Begun))
			}
			for k := range n {
				due.Put(j.Task(cluster.SpanRank(j.Ranks(), k)))
			}
			room[j.ArrayJobID] = left - n
		case cluster.ReasonBeginTime:
			at := j.Spec.Begin
			if j.Spec.Service != nil {
				at = max(at, j.DependAt)
			}
			if next == 0 || at < next {
				next = at
			}
		case cluster.ReasonDependency:
			if j.DependAt > now && j.Depend() == cluster.DependMet && (next == 0 || j.DependAt < next) {
				next = j.DependAt
			}
		}
	}
	pending := &r.ByState[cluster.JobPending]
	if r.Folded[cluster.JobPending] > 0 {
		pending, folds = r.unfolded(folds)
	}
	if len(folds) > 0 {
		more = show(r, folds, due)
	}
	return inSets(pending, due, &r.ByState[cluster.JobQueued]), more, next
}

// unfolded returns the pending jobs that stand for one each, and appends the folds
// among them to folds.
func (s *States) unfolded(folds []*cluster.Job) (*Set, []*cluster.Job) {
	ones := &Set{}
	for j := range s.ByState[cluster.JobPending].All {
		if j.Fold == nil {
			ones.Put(j)
		} else {
			folds = append(folds, j)
		}
	}
	return ones, folds
}

// show adds the first tasks of folds.
func show(r *Roll, folds []*cluster.Job, due *Set) map[cluster.JobID]int {
	w := newWindow(r.Fleet, len(folds))
	more := map[cluster.JobID]int{}
	for _, j := range folds {
		n := min(w.of(j, r.Arrays[j.ArrayJobID].Queued), j.Count())
		if j.Spec.Deadline > 0 { // all are promised theirs
			n = j.Count()
		}
		if n == 0 {
			continue
		}
		left, last := n, cluster.JobID(0)
		for _, sp := range j.Fold {
			for k := sp.From; k <= sp.To && left > 0; k++ {
				t := j.Task(k)
				due.Put(t)
				last = t.ID
				left--
			}
		}
		if hidden := j.Count() - n; hidden > 0 {
			more[last] = hidden
		}
	}
	return more
}

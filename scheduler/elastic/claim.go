package elastic

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// block is the idle GPUs of one type on a node.
type block struct {
	node *cluster.Node
	typ  string
	idle int
}

// blocks are the GPUs of a cluster by nodes and types in order, with those that are idle.
type blocks struct {
	all   []*block
	parts map[string]*cluster.Partition
}

// blocksOf returns the blocks of a ledger, on nodes that take jobs.
func blocksOf(snap *dispatch.Snapshot, led *dispatch.Ledger) blocks {
	out := blocks{parts: map[string]*cluster.Partition{}}
	for _, p := range snap.Partitions {
		out.parts[p.Name] = p
	}
	for _, n := range snap.Nodes {
		if !n.Schedulable() {
			continue
		}
		first := len(out.all)
		for i := range n.GPUs {
			at := slices.IndexFunc(out.all[first:], func(b *block) bool { return b.typ == n.GPUs[i].Type }) + first
			if at < first {
				at = len(out.all)
				out.all = append(out.all, &block{node: n, typ: n.GPUs[i].Type})
			}
			if u, ok := led.GPU(n.GPUs[i].ID); ok && u.Idle() {
				out.all[at].idle++
			}
		}
	}
	return out
}

// clone returns a copy to allocate from.
func (f blocks) clone() blocks {
	out := blocks{parts: f.parts}
	for _, b := range f.all {
		c := *b
		out.all = append(out.all, &c)
	}
	return out
}

// idle returns how many GPUs all of them have.
func (f blocks) idle() int {
	n := 0
	for _, b := range f.all {
		n += b.idle
	}
	return n
}

// serves reports whether a job may run on a block.
func (f blocks) serves(j *cluster.Job, b *block) bool {
	if p := f.parts[j.Spec.Partition]; p != nil && (!p.Nodes.Holds(b.node.ID) || !p.HasType(b.typ)) {
		return false
	}
	return (j.Spec.GPUType == "" || j.Spec.GPUType == b.typ) && j.Spec.Allows(b.node)
}

// at returns the block of a node and a type, nil if there is none.
func (f blocks) at(node cluster.NodeID, typ string) *block {
	for _, b := range f.all {
		if b.node.ID == node && b.typ == typ {
			return b
		}
	}
	return nil
}

// place finds where a job fits with n of its units: on the block with the most idle
// GPUs, or on those of one type that have few more than it needs.
func (f blocks) place(j *cluster.Job, n int) (at []*block, ok bool) {
	each, nodes := j.Spec.GPUs, j.Spec.NodeCount()
	switch _, _, unit := j.Spec.Sizes(); {
	case j.Spec.NodeRange.Max > 0:
		nodes = n
	case j.Spec.Elastic():
		each = n * unit
	}
	if nodes == 1 && j.Spec.NodeRange.Max == 0 {
		for _, b := range f.all {
			if f.serves(j, b) && b.idle >= each && (len(at) == 0 || b.idle > at[0].idle) {
				at = []*block{b}
			}
		}
		return at, len(at) > 0
	}
	types, of := []string{}, map[string][]*block{}
	for _, b := range f.all {
		if b.idle < each || !f.serves(j, b) {
			continue
		}
		if of[b.typ] == nil {
			types = append(types, b.typ)
		}
		of[b.typ] = append(of[b.typ], b)
	}
	for _, typ := range types {
		if len(of[typ]) > len(at) {
			at = of[typ]
		}
	}
	if len(at) < nodes {
		return nil, false
	}
	slices.SortStableFunc(at, func(a, b *block) int { return a.idle - b.idle })
	return at[:nodes], true
}

// take takes so many GPUs of each block, or returns them if negative.
func (f blocks) take(at []*block, each int) {
	for _, b := range at {
		b.idle -= each
	}
}

// claim is an elastic job and what it is to have.
type claim struct {
	job   *cluster.Job
	curve Curve
	// It has n units, of so many GPUs each, and may have from least to most.
	n, least, most, unit int
	// left is how long one GPU would take for what is left of it, in seconds.
	left float64
	// fair is how many times as fast as one GPU an equal part of the cluster is.
	fair float64
	// typ is the type of its GPUs, and at is their blocks: one, or one for each
	// node.
	typ string
	at  []*block
	// had is what a running job has, home where, and attempt is its attempt.
	had     int
	home    []*block
	attempt *cluster.Attempt
	// rate is how fast it is with one GPU of a type, nil if all are alike.
	rate func(typ string) float64
}

func claimOf(snap *dispatch.Snapshot, j *cluster.Job) *claim {
	c := &claim{job: j, curve: CurveOf(j)}
	c.least, c.most, c.unit = Bounds(snap, j)
	if n, ok := snap.Shares[j.ID]; ok {
		c.least = min(max(c.least, n), c.most)
	}
	if c.n = j.Spec.Size(); j.State.Waiting() {
		c.n = c.least
	}
	c.left = leftOf(j, c.curve, snap.Now)
	return c
}

// Bounds returns the least and most units that a job of elastic size may have, with
// its partition and quotas, and the GPUs of each; see cluster.Spec.Sizes. One that
// probes has its least.
func Bounds(snap *dispatch.Snapshot, j *cluster.Job) (least, most, unit int) {
	least, most, unit = j.Spec.Sizes()
	if j.State.Waiting() && j.Probes() {
		return least, least, unit
	}
	if n := mostGPUs(snap, j); n > 0 {
		most = max(least, min(most, int(n)/unit))
	}
	return least, most, unit
}

// mostGPUs returns how many GPUs a job may have at most by its partition and by
// per-job quotas, 0 for any number.
func mostGPUs(snap *dispatch.Snapshot, j *cluster.Job) int64 {
	n := int64(0)
	if snap.Limits != nil {
		n = snap.Limits.MostGPUs(accounting.HolderOf(j))
	}
	for _, p := range snap.Partitions {
		if p.Name == j.Spec.Partition && p.MaxGPUs > 0 && (n == 0 || p.MaxGPUs < n) {
			n = p.MaxGPUs
		}
	}
	return n
}

// speed returns how many times as fast as one GPU it is with n units.
func (c *claim) speed(n int) float64 { return c.curve.Speedup(n * c.unit) }

// faster returns how many times as fast as a running job is it would be with n units
// of a type.
func (c *claim) faster(typ string, n int) float64 {
	times := c.speed(n) / c.speed(c.had)
	if had := c.attempt.Estimate.GPUType; c.rate != nil && typ != had {
		times *= c.rate(typ) / c.rate(had)
	}
	return times
}

// pays reports whether one more unit is worthwhile.
func (c *claim) pays() bool { return c.speed(c.n+1)-c.speed(c.n) >= knee*c.speed(1) }

// spans reports whether its units are nodes.
func (c *claim) spans() bool { return c.job.Spec.NodeRange.Max > 0 }

// settle records where its first units are.
func (c *claim) settle(at []*block, free blocks) {
	c.at, c.typ = at, at[0].typ
	if c.spans() {
		return
	}
	free.take(at, (c.n-1)*c.unit) // one is already taken
}

// next returns the block for its next unit, nil for none.
func (f blocks) next(c *claim) *block {
	if len(c.at) == 0 {
		return nil
	}
	if !c.spans() {
		if b := c.at[0]; b.idle >= c.unit {
			return b
		}
		return nil
	}
	var best *block
	for _, b := range f.all {
		if b.idle < c.unit || best != nil && b.idle >= best.idle || b.typ != c.typ {
			continue
		}
		if f.serves(c.job, b) && !slices.Contains(c.at, b) {
			best = b
		}
	}
	return best
}

// grow gives it the next unit, which must exist.
func (f blocks) grow(c *claim) {
	b := f.next(c)
	b.idle -= c.unit
	c.n++
	if c.spans() {
		c.at = append(slices.Clone(c.at), b)
	}
}

// unknownLeft stands in for the remaining time of jobs of unknown duration.
const unknownLeft = time.Hour

// leftOf returns how long one GPU would take for what is left of a job, in seconds:
// by the steps it reports, otherwise by its prediction less what its attempts did.
func leftOf(j *cluster.Job, curve Curve, now cluster.Time) float64 {
	_, _, unit := j.Spec.Sizes()
	least := time.Minute.Seconds()
	if a := j.Last(); a != nil && a.Progress != nil && a.Progress.StepTime > 0 && a.Progress.Total > a.Progress.Step {
		return max(least, float64(a.Progress.Total-a.Progress.Step)*a.Progress.StepTime.Seconds()*curve.Speedup(a.Size(j.Spec)*unit))
	}
	all := 0.0
	for i := range j.Estimates {
		if d := j.Estimates[i].Duration.Seconds(); d > 0 && (all == 0 || d < all) {
			all = d
		}
	}
	if all == 0 {
		all = unknownLeft.Seconds()
	}
	fewest, _, _ := j.Spec.Sizes()
	return max(least, all*curve.Speedup(fewest*unit)-doneOf(j, curve, now))
}

// doneOf returns how long one GPU would have taken for what the attempts of a job
// did and saved, in seconds.
func doneOf(j *cluster.Job, curve Curve, now cluster.Time) (done float64) {
	_, _, unit := j.Spec.Sizes()
	for i := range j.Attempts {
		a := &j.Attempts[i]
		end := a.Ended
		if a.State.Live() {
			end = now
		} else if a.State != cluster.JobPreempted {
			continue // what it did is lost
		}
		if a.Started > 0 && end > a.Started {
			done += end.Sub(a.Started).Seconds() * curve.Speedup(max(1, a.Size(j.Spec))*unit)
		}
	}
	return done
}

// Rest returns how long a job of elastic size takes with n units to do what is left
// of it, if all of it takes so long with its least.
func Rest(j *cluster.Job, now cluster.Time, all time.Duration, n int) time.Duration {
	curve := CurveOf(j)
	least, _, unit := j.Spec.Sizes()
	left := 1 - doneOf(j, curve, now)/max(1, all.Seconds()*curve.Speedup(least*unit))
	if a := j.Last(); a != nil && a.Progress != nil && a.Progress.Step > 0 && a.Progress.Total > a.Progress.Step {
		left = float64(a.Progress.Total-a.Progress.Step) / float64(a.Progress.Total)
	}
	return time.Duration(float64(all) * max(leastLeft, left) * curve.Speedup(least*unit) / curve.Speedup(n*unit))
}

// leastLeft is the least part of a job that counts as left: one that outlives its
// prediction still has something to do.
const leastLeft = 0.02

package elastic

import (
	"cmp"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/hostnames"
)

// inPlace reports whether nodes come and leave while it runs.
func (c *claim) inPlace() bool {
	return c.job.Spec.InPlace && c.spans() && c.attempt.Gang != nil && c.attempt.Loan == "" && c.attempt.Nodes()+c.most <= cluster.MaxParts
}

// restart returns the assumed cost of another size: what changes in place cost it
// so far, otherwise a save and a start.
func (c *claim) restart() time.Duration {
	if !c.job.Spec.InPlace {
		return Restart
	}
	return cmp.Or(c.job.InPlaceCost(), Restart)
}

// again returns the restart of the job.
func (c *claim) again(of cluster.JobID, format string, args ...any) []dispatch.Preemption {
	return []dispatch.Preemption{{Job: c.job.ID, Attempt: c.attempt.No, For: of, Why: fmt.Sprintf(format, args...)}}
}

// givesUp returns the change in which it gives up nodes and continues with the
// others.
func (c *claim) givesUp(nodes []cluster.NodeID, of cluster.JobID, why string) []dispatch.Preemption {
	return []dispatch.Preemption{{Job: c.job.ID, Attempt: c.attempt.No, For: of, Gives: nodes, Why: fmt.Sprintf("gives up %s of its %d nodes: %s", hostnames.Fold(nodes), c.had, why)}}
}

// newest returns the n nodes that it got last. Its first one, where its processes
// meet, is never among them: it keeps at least one node.
func (c *claim) newest(n int) []cluster.NodeID { return nodesOf(c.at[max(1, len(c.at)-n):]) }

func nodesOf(at []*block) (out []cluster.NodeID) {
	for _, b := range at {
		out = append(out, b.node.ID)
	}
	return out
}

// givesFor returns the fewest of its nodes with which a waiting job would have its
// least, nil if giving up nodes cannot achieve that.
func (c *claim) givesFor(w *cluster.Job, free blocks) []cluster.NodeID {
	if !c.inPlace() {
		return nil
	}
	least, _, _ := w.Spec.Sizes()
	enough := func(at []*block) bool {
		then := free.clone()
		for _, b := range at {
			then.at(b.node.ID, b.typ).idle += c.job.Spec.GPUs
		}
		_, ok := then.place(w, least)
		return ok
	}
	if c.n > c.least {
		for i := len(c.at) - 1; i > 0; i-- {
			if enough(c.at[i : i+1]) {
				return nodesOf(c.at[i : i+1])
			}
		}
	}
	for k := 2; k <= c.n-c.least && k < len(c.at); k++ {
		if at := c.at[len(c.at)-k:]; enough(at) {
			return nodesOf(at)
		}
	}
	return nil
}

// getsMore returns the change in which it gets the idle nodes it was given, as far
// as it may have them and they are worthwhile; nil if they are not.
func (c *claim) getsMore(snap *dispatch.Snapshot, led *dispatch.Ledger) []dispatch.Preemption {
	var gets []cluster.Berth
	var nodes []cluster.NodeID
	milli := int64(0)
	for _, b := range c.at[c.attempt.Width():] {
		berth, ok := c.like(b, led)
		if !ok || snap.Reservations.Keeps(c.job, &berth, snap.Now).Code != "" {
			continue
		}
		more := milli + led.HeldMilli(berth.GPUs)
		if snap.Limits != nil && snap.Limits.MayGrow(accounting.WhoOf(c.job), more).Code != "" {
			break
		}
		gets, nodes, milli = append(gets, berth), append(nodes, b.node.ID), more
	}
	if c.speed(c.had+len(gets)) < worth*c.speed(c.had) {
		return nil
	}
	return []dispatch.Preemption{{Job: c.job.ID, Attempt: c.attempt.No, Gets: gets, Why: fmt.Sprintf("gets %s beside its %d nodes: they are idle, and nobody waits", hostnames.Fold(nodes), c.had)}}
}

// like returns a berth on a node like its first one, on idle GPUs of the same type.
func (c *claim) like(b *block, led *dispatch.Ledger) (cluster.Berth, bool) {
	first := &c.attempt.Berth
	out := cluster.Berth{Node: b.node.ID, CPUMilli: first.CPUMilli, MemMiB: first.MemMiB}
	for i := range b.node.GPUs {
		g := &b.node.GPUs[i]
		if u, ok := led.GPU(g.ID); len(out.GPUs) == len(first.GPUs) || !ok || !u.Idle() || g.Type != b.typ {
			continue
		}
		one := cluster.Berth{Node: b.node.ID, GPUs: []cluster.GPUShare{{GPU: g.ID, Share: first.GPUs[len(out.GPUs)].Share}}}
		if led.Fits(&one).Code == "" {
			out.GPUs = append(out.GPUs, one.GPUs[0])
		}
	}
	return out, len(out.GPUs) == len(first.GPUs) && led.Fits(&out).Code == ""
}

package explain

import (
	"cmp"
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// reservedOn says which reservation keeps the job from a GPU or, with nil, from the
// cores of a node; the zero Reason means none does.
func (x *explainer) reservedOn(n *cluster.Node, g *cluster.GPU) cluster.Reason {
	b := cluster.Berth{Node: n.ID}
	if g != nil {
		b.GPUs = []cluster.GPUShare{{GPU: g.ID}}
	}
	return x.snap.Reservations.Keeps(x.job, &b, x.snap.Now)
}

// tallyReserved counts what a reservation keeps of a node from the job, and returns
// how many GPUs are left; -1 for a node of which nothing is left.
func (x *explainer) tallyReserved(n *cluster.Node, count int) (left int) {
	if len(x.snap.Reservations) == 0 {
		return count
	}
	if x.job.Spec.GPUs == 0 {
		r := x.reservedOn(n, nil)
		if r.Code != "" {
			x.tally(r.Code, count, 0, func() string { return fmt.Sprintf("node %s: %s", n.ID, r.Detail) })
			return -1
		}
		return count
	}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if nd, _ := x.need(x.job, g); nd.Way == rules.WayNone {
			continue
		}
		if r := x.reservedOn(n, g); r.Code != "" {
			x.tallyOn(g.Type, r.Code, 1, 0, func() string { return fmt.Sprintf("node %s: %s", n.ID, r.Detail) })
			count--
		}
	}
	return cmp.Or(count, -1)
}

// own returns the reservation that a job asks for, nil for none.
func (x *explainer) own(j *cluster.Job) *dispatch.Reservation {
	if j.Spec.Where.InReservation() == "" {
		return nil
	}
	return x.snap.Reservations.Get(j.Spec.Where.InReservation())
}

// shift moves the time of the clearing to when reservations let the job start.
func (c *clearing) shift() (ok bool) {
	now := c.x.snap.Now
	c.length = min(int64(c.x.job.LatestEnd(now))-int64(now), rules.Forever/4)
	c.at, ok = c.shifted(c.at, c.length)
	return ok
}

// shifted returns when, from a time on, reservations let a job start on a node:
// they keep it from windows into which it would run, and its own is open only in
// its own windows. ok is false if that is never.
func (c *clearing) shifted(at int64, length int64) (int64, bool) {
	rs, j, own := c.x.snap.Reservations, c.x.job, c.x.own(c.x.job)
	if len(rs) == 0 && j.Spec.Where.InReservation() == "" {
		return at, true
	}
	b := cluster.Berth{Node: c.node.ID}
	for _, k := range c.cards {
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: c.node.GPUs[k].ID})
	}
	const mostShifts = 1000
	for range mostShifts {
		was := at
		if own != nil {
			start, _, ok := own.Window(cluster.Time(at))
			if !ok {
				return at, false
			}
			at = max(at, int64(start))
		}
		for _, r := range rs {
			if start, bars := r.BarsBerth(j, &b, cluster.Time(at), cluster.Time(at+length)); bars {
				_, end, _ := r.Window(start)
				at = max(at, int64(end))
			}
		}
		if at == was {
			return at, true
		}
	}
	return at, false
}

package deadline

import (
	"cmp"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// admitMargin is how much longer than its grace period a preemption may take when a
// deadline is promised: a pass must see it, and the request reach the node.
const admitMargin = 15 * time.Second

// holding is what holds a GPU.
type holding struct {
	free, cleared, lost, kept int64
	by                        []*cluster.Job
}

// holders returns what holds each GPU and until when, and until when if preemptible
// jobs make room.
func (d *demand) holders(snap *dispatch.Snapshot, margin time.Duration) map[cluster.GPUID]*holding {
	out := map[cluster.GPUID]*holding{}
	for _, j := range snap.Running {
		a := j.Live()
		if a == nil {
			continue
		}
		end := rules.EndAt(j, a, rules.Tail, d.now, d.pol)
		clear, may := clearsAt(j, snap, margin)
		may = may && clear < end
		d.clears = d.clears || may
		keeps, kept := d.keeps(j, snap, margin)
		if len(a.HeldGPUs()) == 0 {
			for _, b := range a.Held() {
				d.cores[b.Node] = max(d.cores[b.Node], end)
			}
		}
		for i, gs := range a.HeldGPUs() {
			h := out[gs.GPU]
			if h == nil {
				h = &holding{}
				out[gs.GPU] = h
			}
			h.free = max(h.free, end)
			if i < keeps {
				h.kept = max(h.kept, kept)
			} else if kept > 0 {
				d.clears = true
				h.cleared, h.by = max(h.cleared, int64(snap.Now.Add(j.Spec.Checkpoint.Grace+margin))), append(h.by, j)
				h.lost += elastic.Restart.Microseconds() * int64(len(a.HeldGPUs()))
				continue
			}
			if !may {
				h.cleared = max(h.cleared, end)
				continue
			}
			h.cleared = max(h.cleared, clear)
			h.by = append(h.by, j)
			h.lost += lostBy(j, d.now)
		}
	}
	return out
}

// clearsAt returns when a running job is gone if it is preempted for a deadline
// now; ok is false for one that may not be.
func clearsAt(j *cluster.Job, snap *dispatch.Snapshot, margin time.Duration) (at int64, ok bool) {
	if !snap.Terms[j.ID].Preemptible || j.Unpreemptible(snap.Now) != "" {
		return 0, false
	}
	return int64(snap.Now.Add(j.Spec.Checkpoint.Grace + margin)), true
}

// lostBy returns what a job loses by preemption, in microseconds of GPUs: at most
// what it did, and a minute to restart.
func lostBy(j *cluster.Job, now int64) int64 {
	a := j.Live()
	return (a.Ran(cluster.Time(now)) + time.Minute).Microseconds() * int64(max(1, len(a.HeldGPUs())))
}

func (h *holding) slot(node cluster.NodeID, gpu cluster.GPUID, now int64) slot {
	if h == nil {
		return slot{node: node, gpu: gpu, free: now, cleared: now}
	}
	free := max(now, h.free)
	return slot{node: node, gpu: gpu, free: free, cleared: min(free, max(now, h.cleared)), lost: h.lost, by: h.by, kept: h.kept}
}

// due returns when a slot is available: when it is free, or when it is cleared if
// that is after latest.
func (s *slot) due(latest int64) int64 {
	if s.free <= latest {
		return s.free
	}
	return s.cleared
}

// yields returns the jobs that must be preempted for that.
func (s *slot) yields(latest int64) []*cluster.Job {
	if s.free <= latest {
		return nil
	}
	return s.by
}

// loses returns what is lost for that.
func (s *slot) loses(latest int64) int64 {
	if s.free <= latest {
		return 0
	}
	return s.lost
}

// better reports whether a check starts by latest rather than another, or loses
// less, or starts earlier.
func (c *Check) better(o *Check, latest int64) bool {
	return cmp.Or(cmp.Compare(max(latest, c.Start), max(latest, o.Start)), cmp.Compare(c.lost, o.lost), cmp.Compare(c.Start, o.Start)) < 0
}

// serves reports whether a check serves a job more than another: in time, then
// with less lost, then with fewer units, then sooner.
func (c *Check) serves(j *cluster.Job, o *Check) bool {
	in := max(c.End, j.Spec.Deadline)
	return cmp.Or(cmp.Compare(in, max(o.End, j.Spec.Deadline)), cmp.Compare(c.lost, o.lost), cmp.Compare(c.Units, o.Units), cmp.Compare(c.End, o.End)) < 0
}

// YieldsFor preempts the jobs that must make room for a job with a deadline, each
// once.
func YieldsFor(due *cluster.Job, by []*cluster.Job, asked map[cluster.JobID]struct{}) (out []dispatch.Preemption) {
	for _, j := range by {
		if _, twice := asked[j.ID]; twice {
			continue
		}
		asked[j.ID] = struct{}{}
		out = append(out, dispatch.Preemption{Job: j.ID, Attempt: j.Live().No, For: due.ID, Why: "it was promised its end by " + say.Clock(due.Spec.Deadline)})
	}
	return out
}

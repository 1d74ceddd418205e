package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Room is when quotas are expected to have room for a job.
type Room struct {
	// P50 is when that is if jobs take as long as predicted, P90 if as long as at
	// most nine in ten do, bounded by their time limits. Neither includes jobs that
	// wait for the same quota and go first.
	P50, P90 cluster.Time
	// Words says what must happen first.
	Words string
}

// LimitRoom says when the quotas that apply to a job are expected to let it start,
// by when the jobs that count against them end and by when budgets are refilled or
// use has decayed, which halves every half (0: never). gpuMilli is what the job
// takes of GPUs, in thousandths. ok is false if nothing expected makes room. Like
// Explain it serves users who ask.
func LimitRoom(snap *dispatch.Snapshot, job *cluster.Job, gpuMilli int64, half time.Duration, pol rules.Policy) (r Room, ok bool) {
	if snap.Limits == nil {
		return Room{P50: snap.Now, P90: snap.Now}, true
	}
	x := limitRoom{snap: snap, holder: accounting.WhoOf(job), milli: gpuMilli, half: half, pol: &pol}
	var times [2]int64
	for q := range times {
		x.words = nil
		ends, can := x.ends(rules.Quantile(q))
		filled, fills := x.budgets(rules.Quantile(q))
		if !can || !fills {
			return Room{}, false
		}
		times[q] = max(ends, filled)
	}
	return Room{P50: cluster.Time(times[rules.Middle]), P90: cluster.Time(max(times[rules.Middle], times[rules.Tail])), Words: strings.Join(x.words, ", and ")}, true
}

type limitRoom struct {
	snap   *dispatch.Snapshot
	holder accounting.Who
	milli  int64
	half   time.Duration
	pol    *rules.Policy
	words  []string
}

// counted is a running job that counts against a quota, and when it ends.
type counted struct {
	at    int64
	job   *cluster.Job
	milli int64 // of GPUs
}

// counting returns the running jobs that count against a quota that applies to the
// job, by when they end.
func (x *limitRoom) counting(q rules.Quantile) []counted {
	var out []counted
	for _, r := range x.snap.Running {
		if a := r.Live(); a != nil && x.snap.Limits.Together(x.holder.Holder, accounting.HolderOf(r)) {
			milli, _ := a.Rate()
			out = append(out, counted{rules.EndAt(r, a, q, int64(x.snap.Now), x.pol), r, milli})
		}
	}
	slices.SortFunc(out, func(a, b counted) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.job.ID, b.job.ID)) })
	return out
}

// ends returns when enough running jobs have ended to satisfy the limits on what is
// held at once. A replica of a service ends when somebody ends it, or is started again.
func (x *limitRoom) ends(q rules.Quantile) (int64, bool) {
	lim := x.snap.Limits.Clone()
	lim.Spend(nil)
	at, ended := int64(x.snap.Now), 0
	counting := x.counting(q)
	all := len(counting)
	counting = slices.DeleteFunc(counting, func(c counted) bool { return c.job.Spec.Service != nil })
	for lim.MayStart(x.holder, x.milli).Code != "" {
		if ended == len(counting) {
			return 0, false
		}
		l := counting[ended]
		lim.Count(accounting.HolderOf(l.job), 0, -1, -l.milli)
		at, ended = l.at, ended+1
	}
	switch {
	case ended == 1:
		x.words = append(x.words, fmt.Sprintf("job %d ends, of %d that count for it", counting[0].job.ID, all))
	case ended > 1:
		x.words = append(x.words, fmt.Sprintf("%d of the %d jobs end that count for it, job %d first", ended, all, counting[0].job.ID))
	}
	return at, true
}

// budgets returns when no budget that applies to the job is exhausted any more.
func (x *limitRoom) budgets(q rules.Quantile) (int64, bool) {
	now, ok := int64(x.snap.Now), true
	at := now
	x.snap.Limits.Overspent(x.holder.Holder, func(l *accounting.Limits, used cluster.GPUTime) {
		switch {
		case l.Period != accounting.Decaying:
			end := l.Period.End(x.snap.Now)
			at = max(at, int64(end))
			x.words = append(x.words, fmt.Sprintf("the budget is filled again when the next %s begins, at %s", l.Period, end.Std().Format("2006-01-02 15:04 MST")))
		case x.half <= 0:
			ok = false // past use counts forever
		default:
			more := int64(0)
			for _, r := range x.counting(q) {
				more += r.milli * max(0, r.at-now) / cluster.WholeGPU
			}
			halves := math.Log2(float64(int64(used)+more) / float64(l.GPUTime))
			at = max(at, now+int64(halves*float64(x.half.Microseconds()))+1_000_000)
			x.words = append(x.words, fmt.Sprintf("enough of the use has decayed, which halves in %s", x.half))
		}
	})
	return at, ok
}

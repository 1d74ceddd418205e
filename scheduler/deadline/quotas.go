package deadline

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// quotaChange is a job that begins or ends to count against quotas.
type quotaChange struct {
	at     int64
	holder accounting.Holder
	sign   int64
	milli  int64
}

// quotaDelay is why and until when a quota delays a promised job, 0 for ever.
type quotaDelay struct {
	reason cluster.Reason
	end    cluster.Time
}

// keepsQuotas refuses jobs whose deadlines plan meets, but which their quotas let
// start too late for that, or which then delay so others that were promised theirs.
func keepsQuotas(snap *dispatch.Snapshot, jobs []*cluster.Job, plan map[*cluster.Job]Check, pol *rules.Policy) *cluster.Error {
	if snap.Limits == nil || len(plan) == 0 {
		return nil
	}
	counts := func(j *cluster.Job) bool {
		return slices.ContainsFunc(jobs, func(n *cluster.Job) bool {
			return n.Spec.Deadline > 0 && snap.Limits.Together(accounting.HolderOf(n), accounting.HolderOf(j))
		})
	}
	var held, all []*cluster.Job
	for j, c := range plan {
		switch isNew := slices.Contains(jobs, j); {
		case j.Live() != nil || c.End == 0 || !counts(j):
		case isNew:
			all = append(all, j)
		default:
			held, all = append(held, j), append(all, j)
		}
	}
	var leave []quotaChange
	for _, r := range snap.Running {
		if a := r.Live(); a != nil && counts(r) {
			milli, _ := a.Rate()
			leave = append(leave, quotaChange{rules.EndAt(r, a, rules.Tail, int64(snap.Now), pol), accounting.HolderOf(r), -1, milli})
		}
	}
	now := delayed(snap, all, leave, plan, pol)
	if len(now) == 0 {
		return nil
	}
	was := delayed(snap, held, leave, plan, pol)
	for _, j := range due(all) {
		d, late := now[j]
		_, before := was[j]
		switch {
		case !late || before:
		case !slices.Contains(jobs, j):
			return cluster.Errorf(cluster.CodeInvalid, "deadline: job %d, which was promised its end by %s, would then wait for a quota (%s); ask for a later deadline",
				j.ID, say.Clock(j.Spec.Deadline), d.reason)
		case d.end == 0:
			return cluster.Errorf(cluster.CodeInvalid, "deadline %s cannot be met: %s, and nothing expected changes that", say.Clock(j.Spec.Deadline), d.reason)
		default:
			return cluster.Errorf(cluster.CodeInvalid, "deadline %s cannot be met: %s; behind what counts for that, it would end at %s; ask for that time or later, or a shorter --time",
				say.Clock(j.Spec.Deadline), d.reason, say.Clock(d.end))
		}
	}
	return nil
}

// delayed returns which of the jobs end after their deadlines if each, the earliest
// deadline first, starts when its quotas let it: once enough of what runs has left,
// and of those before it. Budgets of GPU time are not looked at.
func delayed(snap *dispatch.Snapshot, jobs []*cluster.Job, leave []quotaChange, plan map[*cluster.Job]Check, pol *rules.Policy) map[*cluster.Job]quotaDelay {
	out, changes := map[*cluster.Job]quotaDelay{}, slices.Clone(leave)
	for _, j := range due(jobs) {
		slices.SortStableFunc(changes, func(a, b quotaChange) int { return cmp.Compare(a.at, b.at) })
		lim, holder, milli := snap.Limits.Clone(), accounting.WhoOf(j), rules.LeastMilli(snap.Nodes, j, *pol)
		lim.Spend(nil)
		at, k := plan[j].Start, 0
		var why cluster.Reason
		for {
			for k < len(changes) && changes[k].at <= at {
				c := changes[k]
				lim.Count(c.holder, 0, c.sign, c.sign*c.milli)
				k++
			}
			r := lim.MayStart(holder, milli)
			if why = cmp.Or(why, r); r.Code == "" {
				break
			}
			if k == len(changes) {
				at = 0
				break
			}
			at = changes[k].at
		}
		if at == 0 {
			out[j] = quotaDelay{reason: why}
			continue
		}
		end := cluster.Time(at + int64(plan[j].End) - plan[j].Start)
		if end > j.Spec.Deadline {
			out[j] = quotaDelay{why, end}
		}
		changes = append(changes, quotaChange{at, holder.Holder, 1, milli}, quotaChange{int64(end), holder.Holder, -1, milli})
	}
	return out
}

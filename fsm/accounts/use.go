package accounts

import (
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/command"
)

// Budget identifies a quota of use in a period.
type Budget struct {
	Subject accounting.Subject
	Period  accounting.Period
}

func (d *Books) putSpent(x *accounting.Spent) {
	d.spent.Put(x.Holder, x)
	d.usedAt = 0
}

// Charge charges an ended attempt to its holder.
func (d *Books) Charge(j *cluster.Job, a *cluster.Attempt) {
	if d.rest.At().Version < command.AccountVersion || a.Started == 0 {
		return
	}
	h := accounting.HolderOf(j)
	was := d.spent.Get(h)
	if was == nil {
		was = &accounting.Spent{Holder: h, At: d.rest.At().Now}
	}
	d.putSpent(was.Add(a, j.Estimates, d.rest.At().Now, d.Policy()))
}

// settleSpent brings all charges up to now before a change of the policy that
// decays them.
func (d *Books) settleSpent(next *accounting.AccountPolicy) {
	old := d.Policy()
	if next.HalfLife == old.HalfLife {
		return
	}
	for _, x := range d.spent.Rows() {
		d.putSpent(x.Settled(d.rest.At().Now, old))
	}
}

// Held returns what a job counts for: waiting or running jobs, running jobs, and
// its GPUs in thousandths.
func Held(j *cluster.Job) (jobs, running, gpuMilli int64) {
	if j == nil || j.State.Terminal() {
		return 0, 0, 0
	}
	if a := j.Live(); a != nil {
		return 1, 1, a.HoldsMilli()
	}
	return int64(j.Count()), 0, 0
}

// Count updates the tallies of quota subjects when j replaces old.
func (d *Books) Count(old, j *cluster.Job) {
	l := d.limiter
	jobs, running, milli := Held(j)
	wj, wr, wm := Held(old)
	if jobs != wj {
		d.countUser(j.Owner.UID, int(jobs-wj))
	}
	if l == nil {
		return
	}
	h := accounting.HolderOf(j)
	if old != nil && accounting.HolderOf(old) != h {
		// The change moved it to another holder.
		l.Count(accounting.HolderOf(old), -wj, -wr, -wm)
		wj, wr, wm = 0, 0, 0
	}
	if wj != jobs || wr != running || wm != milli {
		l.Count(h, jobs-wj, running-wr, milli-wm)
	}
}

func (d *Books) countUser(uid cluster.UID, n int) {
	if d.jobsOf[uid] += n; d.jobsOf[uid] == 0 {
		delete(d.jobsOf, uid)
	}
}

// Recount rebuilds the limiter from the quotas and the jobs.
func (d *Books) Recount() {
	d.limiter, d.usedAt = nil, 0
	if d.quotas.Len() == 0 {
		return
	}
	d.limiter = accounting.NewLimiter(d.accounts.Rows(), d.quotas.Rows(), d.Used)
	for _, j := range d.rest.Unended() {
		jobs, running, milli := Held(j)
		d.limiter.Count(accounting.HolderOf(j), jobs, running, milli)
	}
}

// MaySubmit refuses jobs that exceed a quota, and those whose account was removed
// meanwhile.
func (d *Books) MaySubmit(jobs []*cluster.Job) *cluster.Error {
	count := map[accounting.Holder]int{}
	for _, j := range jobs {
		h := accounting.HolderOf(j)
		if count[h] += j.Spec.Len(); count[h] > j.Spec.Len() {
			continue
		}
		if d.accounts.Len() > 0 && h.Account != "" && d.accounts.Get(h.Account) == nil {
			return cluster.Errorf(cluster.CodeInvalid, "%s: account %q is not known; see: berth account list", cluster.WordsNoAccount, h.Account)
		}
		if d.qos.Len() > 0 && h.QOS != "" && d.qos.Get(h.QOS) == nil {
			return cluster.Errorf(cluster.CodeInvalid, "%s: %q is not known; see: berth qos list", cluster.WordsNoQOS, h.QOS)
		}
	}
	if d.limiter == nil {
		return nil
	}
	var refused *cluster.Error
	var counted []accounting.Holder
	for _, j := range jobs { // in order, so that all replicas refuse for the same reason
		h := accounting.HolderOf(j)
		if slices.Contains(counted, h) {
			continue
		}
		if r := d.limiter.MaySubmit(accounting.WhoOf(j), count[h]); r.Code != "" {
			refused = cluster.Errorf(cluster.CodeExhausted, "%s", r)
			break
		}
		// Jobs of one request may belong to several holders under one quota.
		d.limiter.Count(h, int64(count[h]), 0, 0)
		counted = append(counted, h)
	}
	for _, h := range counted {
		d.limiter.Count(h, -int64(count[h]), 0, 0)
	}
	return refused
}

// OverQuota returns the quota that a start would exceed, given the GPUs in a
// ledger.
func (d *Books) OverQuota(j *cluster.Job, led *dispatch.Ledger, st *dispatch.Start) cluster.Reason {
	if d.limiter == nil {
		return cluster.Reason{}
	}
	return d.limiter.MayStart(accounting.WhoOf(j), led.HeldMilli(st.AllGPUs()))
}

// OverGrown returns the quota that a running job of a holder would exceed with
// gpuMilli more thousandths of GPUs.
func (d *Books) OverGrown(h accounting.Who, gpuMilli int64) cluster.Reason {
	if d.limiter == nil {
		return cluster.Reason{}
	}
	return d.limiter.MayGrow(h, gpuMilli)
}

// Used returns what counts against a budget, including running attempts.
func (d *Books) Used(sub accounting.Subject, period accounting.Period) cluster.GPUTime {
	if d.usedAt != d.rest.At().Index || d.used == nil {
		d.used, d.usedAt = d.budgets(d.limiter, d.rest.At().Now), d.rest.At().Index
	}
	return d.used[Budget{sub, period}]
}

// budgets returns what counts against each budget at now.
func (d *Books) budgets(l *accounting.Limiter, now cluster.Time) map[Budget]cluster.GPUTime {
	out := map[Budget]cluster.GPUTime{}
	if l == nil || !l.HasBudgets() {
		return out
	}
	p := d.Policy()
	for h, x := range d.spent.Rows() {
		l.Budgets(h, func(sub accounting.Subject, period accounting.Period) {
			out[Budget{sub, period}] += x.Used(period, now, p)
		})
	}
	for _, j := range d.rest.Live() {
		a := j.Live()
		if a == nil {
			continue
		}
		l.Budgets(accounting.HolderOf(j), func(sub accounting.Subject, period accounting.Period) {
			if period == accounting.Decaying {
				out[Budget{sub, period}] += accounting.LeftOf(a, j.Estimates, now, p)
			} else {
				out[Budget{sub, period}] += accounting.CostOf(a, j.Estimates, now, p)
			}
		})
	}
	return out
}

// Limits returns a copy of the limiter for a pass at now, nil without quotas.
func (d *Books) Limits(now cluster.Time) *accounting.Limiter {
	l := d.limiter.Clone() // readers share the state's own
	if l == nil {
		return nil
	}
	used := d.budgets(l, now)
	l.Spend(func(sub accounting.Subject, period accounting.Period) cluster.GPUTime {
		return used[Budget{sub, period}]
	})
	return l
}

// ForPass returns what a pass needs from qualities of service, nil for nothing.
func (d *rules) ForPass() *accounting.Standing {
	if d.qos.Len() == 0 {
		return nil
	}
	return &accounting.Standing{QOS: maps.Clone(d.qos.Rows())}
}

// EndsForGood reports whether a preempted job is not requeued: its QOS says so, and
// it was preempted for a job, returned by find, that may end it.
func (d *Books) EndsForGood(j *cluster.Job, a *cluster.Attempt, find func(cluster.JobID) *cluster.Job) bool {
	q := d.qos.Get(j.Spec.QOS)
	if q == nil || !q.Cancel || a.Preempt == nil || a.Preempt.Requeue {
		return false
	}
	by := find(a.Preempt.For)
	return by != nil && (&accounting.Standing{QOS: d.qos.Rows()}).MayPreempt(by, j)
}

// MayCharge refuses to charge a job to an account and a QOS without room for it, as
// a submission there would be.
func (d *Books) MayCharge(old, j *cluster.Job) *cluster.Error {
	if d.rest.At().Version < command.ChargeVersion || accounting.HolderOf(old) == accounting.HolderOf(j) {
		return nil
	}
	if l := d.limiter; l != nil {
		// Tallies common to both holders already include it.
		n, running, milli := Held(old)
		l.Count(accounting.HolderOf(old), -n, -running, -milli)
		defer l.Count(accounting.HolderOf(old), n, running, milli)
	}
	return d.MaySubmit([]*cluster.Job{j})
}

// Budgets recomputes what counts against each budget.
func (d *Books) Budgets() map[Budget]cluster.GPUTime {
	return d.budgets(accounting.NewLimiter(d.accounts.Rows(), d.quotas.Rows(), nil), d.rest.At().Now)
}

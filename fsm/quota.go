package fsm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

func cutKey(key string) (before, after string, found bool) { return strings.Cut(key, "/") }

// findQuota returns the quota whose subject reads so.
func (d *standing) findQuota(subject string) conv.Ruling {
	sub := cluster.Subject{}
	for part := range strings.SplitSeq(subject, "/") {
		kind, name, _ := strings.Cut(part, ":")
		switch kind {
		case "account":
			sub.Account = name
		case "qos":
			sub.QOS = name
		case "each-user":
			sub.Each = true
		case "user":
			n, _ := strconv.ParseUint(name, 10, 32)
			sub.User, sub.UID = true, cluster.UID(n)
		}
	}
	return d.find(&cluster.Quota{Subject: sub})
}

// holderKey is the stored key of what a holder was charged; names hold no slash.
func holderKey(h cluster.Holder) string { return fmt.Sprintf("%s/%s/%d", h.Account, h.QOS, h.UID) }

func (d *standing) spentRecord(key string) proto.Message {
	account, rest, _ := strings.Cut(key, "/")
	qos, uid, _ := strings.Cut(rest, "/")
	n, _ := strconv.ParseUint(uid, 10, 32)
	if x := d.spent[cluster.Holder{Account: account, QOS: qos, UID: cluster.UID(n)}]; x != nil {
		return conv.SpentToLog(x)
	}
	return nil
}

func (s *State) loadStanding(m *logv1.Standing) error {
	r, err := conv.RulingFromLog(m)
	if err != nil {
		return err
	}
	if s.standing.find(r) != nil {
		return fmt.Errorf("%s appears twice", wordsOf(r))
	}
	s.putRuling(r)
	return nil
}

func (s *State) loadSpent(m *logv1.Spent) error {
	x, err := conv.SpentFromLog(m)
	if err != nil {
		return err
	}
	if s.standing.spent[x.Holder] != nil {
		return errors.New("use of a holder appears twice")
	}
	s.putSpent(x)
	return nil
}

func (s *State) putSpent(x *cluster.Spent) {
	s.standing.spent[x.Holder] = x
	s.standing.usedAt = 0
	s.hash.rest.touch(entity{kindSpent, holderKey(x.Holder)})
}

// charge puts the end of an attempt on its holder's account.
func (s *State) charge(j *cluster.Job, a *cluster.Attempt) {
	if s.rules < accountVersion || a.Started == 0 {
		return
	}
	h := cluster.HolderOf(j)
	was := s.standing.spent[h]
	if was == nil {
		was = &cluster.Spent{Holder: h, At: s.now}
	}
	s.putSpent(was.Add(a, s.now, s.standing.policyOf()))
}

// settleSpent brings all that was charged to now before a policy changes by
// which it decays.
func (s *State) settleSpent(next *cluster.AccountPolicy) {
	old := s.standing.policyOf()
	if next.HalfLife == old.HalfLife {
		return
	}
	for _, x := range s.standing.spent {
		s.putSpent(x.Settled(s.now, old))
	}
}

// unended returns the jobs that wait or run.
func (s *State) unended() []*cluster.Job {
	return s.inStates(cluster.JobPending, cluster.JobQueued, cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable)
}

// held is what a job counts for: whether it waits or runs, runs, and what it
// holds of GPUs in thousandths.
func held(j *cluster.Job) (jobs, running, gpuMilli int64) {
	if j == nil || j.State.Terminal() {
		return 0, 0, 0
	}
	if a := j.Live(); a != nil {
		gpuMilli, _ = a.Rate()
		return 1, 1, gpuMilli
	}
	return int64(j.Count()), 0, 0
}

// count keeps what subjects of quotas have when j takes the place of old.
func (s *State) count(old, j *cluster.Job) {
	l := s.standing.limiter
	jobs, running, milli := held(j)
	wj, wr, wm := held(old)
	if jobs != wj {
		s.standing.countUser(j.Owner.UID, int(jobs-wj))
	}
	if l == nil {
		return
	}
	h := cluster.HolderOf(j)
	if old != nil && cluster.HolderOf(old) != h {
		// It was changed to be charged to another one.
		l.Count(cluster.HolderOf(old), -wj, -wr, -wm)
		wj, wr, wm = 0, 0, 0
	}
	if wj != jobs || wr != running || wm != milli {
		l.Count(h, jobs-wj, running-wr, milli-wm)
	}
}

func (d *standing) countUser(uid cluster.UID, n int) {
	if d.jobsOf[uid] += n; d.jobsOf[uid] == 0 {
		delete(d.jobsOf, uid)
	}
}

// recount makes the limiter from the quotas and the jobs.
func (s *State) recount() {
	d := &s.standing
	d.limiter, d.usedAt = nil, 0
	if len(d.quotas) == 0 {
		return
	}
	d.limiter = cluster.NewLimiter(d.accounts, d.quotas, s.spentOf)
	for _, j := range s.unended() {
		jobs, running, milli := held(j)
		d.limiter.Count(cluster.HolderOf(j), jobs, running, milli)
	}
}

// maySubmit refuses jobs that a quota has no room for, and those whose account
// was removed meanwhile.
func (s *State) maySubmit(jobs []*cluster.Job) *cluster.Error {
	d := &s.standing
	count := map[cluster.Holder]int{}
	for _, j := range jobs {
		h := cluster.HolderOf(j)
		if count[h] += j.Spec.Len(); count[h] > j.Spec.Len() {
			continue
		}
		if len(d.accounts) > 0 && h.Account != "" && d.accounts[h.Account] == nil {
			return cluster.Errorf(cluster.CodeInvalid, "%s: account %q is not known; see: berth account list", cluster.WordsNoAccount, h.Account)
		}
		if len(d.qos) > 0 && h.QOS != "" && d.qos[h.QOS] == nil {
			return cluster.Errorf(cluster.CodeInvalid, "%s: %q is not known; see: berth qos list", cluster.WordsNoQOS, h.QOS)
		}
	}
	if d.limiter == nil {
		return nil
	}
	var refused *cluster.Error
	var counted []cluster.Holder
	for _, j := range jobs { // in order, so that all replicas refuse for the same
		h := cluster.HolderOf(j)
		if slices.Contains(counted, h) {
			continue
		}
		if r := d.limiter.MaySubmit(h, count[h]); r.Code != "" {
			refused = cluster.Errorf(cluster.CodeExhausted, "%s", r)
			break
		}
		// Jobs of one request may be of several holders under one quota.
		d.limiter.Count(h, int64(count[h]), 0, 0)
		counted = append(counted, h)
	}
	for _, h := range counted {
		d.limiter.Count(h, -int64(count[h]), 0, 0)
	}
	return refused
}

// overQuota tells which quota a start would break.
func (s *State) overQuota(j *cluster.Job, st *cluster.Start) cluster.Reason {
	if s.standing.limiter == nil {
		return cluster.Reason{}
	}
	return s.standing.limiter.MayStart(cluster.HolderOf(j), cluster.HeldMilli(st.AllGPUs(), s.sellable))
}

// spentOf is what counts against a budget, what runs included.
func (s *State) spentOf(sub cluster.Subject, period cluster.Period) cluster.GPUTime {
	d := &s.standing
	if d.usedAt != s.index || d.used == nil {
		d.used, d.usedAt = s.budgets(d.limiter, s.now), s.index
	}
	return d.used[budgetKey{sub, period}]
}

// budgets sums what counts against each budget at a time.
func (s *State) budgets(l *cluster.Limiter, now cluster.Time) map[budgetKey]cluster.GPUTime {
	d, out := &s.standing, map[budgetKey]cluster.GPUTime{}
	if l == nil || !l.HasBudgets() {
		return out
	}
	p := d.policyOf()
	for h, x := range d.spent {
		l.Budgets(h, func(sub cluster.Subject, period cluster.Period) {
			out[budgetKey{sub, period}] += x.Used(period, now, p)
		})
	}
	for _, j := range s.inStates(cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable) {
		a := j.Live()
		if a == nil {
			continue
		}
		l.Budgets(cluster.HolderOf(j), func(sub cluster.Subject, period cluster.Period) {
			if period == cluster.Decaying {
				out[budgetKey{sub, period}] += cluster.LeftOf(a, now, p)
			} else {
				out[budgetKey{sub, period}] += cluster.CostOf(a, now, p)
			}
		})
	}
	return out
}

// limits is a copy of the limiter for a pass at a time, nil without quotas.
func (s *State) limits(now cluster.Time) *cluster.Limiter {
	l := s.standing.limiter.Clone() // readers share the state's own
	if l == nil {
		return nil
	}
	used := s.budgets(l, now)
	l.Spend(func(sub cluster.Subject, period cluster.Period) cluster.GPUTime { return used[budgetKey{sub, period}] })
	return l
}

// forPass is what a pass takes from qualities of service, nil for nothing.
func (d *standing) forPass() *cluster.Standing {
	if len(d.qos) == 0 {
		return nil
	}
	return &cluster.Standing{QOS: maps.Clone(d.qos)}
}

// endsForGood tells whether a job that made room does not wait again: its QOS
// says so, and it was for one that may end it.
func (s *State) endsForGood(j *cluster.Job, a *cluster.Attempt) bool {
	q, by := s.standing.qos[j.Spec.QOS], (*cluster.Job)(nil)
	if q == nil || !q.Cancel || a.Preempt == nil || a.Preempt.Requeue {
		return false
	}
	by = s.jobs.get(a.Preempt.For)
	return by != nil && (&cluster.Standing{QOS: s.standing.qos}).MayPreempt(by, j)
}

// Standing is what there is of accounts, and what of them is used.
type Standing struct {
	Policy   cluster.AccountPolicy
	Accounts map[string]*cluster.Account
	Members  map[cluster.Assoc]*cluster.Member
	QOS      map[string]*cluster.QOS
	Quotas   map[cluster.Subject]*cluster.Quota
	Spent    map[cluster.Holder]*cluster.Spent
	// Live are the jobs with an attempt, Waiting counts the others by holder.
	Live []*cluster.Job
	Now  cluster.Time
	// Limits is a copy, nil without quotas.
	Limits *cluster.Limiter
}

// Standing returns a copy of what there is of accounts as of a time, when that is
// later than the last entry.
func (f *FSM) Standing(now cluster.Time) *Standing {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s, d := f.st, &f.st.standing
	now = max(now, s.now)
	return &Standing{
		Policy: *d.policyOf(), Accounts: maps.Clone(d.accounts), Members: maps.Clone(d.members), QOS: maps.Clone(d.qos), Quotas: maps.Clone(d.quotas),
		Spent: maps.Clone(d.spent), Now: now, Limits: s.limits(now),
		Live: s.inStates(cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable),
	}
}

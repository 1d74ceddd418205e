package accounting

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/berth-scheduler/berth/cluster"
)

// Tally is the current use of a subject.
type Tally struct {
	// Jobs wait or run, Running run.
	Jobs, Running int64
	// GPUMilli is the GPUs that they hold.
	GPUMilli int64
}

func (t *Tally) zero() bool { return *t == Tally{} }

// Limiter checks jobs against the quotas of a cluster. The state machine keeps one,
// and the scheduler works on a copy of it during a pass, so that both agree. It is
// not safe for concurrent use.
type Limiter struct {
	accounts map[string]*Account
	quotas   map[Subject]*Quota
	tallies  map[Subject]*Tally
	bounds   map[Holder][]bound
	// spent returns the use that counts against a budget; it is called rarely.
	spent func(Subject, Period) cluster.GPUTime
}

// bound is one quota that applies to a holder.
type bound struct {
	limits  Limits
	subject Subject // the subject of the tally
	tally   *Tally
}

// NewLimiter returns a limiter for quotas; neither map may change while it is used.
// spent returns the use of a subject in the current period; it may be nil if no
// quota has a budget.
func NewLimiter(accounts map[string]*Account, quotas map[Subject]*Quota, spent func(Subject, Period) cluster.GPUTime) *Limiter {
	return &Limiter{accounts: accounts, quotas: quotas, tallies: map[Subject]*Tally{}, bounds: map[Holder][]bound{}, spent: spent}
}

// Spend replaces the function that returns the use of a subject.
func (l *Limiter) Spend(spent func(Subject, Period) cluster.GPUTime) { l.spent = spent }

// Clone returns a copy for a pass, nil for nil. It may run concurrently with other
// calls of Clone; budgets are read as l reads them until Spend is called.
func (l *Limiter) Clone() *Limiter {
	if l == nil {
		return nil
	}
	c := NewLimiter(maps.Clone(l.accounts), maps.Clone(l.quotas), l.spent)
	for s, t := range l.tallies {
		c.tallies[s] = new(*t)
	}
	return c
}

// of returns the quotas that apply to a holder.
func (l *Limiter) of(h Holder) []bound {
	if b, ok := l.bounds[h]; ok {
		return b
	}
	var out []bound
	add := func(lim Limits, s Subject) {
		if lim.Zero() {
			return
		}
		t := l.tallies[s]
		if t == nil {
			t = &Tally{}
			l.tallies[s] = t
		}
		out = append(out, bound{lim, s, t})
	}
	one := func(s, each Subject) Limits {
		var lim Limits
		if q := l.quotas[s]; q != nil {
			lim = q.Limits
		}
		if q := l.quotas[each]; q != nil {
			lim = lim.over(&q.Limits)
		}
		return lim
	}
	user := Subject{User: true, UID: h.UID}
	add(one(user, Subject{Each: true}), user)
	if h.Account != "" {
		user.Account = h.Account
		add(one(user, Subject{Account: h.Account, Each: true}), user)
	}
	for name, depth := h.Account, 0; name != "" && depth <= MaxAccountDepth; depth++ {
		s := Subject{Account: name}
		if q := l.quotas[s]; q != nil {
			add(q.Limits, s)
		}
		a := l.accounts[name]
		if a == nil {
			break
		}
		name = a.Parent
	}
	if h.QOS != "" {
		s := Subject{QOS: h.QOS}
		if q := l.quotas[s]; q != nil {
			add(q.Limits, s)
		}
		if q := l.quotas[Subject{QOS: h.QOS, Each: true}]; q != nil {
			add(q.Limits, Subject{QOS: h.QOS, User: true, UID: h.UID})
		}
	}
	l.bounds[h] = out
	return out
}

// Budgets calls fn for each budget that a holder's use counts against.
func (l *Limiter) Budgets(h Holder, fn func(Subject, Period)) {
	for _, b := range l.of(h) {
		if b.limits.GPUTime > 0 {
			fn(b.subject, b.limits.Period)
		}
	}
}

// Overspent calls fn for each exhausted budget of a holder, with its limits and the
// use.
func (l *Limiter) Overspent(h Holder, fn func(*Limits, cluster.GPUTime)) {
	for _, b := range l.of(h) {
		if used := l.Spent(b.subject, b.limits.Period); b.limits.GPUTime > 0 && used >= b.limits.GPUTime {
			fn(&b.limits, used)
		}
	}
}

// Together reports whether some quota counts jobs of both holders together.
func (l *Limiter) Together(a, b Holder) bool {
	for _, x := range l.of(a) {
		for _, y := range l.of(b) {
			if x.subject == y.subject {
				return true
			}
		}
	}
	return false
}

// HasBudgets reports whether any quota has a budget.
func (l *Limiter) HasBudgets() bool {
	for _, q := range l.quotas {
		if q.Limits.GPUTime > 0 {
			return true
		}
	}
	return false
}

// Count adds to a holder's use, or subtracts from it if negative.
func (l *Limiter) Count(h Holder, jobs, running, gpuMilli int64) {
	for _, b := range l.of(h) {
		b.tally.Jobs += jobs
		b.tally.Running += running
		b.tally.GPUMilli += gpuMilli
	}
}

// Tally returns the current use of a subject that has a quota.
func (l *Limiter) Tally(s Subject) Tally {
	if t := l.tallies[s]; t != nil {
		return *t
	}
	return Tally{}
}

// Spent returns what counts against a subject's budget.
func (l *Limiter) Spent(s Subject, p Period) cluster.GPUTime {
	if l.spent == nil {
		return 0
	}
	return l.spent(s, p)
}

// Used returns the subjects whose use is not zero.
func (l *Limiter) Used() map[Subject]Tally {
	out := map[Subject]Tally{}
	for s, t := range l.tallies {
		if !t.zero() {
			out[s] = *t
		}
	}
	return out
}

// MayStart returns why a job of a holder that takes gpuMilli thousandths of GPUs
// may not start now: the limit, its value and the use. The zero Reason means that
// it may.
func (l *Limiter) MayStart(h Who, gpuMilli int64) cluster.Reason {
	return l.mayTake(h, gpuMilli, false)
}

// MayGrow returns why a running job of a holder may not take that much more of
// GPUs.
func (l *Limiter) MayGrow(h Who, gpuMilli int64) cluster.Reason {
	return l.mayTake(h, gpuMilli, true)
}

func (l *Limiter) mayTake(h Who, gpuMilli int64, grows bool) cluster.Reason {
	for _, b := range l.of(h.Holder) {
		switch lim := &b.limits; {
		case !grows && lim.Running > 0 && b.tally.Running >= lim.Running:
			return cluster.Reason{Code: b.code("Running"), Detail: fmt.Sprintf("%s may run %s at once, and %d run", b.who(h.Name), plural(lim.Running, "job"), b.tally.Running)}
		case lim.GPUMilli > 0 && gpuMilli > 0 && b.tally.GPUMilli+gpuMilli > lim.GPUMilli:
			return cluster.Reason{Code: b.code("GPUs"), Detail: fmt.Sprintf("%s may hold %s at once and holds %s; this job takes %s", b.who(h.Name), gpusOf(lim.GPUMilli), Milli(b.tally.GPUMilli), Milli(gpuMilli))}
		case lim.GPUTime > 0 && l.spent != nil:
			if used := l.spent(b.subject, lim.Period); used >= lim.GPUTime {
				return cluster.Reason{Code: b.code("Budget"), Detail: fmt.Sprintf("%s may use %s, and %s are used", b.who(h.Name), budget(lim), hours(used))}
			}
		}
	}
	return cluster.Reason{}
}

// MostGPUs returns how many GPUs one job of a holder may have on all of its nodes,
// 0 for any number.
func (l *Limiter) MostGPUs(h Holder) (n int64) {
	for _, b := range l.of(h) {
		if lim := b.limits.MaxGPUs; lim > 0 && (n == 0 || lim < n) {
			n = lim
		}
	}
	return n
}

// MaySubmit returns why n more jobs of a holder may not be submitted now.
func (l *Limiter) MaySubmit(h Who, n int) cluster.Reason {
	for _, b := range l.of(h.Holder) {
		if lim := b.limits.Jobs; lim > 0 && b.tally.Jobs+int64(n) > lim {
			return cluster.Reason{Code: b.code("Jobs"), Detail: fmt.Sprintf("%s may have %s waiting or running and has %d; %d more are asked for", b.who(h.Name), plural(lim, "job"), b.tally.Jobs, n)}
		}
	}
	return cluster.Reason{}
}

// Enter checks a job's spec against the per-job limits of its holder, and sets the
// time limit of a job without one to the highest allowed.
func (l *Limiter) Enter(h Who, s *cluster.Spec) cluster.Reason {
	gpus := int64(s.GPUs * s.NodeCount())
	for _, b := range l.of(h.Holder) {
		lim := &b.limits
		if lim.MaxTime > 0 && s.TimeLimit == 0 {
			s.TimeLimit = lim.MaxTime
		}
		least := gpus * max(1, s.GPUMilli)
		if s.Exclusive {
			least = gpus * cluster.WholeGPU
		}
		cost := cluster.GPUTime(0)
		if s.Exclusive {
			cost = cluster.GPUTime(gpus) * cluster.GPUTimeOf(s.TimeLimit)
		}
		switch {
		case lim.MaxTime > 0 && s.TimeLimit > lim.MaxTime:
			return cluster.Reason{Code: b.code("Time"), Detail: fmt.Sprintf("%s may ask for %s, and %s are asked for; give a shorter --time", b.jobsOf(h.Name), cluster.TimeText(lim.MaxTime), cluster.TimeText(s.TimeLimit))}
		case lim.MaxGPUs > 0 && gpus > lim.MaxGPUs:
			return cluster.Reason{Code: b.code("JobGPUs"), Detail: fmt.Sprintf("%s may ask for %s, and %d are asked for", b.jobsOf(h.Name), plural(lim.MaxGPUs, "GPU"), gpus)}
		case lim.GPUMilli > 0 && gpus > 0 && least > lim.GPUMilli:
			return cluster.Reason{Code: b.code("GPUs"), Detail: fmt.Sprintf("%s may hold %s at once and holds %s; this job alone would take %s", b.who(h.Name), gpusOf(lim.GPUMilli), Milli(b.tally.GPUMilli), Milli(least))}
		case lim.GPUTime > 0 && cost > lim.GPUTime:
			return cluster.Reason{Code: b.code("Budget"), Detail: fmt.Sprintf("%s may use %s, and %s are used; this job alone may use %s; give a shorter --time", b.who(h.Name), budget(lim), hours(l.Spent(b.subject, lim.Period)), hours(cost))}
		}
	}
	return cluster.Reason{}
}

// who names the subject within a sentence; user is the name of its user, if known.
func (b *bound) who(user string) string {
	s := b.subject
	user = "user " + cmp.Or(user, fmt.Sprint(s.UID))
	switch {
	case s.User && s.Account != "":
		return user + " in account " + s.Account
	case s.User && s.QOS != "":
		return user + " in qos " + s.QOS
	case s.User:
		return user
	case s.QOS != "":
		return "qos " + s.QOS
	}
	return "account " + s.Account
}

func (b *bound) jobsOf(user string) string { return "each job of " + b.who(user) }

// code returns Slurm's name of the limit.
func (b *bound) code(limit string) cluster.ReasonCode {
	class := 0
	switch {
	case b.subject.QOS != "" && b.subject.User:
		class = 3
	case b.subject.QOS != "":
		class = 2
	case b.subject.User:
		class = 1
	}
	return limitCodes[limit][class]
}

// limitCodes are Slurm's names for a limit of an account, of a user, of a QOS, and
// of each user of one.
var limitCodes = map[string][4]cluster.ReasonCode{
	"GPUs":    {"AssocGrpGRES", "AssocGrpGRES", "QOSGrpGRES", "QOSMaxGRESPerUser"},
	"Running": {"AssocGrpJobsLimit", "AssocMaxJobsLimit", "QOSGrpJobsLimit", "QOSMaxJobsPerUserLimit"},
	"Jobs":    {"AssocGrpSubmitJobsLimit", "AssocMaxSubmitJobLimit", "QOSGrpSubmitJobsLimit", "QOSMaxSubmitJobPerUserLimit"},
	"Budget":  {"AssocGrpGRESMinutes", "AssocGrpGRESMinutes", "QOSGrpGRESMinutes", "QOSMaxGRESMinutesPerJob"},
	"Time":    {"AssocMaxWallDurationPerJobLimit", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"},
	"JobGPUs": {"AssocMaxGRESPerJob", "AssocMaxGRESPerJob", "QOSMaxGRESPerJob", "QOSMaxGRESPerJob"},
}

// LimitReason reports whether c means that a job waits for a quota.
func LimitReason(c cluster.ReasonCode) bool {
	for _, codes := range limitCodes {
		for _, x := range codes {
			if c == x {
				return true
			}
		}
	}
	return false
}

// Milli formats thousandths: 2, 0.5, 7.125.
func Milli(n int64) string {
	out := fmt.Sprintf("%d.%03d", n/1000, n%1000)
	for out[len(out)-1] == '0' {
		out = out[:len(out)-1]
	}
	if out[len(out)-1] == '.' {
		out = out[:len(out)-1]
	}
	return out
}

// gpusOf says how many GPUs n thousandths are.
func gpusOf(n int64) string {
	if n == cluster.WholeGPU {
		return "1 GPU"
	}
	return Milli(n) + " GPUs"
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func hours(d cluster.GPUTime) string { return fmt.Sprintf("%.1f GPU-hours", d.Hours()) }

func budget(l *Limits) string {
	if l.Period == Decaying {
		return hours(l.GPUTime) + " that have not decayed"
	}
	return hours(l.GPUTime) + " a " + string(l.Period)
}

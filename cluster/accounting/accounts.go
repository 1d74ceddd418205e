// Package accounting defines what jobs are charged to and limited by: accounts,
// QOS, quotas and their tallies, usage, and fair shares of it. It builds on the
// types of package cluster.
package accounting

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-scheduler/berth/cluster"
)

// Bounds of accounts.
const (
	MaxAccounts     = 10_000
	MaxMembers      = 100_000
	MaxQOS          = 100
	MaxQuotas       = 100_000
	MaxShares       = 1_000_000
	MaxAccountDepth = 16
	// MaxPriority bounds QOS.Priority: each value is a class of its own.
	MaxPriority = 100
)

// Account is an account that jobs are charged to. Accounts form a tree. Values are
// immutable.
type Account struct {
	Name string
	// Parent is "" at the top of the tree.
	Parent   string
	Revision uint64
	// Shares is its claim relative to the others with the same parent.
	Shares int64
	// QOS lists the qualities of service that its jobs may have, sorted; empty
	// means those of the parent, at the top all. DefaultQOS is that of a job that
	// names none, "" the parent's.
	QOS        []string
	DefaultQOS string
}

// Check reports whether a is valid.
func (a *Account) Check() error {
	if err := cluster.CheckAccountName(a.Name); err != nil {
		return err
	}
	if a.Parent != "" {
		if err := cluster.CheckAccountName(a.Parent); err != nil {
			return err
		}
	}
	if a.Shares < 1 || a.Shares > MaxShares {
		return cluster.Errorf(cluster.CodeInvalid, "shares: %d is outside 1 to %d", a.Shares, MaxShares)
	}
	for i, q := range a.QOS {
		if err := cluster.CheckQOSName(q); err != nil {
			return err
		}
		if i > 0 && a.QOS[i-1] >= q {
			return cluster.Errorf(cluster.CodeInvalid, "qos: %s is named twice, or they are not sorted", q)
		}
	}
	if a.DefaultQOS != "" {
		return cluster.CheckQOSName(a.DefaultQOS)
	}
	return nil
}

// Member is a user of an account.
type Member struct {
	Account string
	UID     cluster.UID
	// Name is the user's name, for display.
	Name     string
	Revision uint64
	// Shares is the user's claim relative to the other users of the account.
	Shares int64
	// Default means that jobs that name no account are charged to this one; a user
	// has one such account.
	Default bool
	// Coordinator may set the quotas of the account's users.
	Coordinator bool
}

// Check reports whether m is valid.
func (m *Member) Check() error {
	if err := cluster.CheckAccountName(m.Account); err != nil {
		return err
	}
	if len(m.Name) > cluster.MaxNameLen {
		return cluster.Errorf(cluster.CodeInvalid, "user %s: at most %d bytes are allowed", cluster.QuoteShort(m.Name), cluster.MaxNameLen)
	}
	if m.Shares < 1 || m.Shares > MaxShares {
		return cluster.Errorf(cluster.CodeInvalid, "shares: %d is outside 1 to %d", m.Shares, MaxShares)
	}
	return nil
}

// QOS is a quality of service: the priority of jobs and which others they may
// preempt.
type QOS struct {
	Name     string
	Revision uint64
	// Priority puts its jobs before all those of a lower one, 0 to MaxPriority;
	// jobs without a QOS have 0.
	Priority int64
	// Preempts lists the QOS whose jobs its jobs may preempt, sorted.
	Preempts []string
	// Grace is the time after SIGTERM for a preempted job of this QOS, unless its
	// checkpoint hook says otherwise; 0 is the node's default.
	Grace time.Duration
	// Cancel ends preempted jobs of this QOS for good; otherwise they are requeued.
	Cancel bool
	// Default marks the QOS of jobs that name none where no account says otherwise.
	// At most one is the default.
	Default bool
}

// Check reports whether q is valid.
func (q *QOS) Check() error {
	if err := cluster.CheckQOSName(q.Name); err != nil {
		return err
	}
	if q.Priority < 0 || q.Priority > MaxPriority {
		return cluster.Errorf(cluster.CodeInvalid, "priority: %d is outside 0 to %d", q.Priority, MaxPriority)
	}
	if q.Grace < 0 || q.Grace > cluster.MaxCheckpointGrace {
		return cluster.Errorf(cluster.CodeInvalid, "grace: %s is outside 0 to %s", cluster.TimeText(q.Grace), cluster.TimeText(cluster.MaxCheckpointGrace))
	}
	for i, o := range q.Preempts {
		switch {
		case o == q.Name:
			return cluster.Errorf(cluster.CodeInvalid, "preempts: %s names itself; jobs of one QOS go by their order", o)
		case cluster.CheckQOSName(o) != nil:
			return cluster.CheckQOSName(o)
		case i > 0 && q.Preempts[i-1] >= o:
			return cluster.Errorf(cluster.CodeInvalid, "preempts: %s is named twice, or they are not sorted", o)
		}
	}
	return nil
}

// AccountPolicy holds the settings common to all accounts.
type AccountPolicy struct {
	Revision uint64
	// HalfLife is the time after which past use counts half; 0 means that it does
	// not decay.
	HalfLife time.Duration
	// CoreMicro is the cost of a core relative to a GPU, in millionths, for jobs
	// without GPUs.
	CoreMicro int64
	// Require refuses jobs of users without an account once any account exists.
	Require bool
	// GPUWeights are the relative costs of GPU types, sorted by type; a missing
	// type has weight one. It is not changed in place.
	GPUWeights []GPUWeight
	// BySpeed charges a job by what its own time on a GPU is worth, where that is
	// predicted; see weight.
	BySpeed bool
}

// GPUWeight is the cost of an hour of a whole GPU of a type, in thousandths of one
// of weight one.
type GPUWeight struct {
	GPUType string
	Milli   int64
}

// Bounds of AccountPolicy.GPUWeights.
const (
	MaxGPUWeights = 256
	maxGPUWeight  = 1_000_000 // thousandths
)

// WeightMilli returns the weight of a GPU type in thousandths.
func (p *AccountPolicy) WeightMilli(gpuType string) int64 {
	i, ok := slices.BinarySearchFunc(p.GPUWeights, gpuType, func(w GPUWeight, t string) int { return strings.Compare(w.GPUType, t) })
	if !ok {
		return cluster.WholeGPU
	}
	return p.GPUWeights[i].Milli
}

func (p *AccountPolicy) checkWeights() error {
	if n := len(p.GPUWeights); n > MaxGPUWeights {
		return cluster.Errorf(cluster.CodeInvalid, "gpu weights: %d of them, at most %d are allowed", n, MaxGPUWeights)
	}
	for i, w := range p.GPUWeights {
		switch {
		case w.GPUType == "" || len(w.GPUType) > cluster.MaxNameLen || !utf8.ValidString(w.GPUType):
			return cluster.Errorf(cluster.CodeInvalid, "gpu weights: %s must have 1 to %d characters", cluster.QuoteShort(w.GPUType), cluster.MaxNameLen)
		case w.Milli < 0 || w.Milli > maxGPUWeight:
			return cluster.Errorf(cluster.CodeInvalid, "gpu weights: %s has %d thousandths, outside 0 to %d", cluster.QuoteShort(w.GPUType), w.Milli, maxGPUWeight)
		case i > 0 && p.GPUWeights[i-1].GPUType >= w.GPUType:
			return cluster.Errorf(cluster.CodeInvalid, "gpu weights: %s is out of order, or named twice", cluster.QuoteShort(w.GPUType))
		}
	}
	return nil
}

// DefaultAccountPolicy returns the policy of a cluster that set none.
func DefaultAccountPolicy() AccountPolicy {
	return AccountPolicy{HalfLife: 7 * 24 * time.Hour, CoreMicro: 20_000}
}

// Check reports whether p is valid.
func (p *AccountPolicy) Check() error {
	switch {
	case p.HalfLife != 0 && (p.HalfLife < time.Minute || p.HalfLife > 10*365*24*time.Hour):
		return cluster.Errorf(cluster.CodeInvalid, "half-life: %s is outside 1 minute to 10 years, or 0 for no decay", p.HalfLife)
	case p.CoreMicro < 0 || p.CoreMicro > 1_000_000:
		return cluster.Errorf(cluster.CodeInvalid, "core weight: %d millionths of a GPU is outside 0 to 1,000,000", p.CoreMicro)
	}
	return p.checkWeights()
}

// Period is the time after which a budget is renewed, in UTC.
type Period string

// The periods. "" has no end: use decays instead.
const (
	Decaying  Period = ""
	Daily     Period = "day"
	Weekly    Period = "week" // from Monday
	Monthly   Period = "month"
	Quarterly Period = "quarter"
	Yearly    Period = "year"
)

// Periods returns the periods that end.
func Periods() []Period { return []Period{Daily, Weekly, Monthly, Quarterly, Yearly} }

// Begin returns the start of the period that contains t.
func (p Period) Begin(t cluster.Time) cluster.Time {
	at := t.Std()
	y, m, d := at.Date()
	switch p {
	case Daily:
	case Weekly:
		d -= (int(at.Weekday()) + 6) % 7
	case Monthly:
		d = 1
	case Quarterly:
		m, d = (m-1)/3*3+1, 1
	case Yearly:
		m, d = 1, 1
	default:
		return 0
	}
	return cluster.TimeOf(time.Date(y, m, d, 0, 0, 0, 0, time.UTC))
}

// End returns the end of the period that contains t; 0 for Decaying.
func (p Period) End(t cluster.Time) cluster.Time {
	y, m, d := p.Begin(t).Std().Date()
	switch p {
	case Daily:
		d++
	case Weekly:
		d += 7
	case Monthly:
		m++
	case Quarterly:
		m += 3
	case Yearly:
		y++
	default:
		return 0
	}
	return cluster.TimeOf(time.Date(y, m, d, 0, 0, 0, 0, time.UTC))
}

// Limits bound the subject of a quota; 0 is no bound.
type Limits struct {
	// GPUMilli bounds the GPUs held at once, in thousandths: half a GPU counts 500.
	GPUMilli int64
	// Running bounds the jobs that run at once, Jobs those that wait or run.
	Running, Jobs int64
	// GPUTime is the budget of GPU time, including core use, in each Period or,
	// without one, of the decayed use. Nothing starts once it is spent; running
	// jobs go on.
	GPUTime cluster.GPUTime
	Period  Period
	// MaxTime bounds the time limit of each job, MaxGPUs its GPUs over all nodes.
	MaxTime time.Duration
	MaxGPUs int64
}

// Zero reports whether nothing is bounded.
func (l *Limits) Zero() bool { return *l == Limits{} || *l == Limits{Period: l.Period} }

// over fills what l leaves open from d.
func (l Limits) over(d *Limits) Limits {
	if d == nil {
		return l
	}
	fill := func(to *int64, from int64) {
		*to = cmp.Or(*to, from)
	}
	fill(&l.GPUMilli, d.GPUMilli)
	fill(&l.Running, d.Running)
	fill(&l.Jobs, d.Jobs)
	fill(&l.MaxGPUs, d.MaxGPUs)
	if l.GPUTime == 0 {
		l.GPUTime, l.Period = d.GPUTime, d.Period
	}
	l.MaxTime = cmp.Or(l.MaxTime, d.MaxTime)
	return l
}

// Subject is what a quota applies to.
type Subject struct {
	// Account and QOS are names, "" for any; only one of them is set.
	Account, QOS string
	// User means that it applies to one user, UID. Each means that it applies
	// separately to every user without a quota of that kind.
	User, Each bool
	UID        cluster.UID
}

// String returns the subject as it is typed and stored.
func (s Subject) String() string {
	var parts []string
	switch {
	case s.Account != "":
		parts = append(parts, "account:"+s.Account)
	case s.QOS != "":
		parts = append(parts, "qos:"+s.QOS)
	}
	switch {
	case s.User:
		parts = append(parts, fmt.Sprintf("user:%d", s.UID))
	case s.Each:
		parts = append(parts, "each-user")
	}
	return strings.Join(parts, "/")
}

// Quota is a set of limits on a subject.
type Quota struct {
	Subject Subject
	// Name is its user's name, for display.
	Name     string
	Revision uint64
	Limits   Limits
}

// Check reports whether q is valid.
func (q *Quota) Check() error {
	s, l := q.Subject, &q.Limits
	switch {
	case s == (Subject{}):
		return cluster.Errorf(cluster.CodeInvalid, "quota: has no subject; name an account, a QOS, a user or each user")
	case s.Account != "" && s.QOS != "":
		return cluster.Errorf(cluster.CodeInvalid, "quota: names both account %s and qos %s; give each its own", cluster.QuoteShort(s.Account), cluster.QuoteShort(s.QOS))
	case s.User && s.Each:
		return cluster.Errorf(cluster.CodeInvalid, "quota: names both one user and each user; give each its own")
	case s.QOS != "" && s.User:
		return cluster.Errorf(cluster.CodeInvalid, "quota: of a QOS, is for all its users or for each; name a single user alone, or with an account")
	case s.Account != "" && cluster.CheckAccountName(s.Account) != nil:
		return cluster.CheckAccountName(s.Account)
	case s.QOS != "" && cluster.CheckQOSName(s.QOS) != nil:
		return cluster.CheckQOSName(s.QOS)
	case l.Period != Decaying && !slices.Contains(Periods(), l.Period):
		return cluster.Errorf(cluster.CodeInvalid, "gpu-hours per %s: want day, week, month, quarter or year, or no period for use that decays", cluster.QuoteShort(string(l.Period)))
	}
	for _, v := range []struct {
		name      string
		got, most int64
	}{
		{"gpus", l.GPUMilli, 1_000_000_000}, {"running", l.Running, 10_000_000}, {"jobs", l.Jobs, 10_000_000},
		{"gpu-hours", int64(l.GPUTime), 1 << 62}, {"max-time", int64(l.MaxTime), int64(cluster.MaxTimeDays * 24 * time.Hour)}, {"max-gpus", l.MaxGPUs, 1_000_000},
	} {
		if v.got < 0 || v.got > v.most {
			return cluster.Errorf(cluster.CodeInvalid, "%s: %d is outside 0 to %d; 0 is no limit", v.name, v.got, v.most)
		}
	}
	return nil
}

// Holder identifies what a job counts against. It never changes.
type Holder struct {
	Account, QOS string
	UID          cluster.UID
}

// HolderOf returns the holder of a job.
func HolderOf(j *cluster.Job) Holder {
	return Holder{Account: j.Spec.Account, QOS: j.Spec.QOS, UID: j.Owner.UID}
}

// Who is a holder that is told why it may not, in words that name its user.
type Who struct {
	Holder
	Name string
}

// WhoOf returns the holder of a job, by name.
func WhoOf(j *cluster.Job) Who { return Who{HolderOf(j), j.Owner.Name} }

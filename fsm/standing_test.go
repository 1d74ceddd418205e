package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/accounts"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

func setCmd(r conv.Ruling, base uint64) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_SetStanding{SetStanding: &logv1.SetStanding{Standing: conv.RulingToLog(r), Base: base}}}
}

func unsetCmd(r conv.Ruling) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_SetStanding{SetStanding: &logv1.SetStanding{Standing: conv.RulingToLog(r), Remove: true}}}
}

func quota(s accounting.Subject, l accounting.Limits) *accounting.Quota {
	return &accounting.Quota{Subject: s, Limits: l}
}

// standingWorld draws accounts and what belongs to them beside a world's
// commands.
type standingWorld struct{ *world }

func (w standingWorld) ruling() conv.Ruling {
	account := func(what string) string { return rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(w.t, what) }
	qos := func(what string) string { return rapid.SampledFrom([]string{"", "low", "high"}).Draw(w.t, what) }
	switch w.draw("ruling", 6) {
	case 0:
		a := &accounting.Account{Name: max("a", account("name")), Parent: account("parent"), Shares: int64(1 + w.draw("shares", 3)), DefaultQOS: qos("default")}
		return a
	case 1:
		return &accounting.Member{Account: max("a", account("of")), UID: cluster.UID(1000 + w.draw("uid", 3)), Shares: 1, Default: w.draw("default", 2) == 0}
	case 2:
		q := &accounting.QOS{Name: max("high", qos("name")), Priority: int64(w.draw("priority", 3)), Cancel: w.draw("cancel", 2) == 0, Default: w.draw("default", 3) == 0}
		if q.Name == "high" && w.draw("preempts", 2) == 0 {
			q.Preempts = []string{"low"}
		}
		return q
	case 3:
		p := &accounting.AccountPolicy{HalfLife: time.Duration(w.draw("half-life", 3)) * time.Hour, CoreMicro: int64(w.draw("core", 2)) * 20_000}
		if w.draw("weights", 2) == 0 {
			p.GPUWeights = []accounting.GPUWeight{{GPUType: "A100", Milli: 1000}, {GPUType: "T4", Milli: int64(w.draw("weight", 3)) * 100}}
		}
		return p
	}
	s := accounting.Subject{Account: account("quota of")}
	if s.Account == "" {
		s.QOS = qos("quota of")
	}
	switch {
	case w.draw("each", 3) == 0 || s == accounting.Subject{}:
		s.Each = true
	case s.QOS == "" && w.draw("user", 2) == 0:
		s.User, s.UID = true, cluster.UID(1000+w.draw("uid", 3))
	}
	return quota(s, accounting.Limits{
		GPUMilli: int64(w.draw("gpus", 4)) * 700, Running: int64(w.draw("running", 4)), Jobs: int64(w.draw("jobs", 6)),
		GPUTime: cluster.GPUTime(w.draw("budget", 3)) * 3_600_000_000, Period: rapid.SampledFrom([]accounting.Period{"", "day", "week"}).Draw(w.t, "period"),
	})
}

func (w standingWorld) command() *logv1.Command {
	if w.draw("standing", 4) == 0 {
		r := w.ruling()
		if w.draw("remove", 8) == 0 {
			return unsetCmd(r)
		}
		base := uint64(0)
		if old := w.f.st.books.Find(r); old != nil && w.draw("late", 6) > 0 {
			base = revisionOf(old)
		}
		return setCmd(r, base)
	}
	c := w.world.command()
	for _, j := range c.GetSubmitJob().GetJobs() {
		j.Spec.Account = rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(w.t, "charged")
		j.Spec.Qos = rapid.SampledFrom([]string{"", "low", "high"}).Draw(w.t, "served")
	}
	return c
}

// tallied counts anew what each subject of a quota has.
func tallied(s *State) map[accounting.Subject]accounting.Tally {
	d := s.books.Standing(s.at.Now)
	if len(d.Quotas) == 0 {
		return nil
	}
	l := accounting.NewLimiter(d.Accounts, d.Quotas, nil)
	for _, j := range s.roll.Unended() {
		jobs, running, milli := accounts.Held(j)
		l.Count(accounting.HolderOf(j), jobs, running, milli)
	}
	return l.Used()
}

// wantStanding says what is wrong with the state after an entry, which had
// tallies before.
func wantStanding(s *State, before map[accounting.Subject]accounting.Tally, set bool) error {
	now, d := tallied(s), s.books.Standing(s.at.Now)
	if l := d.Limits; (l == nil) != (now == nil) {
		return fmt.Errorf("a limiter without quotas, or none with them")
	} else if l != nil {
		if d := cmp.Diff(now, l.Used()); d != "" {
			return fmt.Errorf("tallies: %s", d)
		}
	}
	for sub, q := range d.Quotas {
		was, is := before[sub], now[sub]
		if sub.Each || set {
			continue
		}
		if l := q.Limits; l.GPUMilli > 0 && is.GPUMilli > was.GPUMilli && is.GPUMilli > l.GPUMilli ||
			l.Running > 0 && is.Running > was.Running && is.Running > l.Running || l.Jobs > 0 && is.Jobs > was.Jobs && is.Jobs > l.Jobs {
			return fmt.Errorf("quota of %s: %+v, has %+v, had %+v", sub, l, is, was)
		}
	}
	var charged, spent cluster.GPUTime
	var core, spentCore int64
	for _, j := range s.roll.Jobs.List() {
		for i := range j.Attempts {
			if a := &j.Attempts[i]; a.State.Terminal() {
				c := a.Charge(s.at.Now)
				charged += cluster.GPUTimeOf(c.GPU)
				core += c.Core.Microseconds()
			}
		}
	}
	for h, x := range d.Spent {
		spent, spentCore = spent+x.GPU, spentCore+x.Core
		if cost := d.Policy.Cost(x.GPU, x.Core); d.Policy.CoreMicro > 0 && x.Decayed > cost+cluster.GPUTime(len(s.roll.Jobs.List())) {
			return fmt.Errorf("%+v: %d is left of %d", h, x.Decayed, cost)
		}
	}
	if charged != spent || core != spentCore {
		return fmt.Errorf("attempts cost %d and %d, %d and %d were charged", charged, core, spent, spentCore)
	}
	return nil
}

// TestStandingHolds: whatever happens, no quota is broken, all that attempts
// cost is charged to somebody and nothing else, and replicas agree.
func TestStandingHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := New(Options{}), New(Options{})
		w := standingWorld{&world{t: t, f: a}}
		now := t0
		n := rapid.IntRange(20, 80).Draw(t, "entries")
		cut := rapid.IntRange(1, n).Draw(t, "cut")
		for i := 1; i <= n; i++ {
			c := w.command()
			if i == 1 {
				c = initCmd("c1", 100_000)
			}
			now = now.Add(time.Duration(w.draw("pause", 4000)) * time.Second)
			data := encode(t, testTerm, now, c)
			before := tallied(a.st)
			applyTo(t, a, uint64(i), testTerm, data)
			applyTo(t, b, uint64(i), testTerm, data)
			if i == cut {
				b = restored(t, snapshotOf(t, b))
			}
			if err := wantStanding(a.st, before, c.GetSetStanding() != nil); err != nil {
				t.Fatalf("entry %d: %v", i, err)
			}
			if !bytes.Equal(a.Hash(), b.Hash()) {
				t.Fatalf("entry %d: replicas differ:\n%s\n%s", i, contents(t, a), contents(t, b))
			}
		}
	})
}

// account makes accounts site and, below it, bio, with user 1000 in bio.
func accounted(t testing.TB) *machine {
	m := lab(t)
	m.must(setCmd(&accounting.QOS{Name: "low"}, 0))
	m.must(setCmd(&accounting.QOS{Name: "high", Priority: 10, Preempts: []string{"low"}}, 0))
	m.must(setCmd(&accounting.Account{Name: "site", Shares: 1}, 0))
	m.must(setCmd(&accounting.Account{Name: "bio", Parent: "site", Shares: 1, QOS: []string{"low"}}, 0))
	m.must(setCmd(&accounting.Member{Account: "bio", UID: 1000, Name: "ada", Shares: 1}, 0))
	return m
}

func in(account, qos string) *cluster.Spec {
	s := spec(1)
	s.Account, s.QOS = account, qos
	return s
}

func TestQuotaHoldsStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		q     accounting.Subject
		l     accounting.Limits
		code  cluster.ReasonCode
		words string
	}{
		{"account", accounting.Subject{Account: "bio"}, accounting.Limits{Running: 1}, "AssocGrpJobsLimit", "account bio may run 1 job at once, and 1 run"},
		{"account above", accounting.Subject{Account: "site"}, accounting.Limits{GPUMilli: 500}, "AssocGrpGRES", "account site may hold 0.5 GPUs at once and holds 0.3; this job takes 0.3"},
		{"user", accounting.Subject{User: true, UID: 1000}, accounting.Limits{Running: 1}, "AssocMaxJobsLimit", "user ada may run 1 job at once, and 1 run"},
		{"each user of the account", accounting.Subject{Account: "bio", Each: true}, accounting.Limits{Running: 1}, "AssocMaxJobsLimit", "user ada in account bio may run 1 job"},
		{"qos", accounting.Subject{QOS: "low"}, accounting.Limits{GPUMilli: 500}, "QOSGrpGRES", "qos low may hold 0.5 GPUs"},
		{"each user of the qos", accounting.Subject{QOS: "low", Each: true}, accounting.Limits{Running: 1}, "QOSMaxJobsPerUserLimit", "user ada in qos low may run 1 job"},
		{"budget", accounting.Subject{Account: "bio"}, accounting.Limits{GPUTime: 1}, "AssocGrpGRESMinutes", "account bio may use 0.0 GPU-hours that have not decayed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := accounted(t)
			m.must(setCmd(quota(c.q, c.l), 0))
			running(m, in("bio", "low"), 4000)
			second := m.submit(in("bio", "low"))
			r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: second, Attempt: 1, Why: "fits", Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g1", 4000, 300)}}}}}))
			if len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Code != c.code || !strings.HasPrefix(r.Plan.Rejected[0].Reason.Detail, c.words) {
				t.Errorf("%+v", r.Plan)
			}
		})
	}
}

func TestQuotaRefusesSubmit(t *testing.T) {
	t.Parallel()
	m := accounted(t)
	m.must(setCmd(quota(accounting.Subject{Each: true}, accounting.Limits{Jobs: 2}), 0))
	m.submit(in("bio", ""))
	e := m.refused(cluster.CodeExhausted, submitCmd(m.f.NextJobID(), "0123456789abcdef", 1000, in("bio", ""), in("bio", "")))
	if want := "AssocMaxSubmitJobLimit: user ada may have 2 jobs waiting or running and has 1; 2 more are asked for"; e.Msg != want {
		t.Errorf("%s", e.Msg)
	}
	m.must(setCmd(quota(accounting.Subject{User: true, UID: 1000}, accounting.Limits{Jobs: 10}), 0)) // its own goes before each user's
	m.must(submitCmd(m.f.NextJobID(), "0123456789abcdef", 1000, in("bio", ""), in("bio", "")))
	m.refused(cluster.CodeInvalid, submitCmd(m.f.NextJobID(), "0123456789abcdeg", 1000, in("gone", "")))
	m.refused(cluster.CodeInvalid, submitCmd(m.f.NextJobID(), "0123456789abcdeg", 1000, in("bio", "gone")))
}

func TestRulesGoTogether(t *testing.T) {
	t.Parallel()
	m := accounted(t)
	bio := *m.f.Standing(0).Accounts["bio"]
	for _, c := range []struct {
		name string
		code cluster.Code
		cmd  *logv1.Command
		want string
	}{
		{"parent is gone", cluster.CodeNotFound, setCmd(&accounting.Account{Name: "x", Parent: "y", Shares: 1}, 0), `parent: account "y" is not known`},
		{"below itself", cluster.CodeInvalid, setCmd(&accounting.Account{Name: "site", Parent: "bio", Shares: 1}, m.f.Standing(0).Accounts["site"].Revision), "would be below itself"},
		{"changed meanwhile", cluster.CodeConflict, setCmd(&accounting.Account{Name: "bio", Shares: 1}, bio.Revision+1), "was changed meanwhile"},
		{"made twice", cluster.CodeConflict, setCmd(&accounting.Account{Name: "bio", Shares: 1}, 0), "was changed meanwhile"},
		{"has children", cluster.CodeConflict, unsetCmd(&accounting.Account{Name: "site", Shares: 1}), "has account bio below it"},
		{"is allowed", cluster.CodeConflict, unsetCmd(&accounting.QOS{Name: "low"}), "qos high preempts qos low"},
		{"not below", cluster.CodeInvalid, setCmd(&accounting.QOS{Name: "low", Priority: 10}, m.f.Standing(0).QOS["low"].Revision), "stay below it"},
		{"preempts its like", cluster.CodeInvalid, setCmd(&accounting.QOS{Name: "x", Preempts: []string{"low"}}, 0), "only those below 0 can be preempted"},
		{"nobody", cluster.CodeNotFound, unsetCmd(&accounting.Member{Account: "bio", UID: 5, Shares: 1}), "is not known"},
		{"member of nothing", cluster.CodeNotFound, setCmd(&accounting.Member{Account: "x", UID: 5, Shares: 1}, 0), "is not known"},
		{"quota of nothing", cluster.CodeNotFound, setCmd(quota(accounting.Subject{Account: "x"}, accounting.Limits{Jobs: 1}), 0), "is not known"},
	} {
		if e := m.refused(c.code, c.cmd); !strings.Contains(e.Msg, c.want) {
			t.Errorf("%s: %s", c.name, e.Msg)
		}
	}
	m.submit(in("bio", "low"))
	if e := m.refused(cluster.CodeConflict, unsetCmd(&accounting.Account{Name: "bio", Shares: 1})); !strings.Contains(e.Msg, "1 waiting or running jobs") {
		t.Error(e.Msg)
	}
	// The first account is the default one, until another is.
	m.must(setCmd(&accounting.Member{Account: "site", UID: 1000, Shares: 1, Default: true}, 0))
	d := m.f.Standing(0)
	if d.Members[accounting.Assoc{Account: "bio", UID: 1000}].Default || !d.Members[accounting.Assoc{Account: "site", UID: 1000}].Default {
		t.Error("two default accounts, or none")
	}
}

// as applies a command as an entry of a version does.
func (m *machine) as(version uint32, cmd *logv1.Command) {
	m.t.Helper()
	m.index++
	data, err := EncodeEntry(version, testTerm, m.now, []*logv1.Command{cmd})
	if err != nil {
		m.t.Fatalf("%v", err)
	}
	if r := applyTo(m.t, m.f, m.index, testTerm, data)[0]; r.Err != nil {
		m.t.Fatalf("%v", r.Err)
	}
}

// TestWhoLosesTheDefaultAccount has the first of the others by name; in entries of before
// nobody had.
func TestWhoLosesTheDefaultAccount(t *testing.T) {
	t.Parallel()
	home := func(m *machine) string {
		for k, o := range m.f.Standing(0).Members {
			if k.UID == 1000 && o.Default {
				return k.Account
			}
		}
		return ""
	}
	of := func(version uint32) *machine {
		m := accounted(t)
		m.must(setCmd(&accounting.Account{Name: "chem", Shares: 1}, 0))
		for _, name := range []string{"site", "chem"} {
			m.must(setCmd(&accounting.Member{Account: name, UID: 1000, Shares: 1}, 0))
		}
		m.as(version, unsetCmd(&accounting.Member{Account: "bio", UID: 1000, Shares: 1})) // which was the default one
		return m
	}
	if got := home(of(command.HomeVersion - 1)); got != "" {
		t.Errorf("by an older entry the default one is %q", got)
	}
	m := of(command.HomeVersion)
	if got := home(m); got != "chem" {
		t.Errorf("the default one is %q", got)
	}
	j := m.submit(spec(1))
	if got := m.job(j).Spec.Account; got != "" && got != "chem" {
		t.Errorf("charged to %q", got)
	}
	m.must(setCmd(&accounting.Member{Account: "chem", UID: 1000, Shares: 7}, m.f.Standing(0).Members[accounting.Assoc{Account: "chem", UID: 1000}].Revision))
	if got := home(m); got != "site" { // it is taken away from chem
		t.Errorf("then it is %q", got)
	}
	m.must(unsetCmd(&accounting.Member{Account: "site", UID: 1000, Shares: 1}))
	m.must(unsetCmd(&accounting.Member{Account: "chem", UID: 1000, Shares: 1}))
	if got := home(m); got != "" {
		t.Errorf("without accounts it is %q", got)
	}
	if again := restored(t, snapshotOf(t, m.f)); !bytes.Equal(again.Hash(), m.f.Hash()) {
		t.Error("a restore has another hash")
	}
}

// TestAccountsMoveWithWhatIsBelow: no deeper than accounts may be, by which quotas go.
func TestAccountsMoveWithWhatIsBelow(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	chain := func(prefix string, n int) {
		parent := ""
		for i := range n {
			name := fmt.Sprintf("%s%d", prefix, i)
			m.must(setCmd(&accounting.Account{Name: name, Parent: parent, Shares: 1}, 0))
			parent = name
		}
	}
	chain("a", accounting.MaxAccountDepth/2)
	chain("b", accounting.MaxAccountDepth/2+1)
	move := func(to string) *logv1.Command {
		return setCmd(&accounting.Account{Name: "b0", Parent: to, Shares: 1}, m.f.Standing(0).Accounts["b0"].Revision)
	}
	last := fmt.Sprintf("a%d", accounting.MaxAccountDepth/2-1)
	m.must(move(last)) // 16 above the last
	m.must(move(""))
	m.must(setCmd(&accounting.Account{Name: "deeper", Parent: last, Shares: 1}, 0))
	if e := m.refused(cluster.CodeInvalid, move("deeper")); !strings.Contains(e.Msg, "more than 16 deep") {
		t.Error(e.Msg)
	}
	m.as(command.HomeVersion-1, move("deeper"))
	m.must(setCmd(&accounting.Account{Name: "b0", Parent: "deeper", Shares: 5}, m.f.Standing(0).Accounts["b0"].Revision)) // what is there can be changed
}

// TestNoDefaultAccount: who is in accounts of which none is the default one, as older
// releases left it, is told to name one, and not that there is none.
func TestNoDefaultAccount(t *testing.T) {
	t.Parallel()
	m := accounted(t)
	m.must(setCmd(&accounting.AccountPolicy{HalfLife: time.Hour, Require: true}, 0))
	m.must(setCmd(&accounting.Account{Name: "chem", Shares: 1}, 0))
	for _, name := range []string{"site", "chem"} {
		m.must(setCmd(&accounting.Member{Account: name, UID: 1000, Shares: 1}, 0))
	}
	enters := func(want string) {
		t.Helper()
		if e := m.f.EnterStanding(cluster.Owner{UID: 1000}, false, spec(1)); (e == nil) != (want == "") || e != nil && !strings.Contains(e.Msg, want) {
			t.Errorf("refused with %v, want %q", e, want)
		}
	}
	enters("")
	m.as(command.HomeVersion-1, unsetCmd(&accounting.Member{Account: "bio", UID: 1000, Shares: 1})) // which was the default one
	enters("name it: chem, site")
	m.must(unsetCmd(&accounting.Member{Account: "site", UID: 1000, Shares: 1}))
	m.must(unsetCmd(&accounting.Member{Account: "chem", UID: 1000, Shares: 1}))
	enters("user 1000 is in no account")
}

// TestChargedAndDecays: what an attempt took is charged to its user, and counts
// half after a half-life.
func TestChargedAndDecays(t *testing.T) {
	t.Parallel()
	m := accounted(t)
	id := running(m, in("bio", "low"), 4000) // 300 of 1000
	m.now = m.now.Add(10 * time.Hour)
	m.report(id, cluster.JobCompleted)
	h := accounting.Holder{Account: "bio", QOS: "low", UID: 1000}
	d := m.f.Standing(0)
	got, want := d.Spent[h], cluster.GPUTimeOf(m.job(id).Last().Charge(0).GPU)
	if got == nil || got.GPU != want || want.Hours() < 2.9 || want.Hours() > 3.1 {
		t.Fatalf("charged %+v, want %d", got, want)
	}
	week := m.now.Add(7 * 24 * time.Hour)
	if left := got.Left(week, &d.Policy); left < got.Decayed/2-1 || left > got.Decayed/2+1 {
		t.Errorf("%d is left of %d after a week", left, got.Decayed)
	}
	if used := got.Used(accounting.Weekly, week, &d.Policy); used != 0 {
		t.Errorf("%d counts a week later", used)
	}
	if !slices.Contains([]cluster.GPUTime{got.GPU}, got.Used(accounting.Yearly, m.now, &d.Policy)) {
		t.Errorf("%d counts this year", got.Used(accounting.Yearly, m.now, &d.Policy))
	}
}

// revisionOf is the revision of a rule.
func revisionOf(r conv.Ruling) uint64 { return *accounts.RevisionOf(r) }

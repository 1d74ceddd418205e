package fsm

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/proto/conv"
)

// entryOf is what a bookkeeper who knows nothing of the state machine notes of a
// job, or of one task of an array, that has not ended.
type entryOf struct {
	holder accounting.Holder
	runs   bool
	milli  int64         // of GPUs, while it runs
	card   cluster.GPUID // on which it runs
	asked  string        // "cancel" or "requeue", while it runs
	whole  bool          // it ran out of memory once
	task   bool          // it is of an array
	again  bool          // it runs again when its node is lost
}

// books are kept beside a machine, in the plainest way: every question is answered
// by going through all entries.
type books struct {
	t      *rapid.T
	m      *machine
	open   map[cluster.JobID]*entryOf
	quotas map[accounting.Subject]accounting.Limits
	parent map[string]string
	boots  map[cluster.NodeID]int
	rids   int
}

func (b *books) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(b.t, what) }

// above reports whether an account is another one or lies below it.
func (b *books) above(name, below string) bool {
	for ; below != ""; below = b.parent[below] {
		if below == name {
			return true
		}
	}
	return false
}

// ceiling is one number that a quota sets for a holder, and who counts towards it.
type ceiling struct {
	subject accounting.Subject
	limits  accounting.Limits
	counts  func(accounting.Holder) bool
}

// unless leaves of each user's limits those that a user has no limit of his own for.
func unless(each, own accounting.Limits) accounting.Limits {
	if own.Jobs > 0 {
		each.Jobs = 0
	}
	if own.Running > 0 {
		each.Running = 0
	}
	if own.GPUMilli > 0 {
		each.GPUMilli = 0
	}
	return each
}

// ceilings are all quotas that are about a holder.
func (b *books) ceilings(h accounting.Holder) (out []ceiling) {
	for sub, l := range b.quotas {
		switch {
		case sub.Account == "" && sub.QOS == "" && (sub.Each || sub.UID == h.UID):
			user := accounting.Subject{User: true, UID: h.UID}
			if sub.Each {
				l = unless(l, b.quotas[user])
			}
			out = append(out, ceiling{user, l, func(o accounting.Holder) bool { return o.UID == h.UID }})
		case sub.Account != "" && sub.Account == h.Account && (sub.Each || sub.User && sub.UID == h.UID):
			user := accounting.Subject{Account: sub.Account, User: true, UID: h.UID}
			if sub.Each {
				l = unless(l, b.quotas[user])
			}
			out = append(out, ceiling{user, l, func(o accounting.Holder) bool { return o.UID == h.UID && o.Account == h.Account }})
		case sub.Account != "" && !sub.Each && !sub.User && b.above(sub.Account, h.Account):
			out = append(out, ceiling{sub, l, func(o accounting.Holder) bool { return b.above(sub.Account, o.Account) }})
		case sub.QOS != "" && sub.QOS == h.QOS && sub.Each:
			user := accounting.Subject{QOS: h.QOS, User: true, UID: h.UID}
			out = append(out, ceiling{user, l, func(o accounting.Holder) bool { return o.UID == h.UID && o.QOS == h.QOS }})
		case sub.QOS != "" && sub.QOS == h.QOS:
			out = append(out, ceiling{sub, l, func(o accounting.Holder) bool { return o.QOS == h.QOS }})
		}
	}
	return out
}

// sums adds up who counts towards a ceiling, but for one job.
func (b *books) sums(c ceiling, but cluster.JobID) (jobs, running, milli int64) {
	for id, e := range b.open {
		if id == but || !c.counts(e.holder) {
			continue
		}
		jobs++
		if e.runs {
			running++
			milli += e.milli
		}
	}
	return jobs, running, milli
}

// takes reports whether there is room for new jobs, which are let in together or
// not at all.
func (b *books) takes(now []accounting.Holder, but cluster.JobID) bool {
	for _, h := range now {
		for _, c := range b.ceilings(h) {
			jobs, _, _ := b.sums(c, but)
			for _, o := range now {
				if c.counts(o) {
					jobs++
				}
			}
			if c.limits.Jobs > 0 && jobs > c.limits.Jobs {
				return false
			}
		}
	}
	return true
}

// starts reports whether a job may start with so much of GPUs.
func (b *books) starts(h accounting.Holder, milli int64) bool {
	for _, c := range b.ceilings(h) {
		_, running, held := b.sums(c, 0)
		if c.limits.Running > 0 && running+1 > c.limits.Running || c.limits.GPUMilli > 0 && milli > 0 && held+milli > c.limits.GPUMilli {
			return false
		}
	}
	return true
}

// check holds the books against the machine: each job, and what every quota says is
// used.
func (b *books) check(what string) {
	users := map[cluster.UID]int{}
	limits := b.m.f.Standing(0).Limits
	for id, e := range b.open {
		users[e.holder.UID]++
		j := b.m.job(id)
		if j.State.Terminal() || j.State.Live() != e.runs || accounting.HolderOf(j) != e.holder {
			b.t.Fatalf("%s: job %d is %s of %+v, by the books it runs: %t, of %+v", what, id, j.State, accounting.HolderOf(j), e.runs, e.holder)
		}
		for _, c := range b.ceilings(e.holder) {
			if (&c.limits).Zero() {
				continue
			}
			jobs, running, milli := b.sums(c, 0)
			if got, want := limits.Tally(c.subject), (accounting.Tally{Jobs: jobs, Running: running, GPUMilli: milli}); got != want {
				b.t.Fatalf("%s: the quota of %s counts %+v, by the books it is %+v", what, c.subject, got, want)
			}
		}
	}
	for uid := cluster.UID(1000); uid < 1003; uid++ {
		if got := b.m.f.UserJobs(uid); got != users[uid] {
			b.t.Fatalf("%s: user %d has %d jobs, by the books %d", what, uid, got, users[uid])
		}
	}
}

func (b *books) holder(uid cluster.UID) accounting.Holder {
	return accounting.Holder{
		Account: rapid.SampledFrom([]string{"", "site", "bio", "chem", "lab"}).Draw(b.t, "account"), QOS: rapid.SampledFrom([]string{"", "low"}).Draw(b.t, "qos"), UID: uid,
	}
}

func (b *books) submit() string {
	uid := cluster.UID(1000 + b.draw("uid", 3))
	var specs []*cluster.Spec
	var holders []accounting.Holder
	var entries []*entryOf
	for range 1 + b.draw("jobs", 3) {
		h := b.holder(uid)
		s := in(h.Account, h.QOS)
		s.RequeueOnLoss, s.Hold = b.draw("again", 2) == 0, b.draw("hold", 6) == 0
		n := 1
		if b.draw("array", 4) == 0 {
			s.Array, _ = cluster.ParseArray("0-3")
			n = 4
		}
		specs = append(specs, s)
		for range n {
			holders = append(holders, h)
			entries = append(entries, &entryOf{holder: h, task: n > 1, again: s.RequeueOnLoss})
		}
	}
	b.rids++
	first := b.m.f.NextJobID()
	r := b.m.do(submitCmd(first, fmt.Sprint("books-", b.rids), uid, specs...))[0]
	if want := b.takes(holders, 0); (r.Err == nil) != want || r.Err != nil && r.Err.Code != cluster.CodeExhausted {
		b.t.Fatalf("submit of %v: %v; by the books there is room: %t", holders, r.Err, want)
	}
	if r.Err == nil {
		for i, e := range entries {
			b.open[first+cluster.JobID(i)] = e
		}
	}
	return "submit"
}

// some is a job that waits, or runs; 0 when there is none.
func (b *books) some(runs bool) cluster.JobID {
	var ids []cluster.JobID
	for id, e := range b.open {
		if e.runs == runs {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return 0
	}
	slices.Sort(ids)
	return ids[b.draw("which", len(ids))]
}

func (b *books) start() string {
	id := b.some(false)
	if id == 0 {
		return ""
	}
	if b.m.job(id).Hold != nil {
		b.m.must(holdCmd(id, 0, true))
	}
	e := b.open[id]
	card := cluster.GPUID("")
	taken := map[cluster.GPUID]bool{}
	for _, o := range b.open {
		taken[o.card] = true
	}
	for _, n := range b.m.f.Nodes() {
		for i := range n.GPUs {
			if g := n.GPUs[i].ID; card == "" && !taken[g] {
				card = g
			}
		}
	}
	if card == "" {
		return ""
	}
	share, milli := whole(card), int64(1000)
	if !e.whole && b.draw("whole", 4) > 0 {
		// Of the card's 40,000 MiB and its compute the larger part counts.
		mem, compute := int64(1+b.draw("mem", 20)), int64(1+b.draw("compute", 20))
		share, milli = share1(card, mem*2000, compute*50), 50*max(mem, compute)
	}
	r := b.m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{b.m.startOf(id, share)}}))
	if want := b.starts(e.holder, milli); (len(r.Plan.Started) == 1) != want {
		b.t.Fatalf("start of job %d of %+v with %d: %+v; by the books it may: %t", id, e.holder, milli, r.Plan, want)
	} else if !want {
		if c := r.Plan.Rejected[0].Reason.Code; !accounting.LimitReason(c) {
			b.t.Fatalf("start of job %d: rejected for %s, want a quota", id, c)
		}
		return "a start that a quota forbids"
	}
	e.runs, e.card, e.milli = true, card, milli
	return "start"
}

// ends notes that an attempt is over: its job waits again, or is over too.
func (b *books) ends(id cluster.JobID, again bool) {
	e := b.open[id]
	if e.runs, e.card, e.milli, e.asked = false, "", 0, ""; !again {
		delete(b.open, id)
	}
}

func (b *books) end() string {
	id := b.some(true)
	if id == 0 {
		return ""
	}
	e := b.open[id]
	switch how := b.draw("how it ends", 5); {
	case e.asked == "cancel":
		b.m.report(id, cluster.JobCompleted) // whatever its exit
		b.ends(id, false)
	case e.asked == "requeue" && how < 3:
		b.m.report(id, cluster.JobCancelled)
		b.ends(id, true)
	case how == 0:
		b.m.report(id, cluster.JobRunning)
	case how == 1:
		b.m.report(id, cluster.JobFailed)
		b.ends(id, false)
	case how == 2:
		b.m.report(id, cluster.JobRunning)
		again := !b.m.job(id).Last().Berth.GPUs[0].Share.Exclusive
		b.m.oom(id, 1000)
		e.whole = true
		b.ends(id, again)
	default:
		b.m.report(id, cluster.JobCompleted)
		b.ends(id, false)
	}
	return "end"
}

// lose takes a node away, by silence and a fence or by another boot.
func (b *books) lose() string {
	n := cluster.NodeID(fmt.Sprintf("n%d", 1+b.draw("node", 3)))
	boot := fmt.Sprint("boot", b.boots[n])
	b.boots[n]++
	next := registerCmd(node(n, fmt.Sprint("boot", b.boots[n]), 8))
	if b.draw("fence", 2) == 0 {
		b.m.must(silentCmd(n, boot))
		b.check("silent")
		b.m.must(fenceCmd(n))
	} else {
		b.m.must(next)
	}
	for id, e := range b.open {
		if e.runs && cluster.NodeID(e.card[:2]) == n {
			b.ends(id, e.asked == "" && e.again || e.asked == "requeue")
		}
	}
	b.check("lost")
	b.m.must(next)
	return "back"
}

func (b *books) ask() string {
	id := b.some(b.draw("of those that run", 3) > 0)
	if id == 0 {
		return ""
	}
	e := b.open[id]
	if e.runs && e.asked == "" && b.draw("requeue", 2) == 0 {
		b.m.must(requeueCmd(id, 0, b.draw("hold", 2) == 0))
		e.asked = "requeue"
		return "requeue"
	}
	b.m.must(cancelCmd(id, 0))
	if e.asked = "cancel"; !e.runs {
		b.ends(id, false)
	}
	return "cancel"
}

// move charges a job to somebody else.
func (b *books) move() string {
	id := b.some(b.draw("of those that run", 2) == 0)
	if id == 0 || b.open[id].task {
		return ""
	}
	e := b.open[id]
	h := b.holder(e.holder.UID)
	r := b.m.do(updateCmd(b.m.job(id), func(s *cluster.Spec) { s.Account, s.QOS = h.Account, h.QOS }))[0]
	if want := h == e.holder || b.takes([]accounting.Holder{h}, id); (r.Err == nil) != want {
		b.t.Fatalf("job %d of %+v is charged to %+v: %v; by the books there is room: %t", id, e.holder, h, r.Err, want)
	} else if want {
		e.holder = h
	}
	return "move"
}

func (b *books) rule() string {
	if b.draw("tree", 5) == 0 {
		p := rapid.SampledFrom([]string{"", "site", "chem"}).Draw(b.t, "parent")
		b.parent["bio"] = p
		a := &accounting.Account{Name: "bio", Parent: p, Shares: 1}
		b.m.must(setCmd(a, revisionOf(b.m.f.st.books.Find(a))))
		return "another parent"
	}
	sub := rapid.SampledFrom([]accounting.Subject{
		{Each: true}, {User: true, UID: 1000}, {Account: "site"}, {Account: "bio"}, {Account: "bio", Each: true}, {Account: "bio", User: true, UID: 1001},
		{QOS: "low"}, {QOS: "low", Each: true},
	}).Draw(b.t, "subject")
	l := accounting.Limits{Jobs: int64(b.draw("most jobs", 9)), Running: int64(b.draw("most running", 5)), GPUMilli: int64(b.draw("most GPUs", 6)) * 500}
	_, there := b.quotas[sub]
	if there && b.draw("remove", 3) == 0 {
		b.m.must(unsetCmd(quota(sub, accounting.Limits{})))
		delete(b.quotas, sub)
		return "no quota"
	}
	base := uint64(0)
	if there {
		base = b.m.f.Standing(0).Quotas[sub].Revision
	}
	b.m.must(setCmd(quota(sub, l), base))
	b.quotas[sub] = l
	return "quota"
}

// TestQuotasByTheBooks: whatever becomes of jobs that wait and run (arrays among
// them, those that are requeued, lost, cancelled, charged to others), a submit and a
// start are let in exactly when somebody who goes through all jobs finds room, and
// each quota counts what he counts.
func TestQuotasByTheBooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := &books{
			t: t, m: newMachine(t), open: map[cluster.JobID]*entryOf{}, quotas: map[accounting.Subject]accounting.Limits{}, parent: map[string]string{"bio": "site", "lab": "bio"},
			boots: map[cluster.NodeID]int{},
		}
		b.m.must(initCmd("c1", 1000))
		for _, r := range []conv.Ruling{&accounting.QOS{Name: "low"}, &accounting.Account{Name: "site", Shares: 1}, &accounting.Account{Name: "chem", Shares: 1}, &accounting.Account{Name: "bio", Parent: "site", Shares: 1}, &accounting.Account{Name: "lab", Parent: "bio", Shares: 1}} {
			b.m.must(setCmd(r, 0))
		}
		for _, n := range []cluster.NodeID{"n1", "n2", "n3"} {
			b.m.must(registerCmd(node(n, "boot0", 8)))
		}
		steps := []func() string{b.submit, b.submit, b.start, b.start, b.start, b.end, b.end, b.lose, b.ask, b.move, b.rule, b.rule}
		for range rapid.IntRange(8, 40).Draw(t, "steps") {
			if what := steps[b.draw("step", len(steps))](); what != "" {
				b.check(what)
			}
		}
		b.m.f = restored(t, snapshotOf(t, b.m.f))
		b.check("a restore")
	})
}

// TestQuotaOfAGang: a job on several nodes counts once, and with what it holds on
// all of them, until the last of its parts has ended.
func TestQuotaOfAGang(t *testing.T) {
	t.Parallel()
	m := trio(t)
	m.must(setCmd(quota(accounting.Subject{Each: true}, accounting.Limits{GPUMilli: 2500, Running: 2}), 0))
	id := m.gang("n1-g0", "n2-g0")
	user := accounting.Subject{User: true, UID: 1000}
	want := func(what string, jobs, running, milli int64) {
		t.Helper()
		if got := m.f.Standing(0).Limits.Tally(user); got != (accounting.Tally{Jobs: jobs, Running: running, GPUMilli: milli}) {
			t.Errorf("%s: %+v, want %d jobs, %d that run, %d thousandths", what, got, jobs, running, milli)
		}
	}
	want("placed", 1, 1, 2000)
	m.runs(id)
	m.part(id, 1, cluster.JobCompleted)
	want("one part has ended", 1, 1, 2000)
	more := m.submit(spec(1))
	rejects := func(code cluster.ReasonCode, sh ...cluster.GPUShare) {
		t.Helper()
		r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(more, sh...)}}))
		if len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Code != code {
			t.Errorf("%+v, want %s", r.Plan, code)
		}
	}
	rejects("AssocGrpGRES", share1("n3-g0", 24_000, 10)) // 600 of its memory
	m.start(more, share1("n3-g0", 20_000, 10))
	want("both run", 2, 2, 2500)
	cpu := m.submit(spec(0))
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(cpu)}}))
	if len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Code != "AssocMaxJobsLimit" {
		t.Errorf("a third one: %+v", r.Plan)
	}
	m.part(id, 0, cluster.JobCompleted)
	want("all parts have ended", 2, 1, 500)
	m.start(cpu)
	want("one without GPUs", 2, 2, 500)
}

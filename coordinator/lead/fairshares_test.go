package lead

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// TestPassesGoByFairShares: of two who wait for one card the one goes first whose
// account had less.
func TestPassesGoByFairShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(func(p *scheduler.Policy) { p.FairMilli = 1000; p.MaxShares = 1 }))
		l.machine("n1", 1, nil)
		for i, name := range []string{"bio", "phys"} {
			l.account(name)
			l.member(name, cluster.UID(1000+i))
		}
		in := func(account string) *cluster.Spec { return job(1, func(s *cluster.Spec) { s.Account = account }) }
		id := l.submitBy(1000, in("bio"))[0]
		l.start(id, berth("n1", 0))
		l.say(id, cluster.JobRunning, nil)
		time.Sleep(time.Hour)
		l.say(id, cluster.JobCompleted, nil)
		first, second := l.submitBy(1000, in("bio"))[0], l.submitBy(1001, in("phys"))[0]
		if _, err := l.l.plan.pass(t.Context(), site.Full); err != nil {
			t.Fatal(err)
		}
		if a, b := l.job(first).State, l.job(second).State; a != cluster.JobQueued || b != cluster.JobStarting {
			t.Errorf("who had an hour is %s, who had nothing %s", a, b)
		}
	})
}

// TestUseIsCountedOnce: over all accounts of a user, and not again at each look.
func TestUseIsCountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(func(p *scheduler.Policy) { p.FairMilli = 500 }))
		l.machine("n1", 3, nil)
		for _, name := range []string{"bio", "phys"} {
			l.account(name)
			l.member(name, 1000)
		}
		l.member("phys", 1001)
		ran := func(uid cluster.UID, account string, d time.Duration) {
			id := l.submitBy(uid, job(1, func(s *cluster.Spec) { s.Account = account }))[0]
			l.start(id, berth("n1", 0))
			l.say(id, cluster.JobRunning, nil)
			time.Sleep(d)
			l.say(id, cluster.JobCompleted, nil)
		}
		f := l.l.plan.fair
		ran(1000, "bio", time.Hour)
		ran(1000, "phys", time.Hour)
		if got := f.service(l.f, time.Now())[1000]; got < 2000 || got > 2200 { // 300 thousandths of a card
			t.Errorf("two hours of 0.3 of a card in two accounts: %d s", got)
		}
		for range 50 { // looks while only one of them had anything
			time.Sleep(2 * time.Second)
			f.order(l.f, time.Now())
		}
		ran(1001, "phys", 3*time.Hour)
		time.Sleep(2 * time.Second)
		o := f.order(l.f, time.Now())
		if a, b := o.Place(accounting.Assoc{Account: "phys", UID: 1000}), o.Place(accounting.Assoc{Account: "phys", UID: 1001}); a >= b {
			t.Errorf("who had an hour is in place %d, who had three in %d", a, b)
		}
	})
}

// TestFairSharesAreFresh: the order of fair shares and what users had are at most a
// second old, at once new when accounts change, and added up from nothing each time.
func TestFairSharesAreFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, planBy(func(p *scheduler.Policy) { p.FairMilli = 500 }))
		l.machine("n1", 3, nil)
		f := l.l.plan.fair
		if got := f.order(l.f, time.Now()); got != nil {
			t.Error("there are no accounts, and an order")
		}
		l.account("bio")
		l.account("phys")
		l.member("bio", 1000)
		l.member("phys", 1001)
		who := func(uid cluster.UID, account string) accounting.Assoc {
			return accounting.Assoc{UID: uid, Account: account}
		}
		at := func() (bio, phys int32) {
			o := f.order(l.f, time.Now())
			return o.Place(who(1000, "bio")), o.Place(who(1001, "phys"))
		}
		if a, b := at(); a != b {
			t.Errorf("nobody had anything, and their places are %d and %d", a, b)
		}
		spec := job(1, func(s *cluster.Spec) { s.Account = "bio" })
		id := l.submitBy(1000, spec)[0]
		l.start(id, berth("n1", 0))
		l.say(id, cluster.JobRunning, nil)
		began := time.Now()
		time.Sleep(500 * time.Millisecond)
		if a, b := at(); a != b {
			t.Errorf("half a second later it is made anew: %d and %d", a, b)
		}
		time.Sleep(time.Hour)
		if a, b := at(); a <= b {
			t.Errorf("an hour of one's run later their places are %d and %d", a, b)
		}
		had := f.service(l.f, time.Now())
		if got := had[1000]; got < 1000 || got > 1100 { // 300 thousandths of a card, an hour
			t.Errorf("after %s of 0.3 of a card: %d s", time.Since(began), got)
		}
		time.Sleep(900 * time.Millisecond)
		if again := f.service(l.f, time.Now()); again[1000] != had[1000] {
			t.Error("it is added up within a second")
		}
		time.Sleep(10 * time.Minute)
		if again := f.service(l.f, time.Now()); again[1000] <= had[1000] {
			t.Error("it is not added up any more")
		}
		first := f.order(l.f, time.Now())
		time.Sleep(time.Hour)
		for range 5 { // what was had is not added up again and again
			time.Sleep(2 * time.Second)
			f.order(l.f, time.Now())
		}
		if d := cmp.Diff(first.Places, f.order(l.f, time.Now()).Places); d != "" {
			t.Error(d)
		}
		l.account("chem")
		l.member("chem", 1002)
		o := f.order(l.f, time.Now())
		if _, is := o.Index[who(1002, "chem")]; !is {
			t.Errorf("who is new is not in the order at once: %+v", o)
		}
		snap := l.f.SchedulerSnapshot()
		qos := map[string]*accounting.QOS{"high": {}}
		snap.Standing = &accounting.Standing{QOS: qos}
		was := snap.Standing
		l.l.Prepare(snap)
		if snap.Standing.Fair == nil || len(snap.Standing.QOS) != 1 || was.Fair != nil || snap.Service != nil {
			t.Errorf("a snapshot has %+v", snap.Standing)
		}
	})
}

package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/accounts"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/nodes"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// siteWorld draws what administrators do to a cluster on which jobs wait and
// run: reservations, drains, nodes that go for good, and jobs that are changed,
// beside the commands of standingWorld.
type siteWorld struct{ standingWorld }

func (w siteWorld) where() *cluster.Where {
	x := &cluster.Where{Whole: w.draw("whole nodes", 4) == 0}
	if w.draw("inside", 2) == 0 {
		x.Reservation = rapid.SampledFrom([]string{"r1", "r2"}).Draw(w.t, "inside of")
	}
	if w.draw("named", 3) == 0 {
		x.Nodes = hosts(w.t, string(rapid.SampledFrom(worldNodes).Draw(w.t, "named node")))
	}
	return x
}

func (w siteWorld) reservation() *logv1.Command {
	name := rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(w.t, "reservation")
	if w.draw("remove reservation", 4) == 0 {
		return &logv1.Command{Kind: &logv1.Command_RemoveReservation{RemoveReservation: &logv1.RemoveReservation{Name: name}}}
	}
	r := &dispatch.Reservation{
		Name: name, Start: w.f.Now().Add(time.Duration(w.draw("from", 5)-2) * time.Hour), Duration: time.Duration(1+w.draw("for", 3)) * time.Hour,
		Nodes: hosts(w.t, rapid.SampledFrom([]string{"ALL", "n1", "n[1-2]", "n9"}).Draw(w.t, "reserved")), Maint: w.draw("maint", 2) == 0,
	}
	if w.draw("for users", 3) > 0 {
		r.Users = []string{"1000", "1001", "1002"}
	}
	if w.draw("cards", 3) == 0 {
		r.GPUs = []cluster.GPUID{"n1-g0", "n1-g1"}
	}
	base := uint64(0)
	if old := w.f.st.Reservations().Get(name); old != nil && w.draw("late", 6) > 0 {
		base = old.Revision
	}
	return reservationCmd(r, base)
}

// reservationCmd puts a reservation; base is that of the one before.
func reservationCmd(r *dispatch.Reservation, base uint64) *logv1.Command {
	c := &logv1.SetReservation{Reservation: conv.ReservationToLog(r), Base: base}
	return &logv1.Command{Kind: &logv1.Command_SetReservation{SetReservation: c}}
}

// update changes what a job, that waits most often, is charged to and asks for.
func (w siteWorld) update() *logv1.Command {
	j, ok := w.pick(cluster.JobPending, cluster.JobQueued)
	if !ok || w.draw("any", 3) == 0 {
		if j, ok = w.pick(); !ok {
			return holdCmd(99, 0, false)
		}
	}
	s := *j.Spec
	s.Nice = int32(w.draw("nice", 3))
	if j.State.Waiting() || w.draw("at all", 3) == 0 {
		s.Account = rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(w.t, "charged")
		s.QOS = rapid.SampledFrom([]string{"", "low", "high"}).Draw(w.t, "served")
		if s.GPUs > 0 && j.State.Waiting() {
			s.GPUs = 1 + w.draw("gpus", 2)
		}
	}
	base := j.Revision - uint64(w.draw("stale", 8)/7)
	return &logv1.Command{Kind: &logv1.Command_UpdateJob{UpdateJob: &logv1.UpdateJob{Job: uint64(j.ID), Spec: conv.SpecToLog(&s), Base: base}}}
}

func (w siteWorld) command() *logv1.Command {
	switch w.draw("site", 12) {
	case 0:
		return w.reservation()
	case 1, 2:
		return w.update()
	case 3:
		c := drainCmd(rapid.SampledFrom(worldNodes).Draw(w.t, "node"), rapid.Bool().Draw(w.t, "drain"))
		if n, ok := w.f.Node(cluster.NodeID(c.GetDrainNode().Node)); ok && w.draw("timed", 2) == 0 {
			c.GetDrainNode().UntilUs = rapid.SampledFrom([]int64{int64(n.DrainUntil), int64(w.f.Now()) + 5}).Draw(w.t, "until")
		}
		return c
	case 4:
		// Most often one that holds nothing, which can go.
		for _, id := range worldNodes {
			if n, ok := w.f.Node(id); ok && len(w.f.NodeJobs(n.ID)) == 0 && w.draw("this one", 3) == 0 {
				return removeCmd(id)
			}
		}
		return removeCmd("n2")
	case 5:
		if c := w.partition(); c.GetSetPartition() != nil && w.draw("access", 2) == 0 {
			c.GetSetPartition().Partition.Access = []*logv1.AccessList{{List: cluster.AllowAccounts, Names: []string{"a", "b"}}}
			return c
		}
		return w.plan()
	case 6:
		m := &accounting.Member{Account: rapid.SampledFrom([]string{"a", "b"}).Draw(w.t, "of"), UID: cluster.UID(1000 + w.draw("uid", 2)), Shares: 1, Default: w.draw("default", 2) == 0}
		if old := w.f.st.books.Find(m); old != nil {
			return setCmd(m, revisionOf(old))
		}
		return setCmd(m, 0)
	}
	c := w.standingWorld.command()
	for _, j := range c.GetSubmitJob().GetJobs() {
		if w.draw("somewhere", 3) > 0 {
			continue
		}
		j.Spec.Where = conv.SpecToLog(&cluster.Spec{Where: w.where()}).Where
	}
	return c
}

// checkCounted holds what is kept of accounts and quotas against a new count.
func checkCounted(s *State) error {
	d, kept, jobs, home := s.books, s.books.Standing(s.at.Now), map[cluster.UID]int{}, map[cluster.UID]string{}
	for _, j := range s.roll.Unended() {
		n, _, _ := accounts.Held(j)
		jobs[j.Owner.UID] += int(n)
	}
	for a, m := range kept.Members {
		if m.Default {
			home[a.UID] = a.Account
		}
	}
	for uid := range cluster.UID(2000) {
		if d.JobsOf(uid) != jobs[uid] || d.HomeOf(uid) != home[uid] {
			return fmt.Errorf("%d jobs of user %d and the default account %q are kept; counted anew they are %v and %v", d.JobsOf(uid), uid, d.HomeOf(uid), jobs, home)
		}
	}
	if (kept.Limits == nil) != (len(kept.Quotas) == 0) {
		return fmt.Errorf("a limiter without quotas, or none with %d", len(kept.Quotas))
	}
	if kept.Limits == nil {
		return nil
	}
	if diff := cmp.Diff(tallied(s), kept.Limits.Used()); diff != "" {
		return fmt.Errorf("tallies (- counted anew, + kept): %s", diff)
	}
	for budget, used := range d.Budgets() {
		if kept := d.Used(budget.Subject, budget.Period); kept != used {
			return fmt.Errorf("%d of the budget of %s counts, counted anew it is %d", kept, budget.Subject, used)
		}
	}
	return nil
}

// checkNames holds the jobs of each name against a new count.
func checkNames(s *State) error {
	count, seen := map[jobs.Name]int{}, map[cluster.JobID]struct{}{}
	for _, j := range s.roll.Unended() {
		if _, twice := seen[jobs.Unit(j)]; !twice { // an array is one
			seen[jobs.Unit(j)] = struct{}{}
			count[jobs.NameOf(j)]++
		}
	}
	for k, q := range s.roll.Depends.Names {
		if q.Live != count[k] {
			return fmt.Errorf("%d jobs are named %v, %d are kept", count[k], k, q.Live)
		}
		delete(count, k)
	}
	if len(count) > 0 {
		return fmt.Errorf("names that nothing is kept of: %v", count)
	}
	return nil
}

// TestSiteReplicasAgree: whatever administrators make of a cluster, a replica
// that was restored half-way answers each entry as one that applied all of
// them, and both keep what a new count gives.
func TestSiteReplicasAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := New(Options{}), New(Options{})
		w := siteWorld{standingWorld{&world{t: t, f: a}}}
		now, index := t0, uint64(0)
		step := func(cmds ...*logv1.Command) {
			index++
			now = now.Add(time.Duration(w.draw("pause", 2000)) * time.Second)
			data := encode(t, testTerm, now, cmds...)
			x, y := applyTo(t, a, index, testTerm, data), applyTo(t, b, index, testTerm, data)
			if want, got := fmt.Sprint(errorsOf(x)), fmt.Sprint(errorsOf(y)); want != got {
				t.Fatalf("entry %d: answered %s, after a restore %s", index, want, got)
			}
		}
		step(initCmd("c1", 100), registerCmd(node("n1", "boot1", 2)), registerCmd(node("n2", "boot1", 2)), registerCmd(node("n3", "boot1", 1)))
		for _, name := range []string{"a", "b"} {
			step(setCmd(&accounting.Account{Name: name, Shares: 1}, 0))
		}
		n := rapid.IntRange(20, 80).Draw(t, "entries")
		cut := rapid.IntRange(1, n).Draw(t, "cut")
		for i := 1; i <= n; i++ {
			step(w.command())
			if i == cut {
				b = restored(t, snapshotOf(t, b))
			}
			err := errors.Join(checkDerived(a.st), checkCounted(a.st), checkNames(a.st), checkCounted(b.st), checkNames(b.st), sameInside(a.st, b.st))
			if err != nil {
				t.Fatalf("entry %d: %v", index, err)
			}
			if !bytes.Equal(a.Hash(), b.Hash()) {
				t.Fatalf("entry %d: replicas differ:\n%s\n%s", index, contents(t, a), contents(t, b))
			}
		}
	})
}

// updateCmd changes what a job asks for.
func updateCmd(j *cluster.Job, change func(*cluster.Spec)) *logv1.Command {
	s := *j.Spec
	change(&s)
	return &logv1.Command{Kind: &logv1.Command_UpdateJob{UpdateJob: &logv1.UpdateJob{Job: uint64(j.ID), Spec: conv.SpecToLog(&s), Base: j.Revision}}}
}

// TestChangedJobIsCharged: a job that is changed counts where it is charged
// then, and nowhere else, and needs room there.
func TestChangedJobIsCharged(t *testing.T) {
	t.Parallel()
	m := accounted(t)
	m.must(setCmd(quota(accounting.Subject{Account: "bio"}, accounting.Limits{Jobs: 2}), 0))
	m.must(setCmd(quota(accounting.Subject{Each: true}, accounting.Limits{Jobs: 3}), 0))
	id := m.submit(in("bio", "low"))
	m.submit(in("bio", "low"))
	third := m.submit(in("site", "low"))
	into := func(account string) func(*cluster.Spec) { return func(s *cluster.Spec) { s.Account = account } }
	e := m.refused(cluster.CodeExhausted, updateCmd(m.job(third), into("bio")))
	if want := "AssocGrpSubmitJobsLimit: account bio may have 2 jobs waiting or running and has 2; 1 more are asked for"; e.Msg != want {
		t.Errorf("%s", e.Msg)
	}
	m.must(updateCmd(m.job(id), into("site"))) // the user's three jobs stay three
	m.must(updateCmd(m.job(third), into("bio")))
	if err := checkCounted(m.f.st); err != nil {
		t.Error(err)
	}
	m.refused(cluster.CodeInvalid, updateCmd(m.job(id), into("gone")))
}

// TestDrainUntil: a drain's own end ends it, and not another one that was
// ordered meanwhile; a node that comes back keeps it.
func TestDrainUntil(t *testing.T) {
	t.Parallel()
	m := lab(t)
	drain := func(on bool, until cluster.Time) *logv1.Command {
		c := drainCmd("n1", on)
		c.GetDrainNode().UntilUs = int64(until)
		return c
	}
	want := func(what string, drained bool, until cluster.Time) {
		t.Helper()
		n, _ := m.f.Node("n1")
		if n.Drain != drained || n.DrainUntil != until {
			t.Errorf("%s: drained %t until %d", what, n.Drain, n.DrainUntil)
		}
	}
	m.must(drain(true, t0+5))
	want("drained", true, t0+5)
	m.must(registerCmd(node("n1", "boot2", 2)))
	want("after a boot", true, t0+5)
	m.must(drain(true, t0+9))
	m.must(drain(false, t0+5))
	want("the end of the first", true, t0+9)
	m.must(drain(true, 0))
	m.must(drain(false, t0+9))
	want("without an end", true, 0)
	m.must(drain(true, t0+9))
	m.must(drain(false, t0+9))
	want("its own end", false, 0)
	if v := NeedsVersion(drain(true, 1)); v != 10 || NeedsVersion(drainCmd("n1", true)) != 1 {
		t.Errorf("needs version %d", v)
	}
}

// TestPlannedNodeIsGone: a start on a node that was removed since it was planned
// is refused, whatever the job and reservations say of where it may run.
func TestPlannedNodeIsGone(t *testing.T) {
	t.Parallel()
	m := accounted(t)
	s := spec(0)
	s.Where = &cluster.Where{Exclude: hosts(t, "n9")}
	id := m.submit(s)
	m.must(removeCmd("n1"))
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: id, Attempt: 1, Why: "fits", Berth: cluster.Berth{Node: "n1"}}}}))
	if len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason != nodes.Stale("node n1 is gone") {
		t.Errorf("%+v", r.Plan)
	}
}

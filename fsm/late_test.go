package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestRetryAfterOthersCame: the same request, word for word, has the same answer
// however many ids were given since, and makes nothing.
func TestRetryAfterOthersCame(t *testing.T) {
	t.Parallel()
	m := lab(t)
	cmd := submitCmd(m.f.NextJobID(), "a request that is sent twice", 1000, spec(1), spec(0))
	first := m.must(cmd)
	for range 3 {
		m.submit(spec(1))
	}
	before := contents(t, m.f)
	again := m.must(cmd)
	if !again.Existing || !cmp.Equal(again.Jobs, first.Jobs) {
		t.Fatalf("answered %+v, at first %+v", again, first)
	}
	if after := contents(t, m.f); after != before {
		t.Errorf("the second time changed the state:\n%s\n%s", before, after)
	}
}

// TestPlanFromBeforeTheRequeue: a start that was planned before the job's node
// was given up is not a start of the attempt that comes after.
func TestPlanFromBeforeTheRequeue(t *testing.T) {
	t.Parallel()
	m := lab(t)
	s := spec(1)
	s.RequeueOnLoss = true
	id := m.submit(s)
	old := m.startOf(id, share1("n2-g0", 8000, 300)) // planned, and on its way
	m.start(id, share1("n1-g0", 8000, 300))
	m.report(id, cluster.JobRunning)
	m.must(silentCmd("n1", "boot1"))
	m.must(fenceCmd("n1"))
	if j := m.wantState(id, cluster.JobPending); len(j.Attempts) != 1 {
		t.Fatalf("%d attempts", len(j.Attempts))
	}
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{old}}))
	if len(r.Plan.Started) != 0 || len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Code != cluster.ReasonStale {
		t.Fatalf("the old start: %+v", r.Plan)
	}
	m.wantState(id, cluster.JobPending)
	if at := m.start(id, share1("n2-g0", 8000, 300)); at.No != 2 {
		t.Errorf("attempt %d starts, want 2", at.No)
	}
}

// TestThrottle: as many tasks of an array run as may, and no more; one that
// stands in a queue has its place, one that does not waits for those that do.
func TestThrottle(t *testing.T) {
	t.Parallel()
	for throttle := range 4 {
		for live := range 4 {
			for queued := range 4 {
				s := newState()
				a := jobs.NewArray(7, &cluster.Spec{Array: &cluster.Array{}}, nil, throttle)
				a.Live, a.Queued = live, queued
				s.roll.Arrays[7] = a
				inQueue := &cluster.Job{ID: 8, ArrayJobID: 7, State: cluster.JobQueued, Spec: &cluster.Spec{}}
				if got, want := s.roll.BarredBy(inQueue, t0).Code == "", throttle == 0 || live < throttle; queued > 0 && got != want {
					t.Errorf("%%%d, %d run and %d are queued: one of these may start: %t, want %t", throttle, live, queued, got, want)
				}
				pending := &cluster.Job{ID: 9, ArrayJobID: 7, State: cluster.JobPending, Spec: &cluster.Spec{}}
				if got, want := s.roll.BarredBy(pending, t0).Code == "", throttle == 0 || live+queued < throttle; got != want {
					t.Errorf("%%%d, %d run and %d are queued: another one may be planned: %t, want %t", throttle, live, queued, got, want)
				}
			}
		}
	}
	m := lab(t)
	s := spec(1)
	s.Array, _ = cluster.ParseArray("0-3%3")
	id := m.submit(s)
	for k, g := range []cluster.GPUID{"n1-g0", "n1-g1", "n2-g0"} {
		m.enqueue(id+cluster.JobID(k), g, int64(k))
	}
	c := changeCmd(id, "", logv1.TaskChange_TASK_CHANGE_THROTTLE)
	c.Throttle = 1
	m.must(tasksCmd(c))
	m.start(id, share1("n1-g0", 8000, 300))
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id+1, share1("n1-g1", 8000, 300))}}))
	if len(r.Plan.Started) != 0 || len(r.Plan.Rejected) != 1 {
		t.Fatalf("a second task of an array %%1 starts: %+v", r.Plan)
	}
	m.report(id, cluster.JobCompleted)
	m.start(id+1, share1("n1-g1", 8000, 300))
}

// TestStrangersOnEachCard: every card of a berth is asked who lies there, not
// the first alone.
func TestStrangersOnEachCard(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	n := node("n1", "boot1", 3)
	for i := range n.GPUs {
		n.GPUs[i].Scope = cluster.ScopeSameUser
	}
	m.must(registerCmd(n))
	m.start(m.submit(spec(1)), share1("n1-g2", 8000, 300)) // of user 1000
	two := spec(2)
	theirs := m.must(submitCmd(m.f.NextJobID(), "somebody else's", 1001, two)).Jobs[0]
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(theirs, share1("n1-g0", 8000, 300), share1("n1-g2", 8000, 300))}}))
	if len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Code != cluster.ReasonSharing {
		t.Fatalf("a stranger came beside user 1000: %+v", r.Plan)
	}
	m.start(theirs, share1("n1-g0", 8000, 300), share1("n1-g1", 8000, 300))
}

// TestOldEntriesChargeNobody: what entries from before there were accounts mean
// stays what they meant: a run that ends by one of them is charged to nobody.
func TestOldEntriesChargeNobody(t *testing.T) {
	t.Parallel()
	for _, version := range []uint32{8, 9} {
		m := lab(t)
		id := m.submit(spec(1))
		m.start(id, share1("n1-g0", 8000, 300))
		m.report(id, cluster.JobRunning)
		m.index++
		m.now = m.now.Add(time.Hour)
		data, err := EncodeEntry(version, testTerm, m.now, []*logv1.Command{reportCmd(m.reportOf(id, cluster.JobCompleted))})
		if err != nil {
			t.Fatal(err)
		}
		applyTo(t, m.f, m.index, testTerm, data)
		m.wantState(id, cluster.JobCompleted)
		if spent := m.f.Standing(0).Spent; (len(spent) > 0) != (version >= 9) {
			t.Errorf("an entry of version %d charged %v", version, spent)
		}
	}
}

// life is what a test saw of a job: all that others may wait for.
type life struct {
	began cluster.Time // placed for the first time, or ended without; 0 for not yet
	ended cluster.JobState
}

// met is how a dependency stands by what was seen, and from when on it counts.
func (l life) met(d cluster.Dependency) (cluster.DependState, cluster.Time) {
	over := l.ended != 0
	good := l.ended == cluster.JobCompleted
	switch {
	case d.Kind == cluster.After && l.began > 0:
		if d.Delay == 0 {
			return cluster.DependMet, 0
		}
		return cluster.DependMet, l.began.Add(d.Delay)
	case d.Kind == cluster.AfterAny && over, d.Kind == cluster.AfterOK && good, d.Kind == cluster.AfterNotOK && over && !good:
		return cluster.DependMet, 0
	case over:
		return cluster.DependFailed, 0
	}
	return cluster.DependOpen, 0
}

// TestDependenciesAreWhatWasSeen: whatever jobs do, and in whatever order, each
// that waits may start exactly when what was seen of the others says so: with
// all of them from the latest time on, with any from the earliest.
func TestDependenciesAreWhatWasSeen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		m.must(initCmd("c1", 1000))
		m.must(registerCmd(node("n1", "boot1", 3)))
		seen := map[cluster.JobID]life{}
		var ids []cluster.JobID
		for range 4 {
			id := m.submit(spec(0))
			ids, seen[id] = append(ids, id), life{}
		}
		waits := map[cluster.JobID]*cluster.Spec{}
		for range rapid.IntRange(4, 24).Draw(t, "steps") {
			m.now = m.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			id := rapid.SampledFrom(ids).Draw(t, "job")
			l := seen[id]
			switch step := rapid.SampledFrom([]string{"submit", "submit", "start", "start", "ok", "fail", "cancel"}).Draw(t, "step"); {
			case step == "submit":
				s := spec(0)
				for range rapid.IntRange(1, 3).Draw(t, "on") {
					d := cluster.Dependency{Kind: rapid.SampledFrom([]cluster.DependKind{cluster.After, cluster.After, cluster.AfterAny, cluster.AfterOK, cluster.AfterNotOK}).Draw(t, "kind")}
					if d.Job = rapid.SampledFrom(ids).Draw(t, "of"); d.Kind == cluster.After {
						d.Delay = time.Duration(rapid.IntRange(0, 5).Draw(t, "delay")) * time.Minute
					}
					s.Depends = append(s.Depends, d)
				}
				s.DependAny = rapid.Bool().Draw(t, "any")
				waits[m.submit(s)] = s
			case l.ended != 0: // it is over
			case step == "start" && l.began == 0:
				m.start(id)
				l.began = m.now
			case step == "cancel" && l.began == 0:
				m.must(cancelCmd(id, 0))
				l.began, l.ended = m.now, cluster.JobCancelled
			case step == "ok" && l.began > 0:
				m.report(id, cluster.JobCompleted)
				l.ended = cluster.JobCompleted
			case step == "fail" && l.began > 0:
				m.report(id, cluster.JobFailed)
				l.ended = cluster.JobFailed
			}
			seen[id] = l
			for w, s := range waits {
				if err := agreesWith(m.job(w), s, seen, m.now); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// agreesWith holds what a waiting job says against what was seen of the others.
func agreesWith(j *cluster.Job, s *cluster.Spec, seen map[cluster.JobID]life, now cluster.Time) error {
	met, failed, earliest, latest := 0, 0, cluster.Time(-1), cluster.Time(0)
	for _, d := range s.Depends {
		switch st, at := seen[d.Job].met(d); st {
		case cluster.DependMet:
			met++
			latest = max(latest, at)
			if earliest < 0 || at < earliest {
				earliest = at
			}
		case cluster.DependFailed:
			failed++
		}
	}
	want, at := cluster.ReasonDependency, latest
	switch {
	case s.DependAny && met > 0:
		want, at = "", earliest
	case s.DependAny && failed == len(s.Depends), !s.DependAny && failed > 0:
		want = cluster.ReasonDependNever
	case !s.DependAny && met == len(s.Depends):
		want = ""
	}
	if want == "" && at > now {
		want = cluster.ReasonDependency
	}
	if got := j.Barred(now).Code; got != want {
		return fmt.Errorf("job %d waits for %v, any %t, seen %v: barred %q at %d, want %q (from %d on)", j.ID, s.Depends, s.DependAny, seen, got, now, want, at)
	}
	return nil
}

package lead

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestChangesInPlaceAreCarriedOut: by the pace of preemptions, after how far the job is
// was written down, from which its cost is counted later.
func TestChangesInPlaceAreCarriedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := planBy(nil)
		s.PreemptEvery = 90 * time.Second
		l := newLab(t, Config{}, s)
		l.machine("n1", 1, nil)
		l.machine("n2", 1, nil)
		id := l.submit(job(1, func(s *cluster.Spec) {
			s.NodeRange, s.Nodes, s.InPlace = cluster.NodeRange{Min: 1, Max: 2}, 1, true
			hooked(s)
		}))[0]
		l.start(id, berth("n1", 0))
		l.say(id, cluster.JobStarting, func(r *logv1.ReportAttempt) { r.Ready = true })
		l.say(id, cluster.JobRunning, nil)
		say := func(step int64) {
			l.use(id, 1, nodes.Use{At: cluster.TimeOf(time.Now()), Progress: &cluster.Progress{At: cluster.TimeOf(time.Now()), Step: step, Total: 100_000, StepTime: time.Second}})
		}
		say(7)
		change := func(p dispatch.Preemption) {
			t.Helper()
			p.Job, p.Attempt, p.Why = id, 1, "why"
			if err := l.l.plan.preempt(t.Context(), []dispatch.Preemption{p}); err != nil {
				t.Fatal(err)
			}
		}
		change(dispatch.Preemption{Gets: []cluster.Berth{berth("n2", 0)}})
		a := l.job(id).Live()
		if len(a.Changes) != 1 || a.Width() != 2 || a.Changes[0].Step != 7 || a.Changes[0].StepTime != time.Second {
			t.Fatalf("it got %+v", a.Changes)
		}
		change(dispatch.Preemption{Gives: []cluster.NodeID{"n2"}})
		if a := l.job(id).Live(); a.Width() != 2 {
			t.Error("it gave up a node in the pause that the change before began")
		}
		l.loop(l.l.noteProgress)
		time.Sleep(cluster.CostAfter + 30*time.Second)
		say(67)
		time.Sleep(2 * progressEvery)
		if c := l.job(id).Live().Changes[0]; c.Took < 25*time.Second || c.Took > 35*time.Second {
			t.Errorf("thirty seconds were lost, counted are %s", c.Took)
		}
		change(dispatch.Preemption{Gives: []cluster.NodeID{"n2"}, For: 9})
		if a := l.job(id).Live(); a.Width() != 1 || a.Preempt != nil || len(a.Changes) != 2 {
			t.Errorf("on %d nodes after %+v, asked to end: %t", a.Width(), a.Changes, a.Preempt != nil)
		}
	})
}

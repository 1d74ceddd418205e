package lead

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// searching is a lab with a study of trials, of which as many run as there are values.
func searching(t *testing.T, trials, runs int, change func(*study.Study)) *lab {
	l := newLab(t, Config{}, planBy(nil))
	l.machine("n1", 8, nil)
	s := study.Study{Metric: "loss", Rule: study.RuleASHA, First: 10, Eta: 3, Space: []study.Axis{{Name: "lr", Kind: study.KindLog, Low: 1e-3, High: 1}}}
	if change != nil {
		change(&s)
	}
	spec := job(1, func(j *cluster.Spec) {
		j.Study = &s
		var err error
		if j.Array, err = cluster.ParseArray(fmt.Sprintf("0-%d", trials-1)); err != nil {
			t.Fatal(err)
		}
	})
	first := l.submit(spec)[0]
	for i := range runs {
		id := first + cluster.JobID(i)
		l.start(id, berth("n1", i))
		l.say(id, cluster.JobRunning, nil)
	}
	return l
}

// hear has a trial say a value after so many steps.
func (l *lab) hear(id cluster.JobID, step int64, value float64) {
	l.use(id, 1, nodes.Use{Progress: &cluster.Progress{At: cluster.TimeOf(time.Now()), Step: step, Seen: &study.Seen{Last: value}}})
}

// ended are the reasons by which trials were ended, by job.
func (l *lab) ended() map[uint64]string {
	out := map[uint64]string{}
	for _, c := range l.since(0, func(c *logv1.Command) bool { return c.GetCancelJob() != nil }) {
		out[c.cmd.GetCancelJob().Job] += c.cmd.GetCancelJob().Why
	}
	return out
}

// TestTrialsEndEarly: what trials said at a rung is written down once, those that do not
// go on end once, and a new leader ends who was not judged yet.
func TestTrialsEndEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := searching(t, 5, 4, nil)
		l.loop(l.l.trials)
		l.hear(1, 9, 1)
		l.hear(2, 11, 3)
		l.hear(3, 12, 2)
		time.Sleep(time.Minute)
		if got := l.ended(); len(got) != 0 {
			t.Fatalf("two of three were compared: %v", got)
		}
		l.hear(1, 13, 1)
		time.Sleep(time.Minute)
		got := l.ended()
		if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []uint64{2, 3}) || got[2] != "loss 3 at step 10 is number 3 of 3 trials there, and the best 1 go on" {
			t.Fatalf("ended: %v", got)
		}
		l.hear(4, 14, 0.5) // now it is the best, and the others are judged again
		time.Sleep(time.Minute)
		again := l.ended()
		if !strings.Contains(again[1], "number 2 of 4") || len(again) != 3 || again[2] != got[2] || again[3] != got[3] {
			t.Errorf("after a fourth: %v", again)
		}
		notes := 0
		for _, c := range l.since(0, func(c *logv1.Command) bool { return c.GetNoteProgress() != nil }) {
			notes += len(c.cmd.GetNoteProgress().Attempts)
		}
		if notes != 4 {
			t.Errorf("%d notes of four trials at one rung", notes)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := searching(t, 3, 3, nil)
		refused := true
		l.refuse = func(c *logv1.Command) bool { return refused && c.GetCancelJob() != nil }
		for id := range cluster.JobID(3) {
			l.hear(id+1, 10, float64(id))
		}
		l.loop(l.l.trials)
		time.Sleep(10 * time.Second)
		l.mu.Lock()
		refused = false
		l.mu.Unlock()
		l.loop(l.l.trials) // the next leader's
		time.Sleep(10 * time.Second)
		if got := l.ended(); len(got) != 2 || got[1] != "" {
			t.Errorf("after the change of leader: %v", got)
		}
	})
}

// TestABudgetEndsAll trials, those that wait too, when it is used and not before.
func TestABudgetEndsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := searching(t, 4, 2, func(s *study.Study) { s.Rule, s.Budget = study.RuleNone, 10*time.Minute })
		l.loop(l.l.trials)
		milli := l.job(1).Live().GPUMilli
		need := 10 * time.Minute * 1000 / time.Duration(2*milli)
		time.Sleep(need - 3*time.Second)
		all := func() []committed {
			return l.since(0, func(c *logv1.Command) bool { return c.GetChangeTasks() != nil })
		}
		if got := all(); len(got) != 0 {
			t.Fatalf("before the budget is used: %v", got)
		}
		time.Sleep(10 * time.Second)
		if got := all(); len(got) != 1 || !strings.HasPrefix(got[0].cmd.GetChangeTasks().Why, "the trials have used the 0.166667 GPU-hours that their study may") {
			t.Errorf("ended: %v", got)
		}
		for id := cluster.JobID(1); id <= 4; id++ {
			if j, ok := l.f.Job(id); !ok || j.Cancel == nil || (id > 2) != (j.State == cluster.JobCancelled) {
				t.Errorf("trial %d goes on: %v", id, j)
			}
		}
	})
}

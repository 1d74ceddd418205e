package lead

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestAPopulation: the worst trial begins again from the best, once, though the leader
// changes; it is not judged by what it said at once, and the budget counts all its runs.
func TestAPopulation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := searching(t, 4, 4, func(s *study.Study) { s.Rule, s.First, s.Eta, s.Budget = study.RulePBT, 10, 4, time.Hour })
		end := l.loop(l.l.trials)
		asked := func() (out []*logv1.RequeueJob) {
			for _, c := range l.since(0, func(c *logv1.Command) bool { return c.GetRequeueJob() != nil }) {
				out = append(out, c.cmd.GetRequeueJob())
			}
			return out
		}
		for id := range cluster.JobID(3) {
			l.hear(id+1, 11, float64(id))
		}
		time.Sleep(time.Minute)
		if got := asked(); len(got) != 0 {
			t.Fatalf("of three: %v", got)
		}
		l.hear(4, 12, 9)
		time.Sleep(time.Minute)
		end()
		l.loop(l.l.trials) // the next leader's
		time.Sleep(time.Minute)
		got := asked()
		if len(got) != 1 || got[0].Job != 4 || got[0].Copy.From != 0 || got[0].Copy.Generation != 1 || len(got[0].Copy.Values) != 1 || !strings.Contains(got[0].Why, "loss 9 at step 10 is number 4 of 4 trials there; it goes on from trial 0") {
			t.Fatalf("asked for %v", got)
		}
		if ended := l.ended(); len(ended) != 0 {
			t.Errorf("ended: %v", ended)
		}
		l.say(4, cluster.JobPreempted, nil)
		l.start(4, berth("n1", 3))
		l.say(4, cluster.JobRunning, nil)
		hear := func(step int64, value float64) {
			l.use(4, 2, nodes.Use{Progress: &cluster.Progress{At: cluster.TimeOf(time.Now()), Step: step, Seen: &study.Seen{Last: value}}})
		}
		hear(13, 20) // of the state it took
		time.Sleep(time.Minute)
		for id := range cluster.JobID(3) {
			l.hear(id+1, 21, float64(id))
		}
		hear(21, 30)
		time.Sleep(time.Minute)
		got = asked()
		if len(got) != 2 || got[1].Job != 4 || got[1].Copy.Generation != 2 || !strings.Contains(got[1].Why, "at step 20") {
			t.Errorf("asked for %v", got)
		}
		if c := l.job(4).Copy(); c == nil || fmt.Sprint(c.Values) != fmt.Sprint(got[0].Copy.Values) {
			t.Errorf("it runs with %+v", c)
		}
		time.Sleep(2 * time.Hour)
		if n := len(l.since(0, func(c *logv1.Command) bool { return c.GetChangeTasks() != nil })); n == 0 {
			t.Error("the budget is used and nobody ends")
		}
	})
}

package scheduler_test

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestTradedTypes: two accounts with one share each, of which one gains a fifth by an
// A100 and the other five times, and goes second. With trades the first has three T4s and
// one A100, the other three A100s: its T4 buys more than half of an A100.
func TestTradedTypes(t *testing.T) {
	t.Parallel()
	const fast, slow = "A100-SXM4-80GB", "T4"
	snapshot := func(second int) *dispatch.Snapshot {
		w := NewWorld([]*cluster.Node{Node("a", 4, fast), Node("b", 4, slow)})
		for id := range 12 {
			account, gain := "steep", 5
			if id < 6 {
				account, gain = "even", 1
			} else if id >= 6+second {
				break
			}
			j := Job(cluster.JobID(id+1), Exclusive, Predict(fast, 1000, 900, time.Hour), Predict(slow, 1000, 900, time.Duration(gain)*time.Hour+10*time.Minute))
			j.Spec.Account = account
			w.Submit(j)
		}
		s := w.Snapshot()
		s.Standing = &accounting.Standing{Fair: &accounting.Fair{
			Index: map[accounting.Assoc]int32{{Account: "even", UID: s.Waiting[0].Owner.UID}: 0, {Account: "steep", UID: s.Waiting[0].Owner.UID}: 1}, Places: []int32{1, 2}, Of: 2,
			Parts: map[string]float64{"even": 0.5, "steep": 0.5},
		}}
		return s
	}
	pol := scheduler.Default()
	pol.FairMilli = 1000
	count := func(p *dispatch.Plan) (on [2][2]int) {
		for i := range p.Starts {
			who, where := 0, 0
			if p.Starts[i].Job > 6 {
				who = 1
			}
			if p.Starts[i].Estimate.GPUType == slow {
				where = 1
			}
			on[who][where]++
		}
		return on
	}
	if p := scheduler.Schedule(snapshot(6), pol); count(&p) != [2][2]int{{4, 2}, {0, 2}} || len(p.Trades) > 0 {
		t.Errorf("without trades: %v, %v", count(&p), p.Trades)
	}
	pol.Trading = true
	p := scheduler.Schedule(snapshot(6), pol)
	if count(&p) != [2][2]int{{1, 4}, {3, 0}} || len(p.Trades) != 1 {
		t.Errorf("with trades: %v, %v", count(&p), p.Trades)
	}
	may := map[cluster.JobID]string{6: "even may hold 1 GPU", 10: "steep may hold 3 GPUs", 11: "steep may hold 3 GPUs", 12: "steep may hold 3 GPUs"}
	for _, u := range p.Unplaced {
		want := fast + ": " + may[u.Job] + " of them while others wait; even leaves 0.8 " + fast + " to steep for 2.0 T4, at a price of 2.46"
		if u.Reason.Code != cluster.ReasonQueueOrder || u.Reason.Detail != want {
			t.Errorf("job %d waits for %v, want %s", u.Job, u.Reason, want)
		}
	}
	// Nobody waits for what the second leaves: no GPU stays idle.
	if p := scheduler.Schedule(snapshot(1), pol); len(p.Starts) != 7 {
		t.Errorf("of 8 GPUs %d are taken by 7 jobs", len(p.Starts))
	}
}

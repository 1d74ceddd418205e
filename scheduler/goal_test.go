package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// power sets the predicted power on each type, in the order of the types.
func power(watts ...int64) JobOption {
	return func(j *cluster.Job) {
		for i := range j.Estimates {
			j.Estimates[i].PowerW = watts[i]
		}
	}
}

func goal(o cluster.Objective) JobOption { return func(j *cluster.Job) { j.Spec.Objective = o } }

func priced() scheduler.Policy {
	pol := scheduler.Default()
	pol.Prices = &scheduler.Prices{PerHourMilli: map[string]int64{a100: 4000, small: 2000, t4: 500}}
	return pol
}

// threeWays takes an hour at 400 W for 4.00 on the A100 80GB, two at 150 W for
// 4.00 on the 40GB, of which it takes only half, and six at 70 W on the T4.
func threeWays(id cluster.JobID, opts ...JobOption) *cluster.Job {
	h := time.Hour
	return Job(id, append([]JobOption{
		Predict(small, 20000, 500, 2*h), Predict(a100, 20000, 900, h), Predict(t4, 14000, 950, 6*h), power(150, 400, 70),
	}, opts...)...)
}

func TestObjectives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		goal cluster.Objective
		want string
		why  string
	}{
		{"", a100, ""},
		{cluster.ObjectiveLatency, a100, "best for latency (~60 min, 400 W, 0.40 kWh, price 3.60)"},
		{cluster.ObjectiveThroughput, a100, "best for throughput"},
		{cluster.ObjectiveEnergy, small, "best for energy (~2 h, 150 W, 0.30 kWh, price 2.00)"},
		{cluster.ObjectiveCost, small, "best for cost (~2 h, 150 W, 0.30 kWh, price 2.00)"},
		{cluster.ObjectiveBalanced, small, "best for balanced"},
	} {
		t.Run(string(c.goal), func(t *testing.T) {
			t.Parallel()
			j := threeWays(1, goal(c.goal))
			w := NewWorld([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, small), Node("n3", 1, t4)}, j)
			p := scheduler.Schedule(w.Snapshot(), priced())
			if len(p.Starts) != 1 || p.Starts[0].Estimate.GPUType != c.want || !strings.Contains(p.Starts[0].Why, c.why) {
				t.Errorf("got %+v, want %s because %q", p.Starts, c.want, c.why)
			}
		})
	}
}

func TestLimitsOfPowerAndPrice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		w, milli  int64
		want, why string
	}{
		{"no limit", 0, 0, a100, ""},
		{"power", 200, 0, small, "GPU 0 of n1 (A100-SXM4-80GB): is predicted to draw 400 W on A100-SXM4-80GB, at most 200 W are allowed (--max-power)"},
		{"less power", 100, 0, t4, "is predicted to draw 150 W"},
		{"price", 0, 2500, small, "is predicted to take ~60 min, 400 W, 0.40 kWh, price 3.60 on A100-SXM4-80GB, a price of at most 2.5 is allowed (--max-cost)"},
		{"too little power", 60, 0, "", "is predicted to draw"},
		{"too low a price", 0, 10, "", "a price of at most 0.01 is allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := threeWays(1)
			j.Spec.MaxPowerW, j.Spec.MaxCostMilli = c.w, c.milli
			w := NewWorld([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, small), Node("n3", 1, t4)}, j)
			pol := priced()
			p, never := scheduler.Schedule(w.Snapshot(), pol), rules.NeverFits(w.Nodes, j, pol)
			switch {
			case c.want == "" && (len(p.Starts) > 0 || never == nil || !strings.Contains(never.Msg, c.why)):
				t.Errorf("starts %v, never %v", p.Starts, never)
			case c.want != "" && (never != nil || len(p.Starts) != 1 || p.Starts[0].Estimate.GPUType != c.want):
				t.Errorf("starts %+v, never %v, want %s", p.Starts, never, c.want)
			}
			all := ""
			for _, e := range scheduler.Explain(w.Snapshot(), j, pol) {
				all += e.Reason.String() + "\n"
			}
			if !strings.Contains(all, c.why) {
				t.Errorf("explained by\n%swant %q", all, c.why)
			}
		})
	}
}

// TestGoalsHold: whatever is asked for, starts fit, nobody is beyond a limit,
// a second pass has nothing to do, and who has an objective alone in the
// cluster starts.
func TestGoalsHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, true), priced()
		for _, j := range w.Snapshot().Waiting {
			spec := *j.Spec
			spec.Objective = rapid.SampledFrom(append(cluster.Objectives(), "")).Draw(t, "objective")
			if rapid.Bool().Draw(t, "limited") {
				spec.MaxCostMilli = rapid.Int64Range(1, 6000).Draw(t, "price")
			}
			c := j.Clone()
			c.Spec = &spec
			w.Jobs[j.ID] = c
		}
		s := w.Snapshot()
		p := scheduler.Schedule(s, pol)
		if q := scheduler.Schedule(s, pol); len(q.Starts) != len(p.Starts) {
			t.Fatal("equal arguments give another plan")
		}
		for _, st := range p.Starts {
			j := w.Jobs[st.Job]
			if len(st.Berth.GPUs) == 0 || j.Spec.MaxCostMilli == 0 {
				continue
			}
			hours := time.Duration(0)
			for _, g := range st.Berth.GPUs {
				d := st.Estimate.Duration
				if d == 0 {
					d = j.Spec.Duration
				}
				if l := j.Spec.TimeLimit; l > 0 && (d == 0 || d > l) {
					d = l
				}
				u, _ := w.Ledg.GPU(g.GPU)
				hours += d / 1000 * time.Duration(max(g.Share.Milli, g.Share.MemMiB*1000/u.SellableMiB))
			}
			if price := hours.Hours() * float64(pol.Prices.PerHourMilli[st.Estimate.GPUType]); price > float64(j.Spec.MaxCostMilli)+2 {
				t.Fatalf("job %d costs %.0f, at most %d was allowed", j.ID, price, j.Spec.MaxCostMilli)
			}
		}
		apply(t, w, p, pol)
	})
}

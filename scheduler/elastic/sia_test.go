package elastic_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/elastic"
)

// mixed is nodes of four GPUs of some type, of which some are idle.
type mixed []struct {
	typ  string
	idle int
}

func (m mixed) world() *dispatch.Snapshot {
	idle := make([]int, len(m))
	for i := range m {
		idle[i] = m[i].idle
	}
	s := world(idle...)
	for i, n := range s.Nodes {
		for k := range n.GPUs {
			n.GPUs[k].Type = m[i].typ
		}
		s.Ledger.SetNode(n)
	}
	return s
}

// takes says how long a job takes on a T4, and how many times as fast an A100 is.
func takes(j *cluster.Job, onT4 time.Duration, times float64) {
	j.Estimates = []cluster.Estimate{{GPUType: "A100", Duration: time.Duration(float64(onT4) / times)}, {GPUType: "T4", Duration: onT4}}
}

// TestSiaChoosesTypesAndNumbers: the number of GPUs and their type together, so that each
// is where it gains most over the others.
func TestSiaChoosesTypesAndNumbers(t *testing.T) {
	t.Parallel()
	type job struct {
		most     int
		times    float64 // an A100 over a T4
		exchange float64
		only     string
		want     elastic.Size
	}
	for name, tc := range map[string]struct {
		nodes mixed
		jobs  []job
	}{
		"the better type":                 {mixed{{"T4", 4}, {"A100", 4}}, []job{{4, 3, 0.1, "", elastic.Size{Units: 4, Type: "A100"}}}},
		"few of it beat many of another":  {mixed{{"T4", 4}, {"A100", 1}}, []job{{4, 6, 0.1, "", elastic.Size{Units: 1, Type: "A100"}}}},
		"many of another beat few of it":  {mixed{{"T4", 4}, {"A100", 1}}, []job{{4, 2, 0.1, "", elastic.Size{Units: 4, Type: "T4"}}}},
		"who gains more has it":           {mixed{{"T4", 4}, {"A100", 4}}, []job{{4, 1.5, 0.1, "", elastic.Size{Units: 4, Type: "T4"}}, {4, 5, 0.1, "", elastic.Size{Units: 4, Type: "A100"}}}},
		"who scales has more of another":  {mixed{{"T4", 4}, {"A100", 1}}, []job{{4, 3, 0, "", elastic.Size{Units: 4, Type: "T4"}}, {4, 3, 0.7, "", elastic.Size{Units: 1, Type: "A100"}}}},
		"the type that its user names":    {mixed{{"T4", 4}, {"A100", 4}}, []job{{4, 5, 0.1, "T4", elastic.Size{Units: 4, Type: "T4"}}}},
		"the other is all taken":          {mixed{{"T4", 2}, {"A100", 0}}, []job{{4, 5, 0.1, "", elastic.Size{Units: 2, Type: "T4"}}}},
		"a worse type is left":            {mixed{{"A100", 2}, {"T4", 2}}, []job{{2, 0.5, 0.1, "", elastic.Size{Units: 2, Type: "T4"}}}},
		"the oldest of those that starve": {mixed{{"T4", 1}, {"A100", 1}}, []job{{4, 2, 0.1, "", elastic.Size{Units: 1, Type: "T4"}}, {4, 4, 0.1, "", elastic.Size{Units: 1, Type: "A100"}}, {4, 9, 0.1, "", elastic.Size{}}}},
	} {
		s := tc.nodes.world()
		for i, w := range tc.jobs {
			j := waits(s, 1, w.most, time.Hour-time.Duration(i)*time.Minute)
			j.Spec.GPUType = w.only
			takes(j, 3*time.Hour, w.times)
			shown(j, w.exchange)
		}
		got := elastic.Rules{Sizing: elastic.Sia}.Sizes(s)
		for i, w := range tc.jobs {
			if size := got[s.Waiting[i].ID]; size != w.want {
				t.Errorf("%s: job %d gets %+v, want %+v", name, i+1, size, w.want)
			}
		}
		for i, j := range elastic.Sized(s, got).Waiting {
			if want := tc.jobs[i].want; want.Units > 0 && (j.Spec.GPUType != want.Type || j.Spec.GPUs != want.Units) || s.Waiting[i].Spec.GPUType != tc.jobs[i].only {
				t.Errorf("%s: job %d is planned as %d of %s", name, j.ID, j.Spec.GPUs, j.Spec.GPUType)
			}
		}
	}
}

// TestSiaIsNearTheOptimum compares the sum that is minimised with the least that any
// division has, found by trying all, for up to five jobs of one to four GPUs on three nodes
// of two types.
func TestSiaIsNearTheOptimum(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(1, 2))
	sum, worst, equal := 0.0, 0.0, 0
	const instances = 300
	for range instances {
		s := mixed{{"T4", chance.IntN(5)}, {"T4", chance.IntN(3)}, {"A100", chance.IntN(5)}}.world()
		curves := map[cluster.JobID]siaJob{}
		for range 2 + chance.IntN(4) {
			j := waits(s, 1, 1+1+chance.IntN(3), time.Hour)
			of := siaJob{most: j.Spec.GPURange.Max, exchange: 0.4 * chance.Float64(), times: 0.5 + 6*chance.Float64()}
			takes(j, 7*time.Hour, of.times)
			shown(j, of.exchange)
			curves[j.ID] = of
		}
		got, cost := elastic.Rules{Sizing: elastic.Sia}.Sizes(s), 0.0
		for _, j := range s.Waiting {
			cost += curves[j.ID].cost(got[j.ID].Type, got[j.ID].Units)
		}
		least := leastSum(s, curves)
		gap := cost/least - 1
		if gap < -1e-9 {
			t.Fatalf("%v: a sum of %g, and none is below %g", got, cost, least)
		}
		if sum, worst = sum+gap, max(worst, gap); gap < 1e-9 {
			equal++
		}
	}
	t.Logf("%d instances: %d are optimal, the mean is %.3f %% above, the worst %.1f %%", instances, equal, 100*sum/instances, 100*worst)
	if sum/instances > 0.005 || worst > 0.1 || equal < instances*8/10 {
		t.Errorf("%d of %d are optimal, the mean is %.3f %% above, the worst %.1f %%", equal, instances, 100*sum/instances, 100*worst)
	}
}

// siaJob is what the sum depends on.
type siaJob struct {
	most            int
	exchange, times float64
}

func (j siaJob) speed(typ string, n int) float64 {
	v := float64(n) / (1 + j.exchange*float64(n-1))
	if typ == "A100" {
		v *= j.times
	}
	return v
}

func (j siaJob) cost(typ string, n int) float64 {
	if n == 0 {
		return 1.1
	}
	return math.Pow(j.speed(typ, n)/min(1, j.times), -0.5)
}

// leastSum tries all divisions in which the others can still have one GPU each.
func leastSum(s *dispatch.Snapshot, of map[cluster.JobID]siaJob) float64 {
	idle := make([]int, len(s.Nodes))
	total := 0
	for i, n := range s.Nodes {
		for k := range n.GPUs {
			if u, _ := s.Ledger.GPU(n.GPUs[k].ID); u.Idle() {
				idle[i]++
				total++
			}
		}
	}
	waiting := s.Waiting
	spare := max(0, total-len(waiting))
	if total < len(waiting) {
		waiting = waiting[:total]
	}
	var try func(k, spare int) float64
	try = func(k, spare int) float64 {
		if k == len(waiting) {
			return 1.1 * float64(len(s.Waiting)-len(waiting))
		}
		j := of[waiting[k].ID]
		best := 1.1 + try(k+1, spare)
		for i := range idle {
			for n := 1; n <= min(j.most, idle[i], spare+1); n++ {
				if n > 1 && j.speed("T4", n)-j.speed("T4", n-1) < 0.1 {
					break
				}
				idle[i] -= n
				best = min(best, j.cost(s.Nodes[i].GPUs[0].Type, n)+try(k+1, spare-n+1))
				idle[i] += n
			}
		}
		return best
	}
	return try(0, spare)
}

// TestSiaRestartsOnAnotherType: a running job goes where it is faster if that is idle; not
// for little, nor if its user named the type, or it has not the memory that it needs.
func TestSiaRestartsOnAnotherType(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(j *cluster.Job)
		want   string
	}{
		"it is faster there":         {func(*cluster.Job) {}, "begins again with 4 × A100 instead of 2 × T4: they are idle, and nobody waits"},
		"it is hardly faster":        {func(j *cluster.Job) { takes(j, 3*time.Hour, 0.6) }, ""},
		"its user named the type":    {func(j *cluster.Job) { j.Spec.GPUType = "T4" }, ""},
		"it needs more memory":       {func(j *cluster.Job) { j.Spec.GPUMemMiB = 15_500 }, ""},
		"another type by prediction": {func(j *cluster.Job) { j.Estimates[0].GPUMemMiB, j.Estimates[0].ConfidenceMilli = 99_000, 1000 }, ""},
		"it began just now":          {func(j *cluster.Job) { j.Live().Started = now.Add(-time.Minute) }, ""},
		"it resizes in place":        {func(j *cluster.Job) { j.Spec.InPlace = true }, ""},
	} {
		s := mixed{{"T4", 0}, {"A100", 4}}.world()
		j := runs(s, "n0", 2, time.Hour)
		j.Submitted = now.Add(-10 * time.Hour)
		takes(j, 9*time.Hour, 3)
		tc.change(j)
		got := elastic.Rules{Sizing: elastic.Sia}.Restarts(s, s.Ledger.Clone(), &dispatch.Plan{})
		why := ""
		if len(got) == 1 {
			why = got[0].Why
		}
		if len(got) > 1 || why != tc.want {
			t.Errorf("%s: %+v, want %q", name, got, tc.want)
		}
	}
}

// TestSiaTrades: nothing of the better type is idle, and a job that gains little by it
// leaves it to one that gains much.
func TestSiaTrades(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		times [2]float64 // an A100 over a T4, for the one on A100 and the one on T4
		want  string
	}{
		{[2]float64{1.1, 8}, "begins again with 4 × T4 instead of 4 × A100: job 2 gains more from them (sia)"},
		{[2]float64{8, 8}, "begins again with fewer GPUs than 4: job 2 gains more from them (sia)"},
		{[2]float64{8, 1.1}, ""},
	} {
		s := mixed{{"A100", 0}, {"T4", 0}, {"T4", 4}}.world()
		for i, node := range []cluster.NodeID{"n0", "n1"} {
			j := runs(s, node, 4, time.Hour)
			j.Submitted = now.Add(-10 * time.Hour)
			takes(j, 20*time.Hour, tc.times[i])
		}
		s.Running[0].Live().Estimate.GPUType = "A100"
		got := elastic.Rules{Sizing: elastic.Sia}.Restarts(s, s.Ledger.Clone(), &dispatch.Plan{})
		if why := fmt.Sprint(got); len(got) > 1 || (len(got) == 1) != (tc.want != "") || !strings.Contains(why, tc.want) {
			t.Errorf("%v: %+v, want %q", tc.times, got, tc.want)
		}
	}
}

// TestRunsShowTypes: what runs showed of two types counts more than what was predicted, and
// the curve of one type holds for another until that has its own.
func TestRunsShowTypes(t *testing.T) {
	t.Parallel()
	s := mixed{{"T4", 2}, {"A100", 2}}.world()
	j := waits(s, 1, 2, time.Hour)
	takes(j, time.Hour, 5)
	for i, typ := range []string{"T4", "A100"} {
		j.Attempts = append(j.Attempts, cluster.Attempt{No: uint32(i + 1), State: cluster.JobPreempted, Estimate: cluster.Estimate{GPUType: typ},
			Berth: cluster.Berth{GPUs: make([]cluster.GPUShare, 1)}, Progress: &cluster.Progress{StepTime: time.Second * time.Duration(i+1)}})
	}
	if got := (elastic.Rules{Sizing: elastic.Sia}).Sizes(s)[j.ID]; got != (elastic.Size{Units: 2, Type: "T4"}) {
		t.Errorf("its steps take twice as long on an A100, and it gets %+v", got)
	}
	shown(j, 0)
	j.Attempts = append(j.Attempts, cluster.Attempt{No: 3, State: cluster.JobPreempted, Estimate: cluster.Estimate{GPUType: "A100"},
		Berth: cluster.Berth{GPUs: make([]cluster.GPUShare, 1)}, Progress: &cluster.Progress{StepTime: time.Second}})
	if four := elastic.CurveOf(j).Speedup(4); four < 4-1e-9 {
		t.Errorf("four GPUs of another type are %g times as fast as one, want as with the first", four)
	}
}

package policies_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/policies/place"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

const ms = time.Millisecond

// computes and prepares are jobs that wait for different things.
func computes() place.Stages { return place.Stages{400 * ms, ms, 0} }
func prepares() place.Stages { return place.Stages{ms, 400 * ms, 0} }

func TestPeriod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		group []place.Stages
		want  time.Duration
	}{
		{"nobody", nil, 0},
		{"one", []place.Stages{{3, 4, 5}}, 12},
		{"two that wait for different things", []place.Stages{{10, 1, 0}, {1, 10, 0}}, 11},
		{"two that compute", []place.Stages{{10, 0, 0}, {10, 0, 0}}, 20},
		{"two that prepare, side by side for half of it", []place.Stages{{0, 10, 0}, {0, 10, 0}}, 10},
		{"four of two sorts", []place.Stages{{10, 0, 0}, {10, 0, 0}, {0, 20, 0}, {0, 20, 0}}, 30},
		{"two that send", []place.Stages{{0, 0, 7}, {0, 0, 8}}, 15},
		{"five take turns", []place.Stages{{1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := place.Period(c.group); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// TestPeriodLaws: a period holds every stage, is no longer than taking turns,
// depends on no order, and grows with stages.
func TestPeriodLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		stage := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.IntRange(0, 1000).Draw(t, "stage")) })
		group := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) place.Stages {
			return place.Stages{stage.Draw(t, "card"), stage.Draw(t, "cores"), stage.Draw(t, "network")}
		}), 2, 4).Draw(t, "group")
		got := place.Period(group)
		var card, network, all time.Duration
		for _, s := range group {
			card, network, all = card+s[0], network+s[2], all+s[0]+s[1]+s[2]
			if got < s[1] {
				t.Errorf("period %d, one prepares for %d", got, s[1])
			}
		}
		if got < max(card, network) || got > all {
			t.Errorf("period %d of %v: want from %d to %d", got, group, max(card, network), all)
		}
		if again := place.Period(rapid.Permutation(group).Draw(t, "order")); again != got {
			t.Errorf("period %d, in another order %d", got, again)
		}
		more := slices.Clone(group)
		more[0][rapid.IntRange(0, 2).Draw(t, "longer")] += 10
		if place.Period(more) < got {
			t.Errorf("period %d, with a longer stage %d", got, place.Period(more))
		}
	})
}

// counting is muri as its simulator has it.
func counting(t *testing.T) policies.Policy {
	return must(t, "muri", policies.Options{Evict: policies.EvictRanked, MinRun: -1})
}

// quarter is a job that declares a quarter of each card.
func quarter(id cluster.JobID, gpus int, lasts time.Duration) *cluster.Job {
	return Job(id, GPUs(gpus), Mem(1000), Util(250), Lasts(lasts))
}

// measured says what of each job's stages is known, and lets all be preempted.
func measured(s *dispatch.Snapshot, kinds map[cluster.JobID]place.Stages) *dispatch.Snapshot {
	s.Terms = map[cluster.JobID]dispatch.Terms{}
	for _, j := range slices.Concat(s.Waiting, s.Running) {
		k := kinds[j.ID]
		s.Terms[j.ID] = dispatch.Terms{Preemptible: true, Stages: k, Iteration: k[0] + k[1] + k[2]}
	}
	return s
}

// TestTeams: two cards.
func TestTeams(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	for _, c := range []struct {
		name   string
		runs   func(s *scene)
		waits  []*cluster.Job
		kinds  map[cluster.JobID]place.Stages
		starts at
		ends   []cluster.JobID
	}{
		{"nobody shares while there is room", nil, []*cluster.Job{quarter(1, 1, m), quarter(2, 1, 2*m)},
			map[cluster.JobID]place.Stages{1: computes(), 2: prepares()}, at{1: "n1-00", 2: "n1-01"}, nil},
		{"the first alone, as long as that will do", nil, []*cluster.Job{quarter(1, 1, m), quarter(2, 1, 2*m), quarter(3, 1, 3*m)},
			map[cluster.JobID]place.Stages{1: computes(), 2: computes(), 3: prepares()}, at{1: "n1-00", 2: "n1-01", 3: "n1-01"}, nil},
		{"who would only take turns waits", nil, []*cluster.Job{quarter(1, 1, m), quarter(2, 1, 2*m), quarter(3, 1, 3*m)},
			map[cluster.JobID]place.Stages{1: computes(), 2: computes(), 3: computes()}, at{1: "n1-00", 2: "n1-01"}, nil},
		{"gangs share all of their cards", nil, []*cluster.Job{quarter(1, 2, m), quarter(2, 2, 2*m)},
			map[cluster.JobID]place.Stages{1: computes(), 2: prepares()}, at{1: "n1-00,n1-01", 2: "n1-00,n1-01"}, nil},
		{"a gang and one of its cards do not", nil, []*cluster.Job{quarter(1, 2, m), quarter(2, 1, 20*m)},
			map[cluster.JobID]place.Stages{1: computes(), 2: prepares()}, at{1: "n1-00,n1-01"}, nil},
		{"who runs is joined", func(s *scene) { s.runs(1, 1000, 250, time.Hour, 20*m, "n1-00", "n1-01") }, []*cluster.Job{quarter(2, 2, 2*m)},
			map[cluster.JobID]place.Stages{1: computes(), 2: prepares()}, at{2: "n1-00,n1-01"}, nil},
		{"who runs and has most to do makes room", func(s *scene) { s.runs(1, 1000, 250, time.Hour, 20*m, "n1-00", "n1-01") }, []*cluster.Job{quarter(2, 2, 2*m)},
			map[cluster.JobID]place.Stages{1: computes(), 2: computes()}, at{}, []cluster.JobID{1}},
		{"and stays if it has least", func(s *scene) { s.runs(1, 1000, 250, time.Hour, 20*m, "n1-00", "n1-01") }, []*cluster.Job{quarter(2, 2, 200*m)},
			map[cluster.JobID]place.Stages{1: computes(), 2: computes()}, at{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(Node("n1", 2, a100))
			if c.runs != nil {
				c.runs(s)
			}
			plan := counting(t).Plan(measured(s.waits(c.waits...).snap(t), c.kinds))
			if d := cmp.Diff(c.starts, startsOf(&plan)); d != "" {
				t.Errorf("starts (-want +got):\n%s", d)
			}
			var ends []cluster.JobID
			for _, x := range plan.Preempt {
				ends = append(ends, x.Job)
			}
			if d := cmp.Diff(c.ends, ends); d != "" {
				t.Errorf("ends (-want +got):\n%s", d)
			}
		})
	}
}

// end ends an attempt for others; the job waits again.
func end(w *World, id cluster.JobID) {
	j := w.Jobs[id].Clone()
	a := &j.Attempts[len(j.Attempts)-1]
	w.Ledg.Release(&a.Berth)
	a.State, a.Ended, j.State = cluster.JobPreempted, w.Clock, cluster.JobPending
	w.Jobs[id] = j
}

// TestTeamsSettle: who is ended starts again in the next plan or waits for
// good: with nothing new two plans are enough, and then nobody is ended.
func TestTeamsSettle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := must(t, "muri", policies.Options{Evict: policies.EvictRanked, MinRun: -1, MaxPreempt: 999, Order: rapid.SampledFrom([]string{"srsf", "srtf"}).Draw(t, "order")})
		w := NewWorld([]*cluster.Node{Node("n1", 4, a100), Node("n2", 2, a100)})
		kinds, id := map[cluster.JobID]place.Stages{}, cluster.JobID(0)
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			for range rapid.IntRange(1, 8).Draw(t, "new") {
				id++
				w.Submit(quarter(id, rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "gpus"), time.Duration(rapid.IntRange(60, 9000).Draw(t, "lasts"))*time.Second))
				kinds[id] = rapid.SampledFrom([]place.Stages{computes(), prepares(), {300 * ms, 100 * ms, 50 * ms}, {}}).Draw(t, "kind")
			}
			w.Advance(time.Minute)
			for n := 0; ; n++ {
				s := measured(w.Snapshot(), kinds)
				plan := p.Plan(s)
				checkPlan(t, w, s, &plan)
				if len(plan.Preempt) == 0 {
					w.Apply(&plan)
					break
				}
				if n > 3 {
					t.Fatalf("plan %d at one moment still ends %+v", n, plan.Preempt)
				}
				w.Apply(&plan)
				for _, x := range plan.Preempt {
					end(w, x.Job)
				}
			}
			if err := w.Check(); err != nil || len(w.Rejected) > 0 {
				t.Fatalf("%v, rejected %v", err, w.Rejected)
			}
		}
	})
}

package site_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// typed turns every second node into one of A100, on which jobs take as much of their time
// on a T4 as part says.
func (w *sizingWorld) typed() {
	for i, n := range w.snap.Nodes {
		for k := range n.GPUs {
			if i%2 == 0 {
				n.GPUs[k].Type = "A100"
			}
		}
		w.snap.Ledger.SetNode(n)
	}
}

func on(j *cluster.Job, part float64) *cluster.Job {
	e := j.Estimates[0]
	e.GPUType, e.Duration = "A100", time.Duration(part*float64(e.Duration))
	j.Estimates = append([]cluster.Estimate{e}, j.Estimates...)
	return j
}

// held returns of which type a running job has GPUs, and how many.
func (w *sizingWorld) held(id cluster.JobID) (typ string, n int) {
	for _, j := range w.snap.Running {
		if a := j.Last(); j.ID == id {
			return a.Estimate.GPUType, len(a.AllGPUs())
		}
	}
	return "", 0
}

// TestSiaPlansTypes: who gains most by the better type starts there, the other one moves
// there once that is idle, and who named a type stays.
func TestSiaPlansTypes(t *testing.T) {
	t.Parallel()
	s := &site.Site{Chosen: site.Chosen{Policy: scheduler.Default(), Elastic: elastic.Rules{Sizing: elastic.Sia}}}
	s.Policy.YieldAfter, s.Policy.MaxReasons = 0, -1
	w := newSizingWorld(4, t.Errorf)
	w.typed()
	w.snap.Nodes = w.snap.Nodes[:3] // two of A100, one of T4
	few, much, named := on(ranged(1, 20*time.Hour, 0), 0.6), on(ranged(2, 20*time.Hour, 0), 0.1), on(ranged(3, 20*time.Hour, 0), 0.1)
	named.Spec.GPUType = "A100"
	for i, j := range []*cluster.Job{few, much, named} {
		j.Spec.Duration = []time.Duration{20 * time.Hour, 30 * time.Minute, 20 * time.Hour}[i]
		w.come(j.ID, j)
	}
	w.minute(s)
	for id, want := range map[cluster.JobID]string{1: "T4", 2: "A100", 3: "A100"} {
		if typ, n := w.held(id); typ != want || n != 4 {
			t.Errorf("job %d starts on %d of %s, want 4 of %s", id, n, typ, want)
		}
	}
	for range 45 {
		w.step()
		w.minute(s)
	}
	if typ, n := w.held(1); typ != "A100" || n != 4 {
		t.Errorf("job 1 has %d of %s after the others' end, want 4 of A100", n, typ)
	}
	if len(few.Attempts) != 2 || len(named.Attempts) != 1 {
		t.Errorf("job 1 ran %d times, want once more on the better type; job 3 %d, want once", len(few.Attempts), len(named.Attempts))
	}
}

// TestTypesKeepTheLaws: with two types, a sizing that chooses types and one that does not
// keep the same laws.
func TestTypesKeepTheLaws(t *testing.T) {
	t.Parallel()
	moved := 0
	for _, sizing := range []elastic.Sizing{elastic.Pollux, elastic.Sia} {
		rapid.Check(t, func(t *rapid.T) {
			s := &site.Site{Chosen: site.Chosen{Policy: scheduler.Default(), Elastic: elastic.Rules{Sizing: sizing}}}
			s.Policy.YieldAfter, s.Policy.MaxReasons = 0, -1
			w := newSizingWorld(rapid.IntRange(2, 4).Draw(t, "nodes"), t.Errorf)
			w.typed()
			var all []*cluster.Job
			for id := cluster.JobID(1); w.snap.Now < cluster.Time(1e15).Add(60*time.Minute); {
				for range rapid.IntRange(-3, 2).Draw(t, "come") {
					j := on(drawSized(t), rapid.Float64Range(0.1, 1.5).Draw(t, "of its time on the other"))
					j.Spec.GPUType = rapid.SampledFrom([]string{"", "", "T4", "A100"}).Draw(t, "type")
					w.come(id, j)
					all = append(all, j)
					id++
				}
				w.minute(s)
				w.step()
			}
			for _, j := range all {
				for i := range j.Attempts {
					typ := j.Attempts[i].Estimate.GPUType
					if want := j.Spec.GPUType; want != "" && typ != want {
						t.Errorf("job %d asks for %s and runs on %s", j.ID, want, typ)
					}
					if sizing == elastic.Sia && typ != j.Attempts[0].Estimate.GPUType {
						moved++
					}
				}
			}
		})
	}
	if moved == 0 {
		t.Error("by sia nobody ever ran on another type")
	}
}

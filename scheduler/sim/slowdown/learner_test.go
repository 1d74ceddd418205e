package slowdown

import (
	"testing"

	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// TestLearnerByHand: which runs say something, and what. Times are microseconds.
func TestLearnerByHand(t *testing.T) {
	t.Parallel()
	world := NewPairs("hand", Linear{Beside: 0.5})
	world.Set("", "a", "b", 0.5)
	world.Set("", "b", "a", 0.8)
	w := &workload.Workload{Jobs: []workload.Job{{Model: "a", GPUs: 1}, {Model: "b", GPUs: 1}, {Model: "c", GPUs: 1}, {GPUs: 1}}}
	f := workload.Homogeneous(1, 2, "T4", 16000)
	const a, b, c, nameless = 0, 1, 2, 3
	type run struct {
		job        int
		from, till int64
		fails      bool
	}
	alone := func(job int) run { return run{job: job, from: 0, till: 10} }
	for _, tc := range []struct {
		name string
		runs []run
		slow float64 // of a beside b; 0 is not known
	}{
		{"never alone", []run{{a, 20, 120, false}, {b, 20, 200, false}}, 0},
		{"alone and beside", []run{alone(a), {a, 20, 120, false}, {b, 20, 200, false}}, 2},
		{"alone, but failed", []run{{a, 0, 10, true}, {a, 20, 120, false}, {b, 20, 200, false}}, 0},
		{"beside, but failed", []run{alone(a), {a, 20, 120, true}, {b, 20, 200, false}}, 0},
		{"the neighbour came before and left", []run{alone(a), {b, 15, 60, false}, {a, 20, 120, false}}, 2},
		{"the neighbour was there for a quarter", []run{alone(a), {b, 15, 45, false}, {a, 20, 120, false}}, 0},
		{"the neighbour hardly counts, so that it is alone", []run{{a, 0, 100, false}, {b, 95, 99, false}, {a, 200, 300, false}, {b, 200, 400, false}}, 2},
		{"one after the other of the same program", []run{alone(a), {a, 20, 120, false}, {b, 20, 60, false}, {b, 61, 130, false}}, 2},
		{"two of a program at once", []run{alone(a), {a, 20, 120, false}, {b, 20, 130, false}, {b, 20, 130, false}}, 0},
		{"two programs", []run{alone(a), {a, 20, 120, false}, {b, 20, 130, false}, {c, 20, 130, false}}, 0},
		{"another that hardly counts", []run{alone(a), {a, 20, 120, false}, {b, 20, 130, false}, {c, 20, 25, false}}, 2},
		{"nobody knows what lay there", []run{alone(a), {a, 20, 120, false}, {nameless, 20, 130, false}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := NewLearner(w, &f, world)
			for now := range int64(500) {
				var on []int32
				for i, r := range tc.runs {
					if r.till == now {
						l.End(int32(i), now, !r.fails)
					}
					if r.from < now && now < r.till {
						on = append(on, int32(i))
					}
				}
				for i, r := range tc.runs {
					if r.from == now {
						l.Begin(int32(i), now, &w.Jobs[r.job], "T4", on)
						on = append(on, int32(i))
					}
				}
			}
			id := func(sig string) uint64 { return l.Know().Jobs[sig].Self }
			o, known := l.Know().Cards[0].Histories[[2]uint64{id("a/1"), id("b/1")}]
			if got := (2 + o) / (2 - o); known != (tc.slow > 0) || known && !near(got, tc.slow) {
				t.Errorf("a beside b is slower %f times, known %t, want %f", got, known, tc.slow)
			}
		})
	}
}

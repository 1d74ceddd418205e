package interfere_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/model/interfere"
)

// rounding is the slack for properties of sums of floats.
const rounding = 1e-12

func genJob() *rapid.Generator[interfere.Job] {
	return rapid.Custom(func(t *rapid.T) interfere.Job {
		j := interfere.Job{
			Signature: rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(t, "signature"),
			Family:    rapid.SampledFrom([]string{"", "f", "g"}).Draw(t, "family"),
			Util:      rapid.Float64Range(0, 1).Draw(t, "util"),
			Bandwidth: rapid.Float64Range(0, 1).Draw(t, "bandwidth"),
		}
		switch rapid.IntRange(0, 9).Draw(t, "known") {
		case 0:
			j.Util = interfere.Unknown
		case 1, 2:
			j.Bandwidth = interfere.Unknown
		}
		return j
	})
}

func genJobs(low, high int) *rapid.Generator[[]interfere.Job] {
	return rapid.SliceOfN(genJob(), low, high)
}

func genMode() *rapid.Generator[interfere.Mode] {
	return rapid.SampledFrom([]interfere.Mode{interfere.TimeSlicing, interfere.MPS, interfere.MIG})
}

func genCoefficients() *rapid.Generator[interfere.Coefficients] {
	return rapid.Custom(func(t *rapid.T) interfere.Coefficients {
		f := rapid.Float64Range(0, 2)
		return interfere.Coefficients{
			Switch: f.Draw(t, "switch"), Compute: f.Draw(t, "compute"), Memory: f.Draw(t, "memory"),
			Bandwidth: f.Draw(t, "bandwidth"), Blind: f.Draw(t, "blind"),
		}
	})
}

func TestPrior(t *testing.T) {
	job := func(util, bw float64) interfere.Job { return interfere.Job{Util: util, Bandwidth: bw} }
	full, half, idle := job(1, 1), job(0.5, 0.5), job(0, 0)
	blind := job(interfere.Unknown, 0.5)
	for _, tc := range []struct {
		name string
		mode interfere.Mode
		jobs []interfere.Job
		want []float64 // slowdowns
	}{
		{"nobody", interfere.TimeSlicing, nil, nil},
		{"alone", interfere.TimeSlicing, []interfere.Job{full}, []float64{1}},
		{"alone and unknown", interfere.MPS, []interfere.Job{blind}, []float64{1}},
		{"two that fill it take turns", interfere.TimeSlicing, []interfere.Job{full, full}, []float64{2.02, 2.02}},
		{"three that fill it take turns", interfere.TimeSlicing, []interfere.Job{full, full, full}, []float64{3.04, 3.04, 3.04}},
		{"three that fill it with mps", interfere.MPS, []interfere.Job{full, full, full}, []float64{3.02, 3.02, 3.02}},
		{"halves meet in a quarter of the time", interfere.TimeSlicing, []interfere.Job{half, half}, []float64{1.27, 1.27}},
		{"idle costs its switches", interfere.TimeSlicing, []interfere.Job{full, idle}, []float64{1.02, 1.02}},
		{"bandwidth beyond the peak only together", interfere.MPS, []interfere.Job{job(0, 0.5), job(0, 0.5), job(0, 0.5)}, []float64{1.145, 1.145, 1.145}},
		{"bandwidth guessed", interfere.MPS, []interfere.Job{job(1, interfere.Unknown), job(0.5, interfere.Unknown)}, []float64{1.3225, 1.3225}},
		{"unknown takes turns", interfere.TimeSlicing, []interfere.Job{blind, half}, []float64{2.02, 2.02}},
		{"slices do not meet", interfere.MIG, []interfere.Job{full, full}, []float64{1, 1}},
		{"nonsense is cut", interfere.TimeSlicing, []interfere.Job{job(7, 9), job(math.NaN(), 0)}, []float64{2.02, 2.02}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := interfere.DefaultCoefficients(tc.mode)
			got := c.Speeds(tc.jobs, nil)
			if len(got) != len(tc.want) {
				t.Fatalf("%d speeds, want %d", len(got), len(tc.want))
			}
			for i, w := range tc.want {
				if math.Abs(1/got[i]-w) > 1e-9 {
					t.Errorf("job %d slows down by %v, want %v", i, 1/got[i], w)
				}
			}
		})
	}
}

func TestTooMany(t *testing.T) {
	jobs := make([]interfere.Job, interfere.MaxSet+1)
	c := interfere.DefaultCoefficients(interfere.MIG)
	var m interfere.Model
	for _, got := range [][]float64{c.Speeds(jobs, nil), m.Speeds(interfere.Set{Jobs: jobs}, nil)} {
		if len(got) != len(jobs) {
			t.Fatalf("%d speeds, want %d", len(got), len(jobs))
		}
		for _, v := range got {
			if v != interfere.MinSpeed {
				t.Errorf("speed %v, want %v", v, interfere.MinSpeed)
			}
		}
	}
}

// TestPriorLaws: speeds lie in (0, 1], a lone job has 1, no job gets faster by
// more load on any, by one job more, and the order has no meaning.
func TestPriorLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genCoefficients().Draw(t, "coefficients")
		jobs := genJobs(1, interfere.MaxSet).Draw(t, "jobs")
		checkLaws(t, jobs, func(jobs []interfere.Job) []float64 { return c.Speeds(jobs, nil) }, true)
	})
}

// checkLaws holds speeds to the laws; ownLoad says that more load on a job must
// not make that job itself faster either.
func checkLaws(t *rapid.T, jobs []interfere.Job, speeds func([]interfere.Job) []float64, ownLoad bool) {
	base := speeds(jobs)
	if len(base) != len(jobs) {
		t.Fatalf("%d speeds of %d jobs", len(base), len(jobs))
	}
	for i, v := range base {
		if !(v > 0 && v <= 1) || len(jobs) == 1 && v != 1 {
			t.Fatalf("job %d of %d has speed %v", i, len(jobs), v)
		}
	}
	order := rapid.Permutation(indices(len(jobs))).Draw(t, "order")
	mixed := make([]interfere.Job, len(jobs))
	for to, from := range order {
		mixed[to] = jobs[from]
	}
	for to, v := range speeds(mixed) {
		if v != base[order[to]] {
			t.Fatalf("job %d has speed %v, in another order %v", order[to], base[order[to]], v)
		}
	}
	slower := func(what string, before, after []float64, except int) {
		for i := range before {
			if i != except && after[i] > before[i]+rounding {
				t.Fatalf("%s: job %d goes from %v to %v", what, i, before[i], after[i])
			}
		}
	}
	if len(jobs) < interfere.MaxSet {
		slower("one job more", base, speeds(append(jobs[:len(jobs):len(jobs)], genJob().Draw(t, "newcomer"))), -1)
	}
	k := rapid.IntRange(0, len(jobs)-1).Draw(t, "which")
	except := k
	if ownLoad {
		except = -1
	}
	more := append([]interfere.Job(nil), jobs...)
	if more[k].Util >= 0 {
		more[k].Util = rapid.Float64Range(more[k].Util, 1).Draw(t, "more util")
		slower("more utilization", base, speeds(more), except)
	}
	if more[k].Bandwidth >= 0 {
		before := speeds(more)
		more[k].Bandwidth = rapid.Float64Range(more[k].Bandwidth, 1).Draw(t, "more bandwidth")
		slower("more bandwidth", before, speeds(more), except)
	}
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

// alike is a network of about so many MiB, the i-th of its kind.
func alike(i int, convs int64) Features {
	f := Features{
		Source: SourceGraph, Model: fmt.Sprintf("net%d", i), Params: 25_000_000, ParamBytes: 100 << 20, SavedBytes: 2000<<20 + int64(i)<<20,
		LargestBytes: 50 << 20, FLOPs: 1 << 40, Convs: convs, Linears: 1, Activations: 50, Norms: 50,
	}
	f.Run = Run{Mode: Training, Batch: 32, Precision: "fp32", Optimizer: "sgd", Framework: "pytorch"}
	return f
}

// ran are runs of a user that took so many times what is estimated, each of a job of
// its own; by says so of the i-th.
func ran(t *testing.T, user string, n int, convs int64, by func(i int) float64) (out []Sample) {
	t.Helper()
	bare, err := NewPredictor(DefaultWeights(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		f := alike(i, convs)
		if err := f.Check(); err != nil {
			t.Fatal(err)
		}
		q := bare.Predict(Request{Features: f, Types: []TypeInfo{{Name: "A100-SXM4-80GB"}}})[0]
		out = append(out, Sample{
			Seq: uint64(i + 1), Signature: fmt.Sprint(user, i), GPUType: "A100-SXM4-80GB", User: user, Features: f,
			PeakMiB: int64(by(i) * float64(q.GPUMemMiB)), Seconds: 60,
		})
	}
	return out
}

// oneJob makes runs those of one job.
func oneJob(runs []Sample) []Sample {
	for i := range runs {
		runs[i].Signature = "one"
	}
	return runs
}

// margin is what is reserved for a job of a user beyond what is expected of it, as a
// factor.
func margin(t *testing.T, w Weights, runs []Sample, user string, f Features) float64 {
	t.Helper()
	p, err := NewPredictor(w, NewHistory(runs))
	if err != nil {
		t.Fatal(err)
	}
	q := p.Predict(Request{Features: f, Signature: "new", User: user, Types: []TypeInfo{{Name: "A100-SXM4-80GB"}}})[0]
	if q.GPUMemMiB > q.GPUMemP95MiB {
		t.Fatalf("%d MiB are expected and %d reserved", q.GPUMemMiB, q.GPUMemP95MiB)
	}
	return float64(q.GPUMemP95MiB) / float64(q.GPUMemMiB)
}

// TestMarginThatRunsEarn: it follows the runs of the same user, of the same kind and of
// about that size, once there are enough.
func TestMarginThatRunsEarn(t *testing.T) {
	t.Parallel()
	less := func(i int) float64 { return 0.8 + 0.01*float64(i%5) }
	once := func(i int) float64 {
		if i == 7 {
			return 3
		}
		return 0.8
	}
	more := func(i int) float64 { return 1.9 + 0.05*float64(i%5) }
	w, next := DefaultWeights(), alike(100, 50)
	built := margin(t, w, nil, "ann", next)
	if built < 1.2 {
		t.Fatalf("the weights' own margin is %.2f: nothing is shown by this test", built)
	}
	local := w
	local.TrainedSeq = 1 // without the margin that is for other machines than those measured
	plain := margin(t, local, nil, "ann", next)
	least := math.Exp(ownPart * math.Log(plain))
	large := next
	large.SavedBytes *= 20
	known := w
	known.TrainedSeq = 1000
	known.Learned[Memory].Kinds = nil
	for name, c := range map[string]struct {
		w    Weights
		runs []Sample
		user string
		f    Features
		want float64
	}{
		"less than expected":        {w, ran(t, "ann", 12, 50, less), "ann", next, least},
		"more than expected":        {w, ran(t, "ann", 12, 50, more), "ann", next, 2.13},
		"too few":                   {w, ran(t, "ann", 7, 50, less), "ann", next, built},
		"another's":                 {w, ran(t, "bob", 12, 50, less), "ann", next, plain},
		"another's that took more":  {w, ran(t, "bob", 12, 50, more), "ann", next, built},
		"one in twelve took more":   {w, ran(t, "bob", 12, 50, once), "ann", next, built},
		"one in thirty took more":   {w, ran(t, "bob", 30, 50, once), "ann", next, plain},
		"of another kind":           {w, ran(t, "ann", 12, 0, less), "ann", next, plain},
		"of another size":           {w, ran(t, "ann", 12, 50, less), "ann", large, margin(t, local, nil, "ann", large)},
		"one job again and again":   {w, oneJob(ran(t, "ann", 12, 50, less)), "ann", next, built},
		"nobody's":                  {w, ran(t, "", 12, 50, less), "", next, built},
		"trained on, no such kinds": {known, ran(t, "ann", 12, 50, less), "ann", next, math.Exp(ownPart * math.Log(margin(t, known, nil, "ann", next)))},
	} {
		if got := margin(t, c.w, c.runs, c.user, c.f); math.Abs(got/c.want-1) > 0.03 {
			t.Errorf("%s: %.3f times what is expected is reserved, want %.3f", name, got, c.want)
		}
	}
	// What the weights were trained on says nothing of what they are good for.
	measured := w
	measured.TrainedSeq = 1000
	spec, _ := gpuspec.Lookup("A100-SXM4-80GB")
	measured.Learned[Memory].Kinds = append(slices.Clone(w.Learned[Memory].Kinds), KindHash(GroupKey(Memory, &next, &spec)))
	slices.Sort(measured.Learned[Memory].Kinds)
	if got, want := margin(t, measured, ran(t, "ann", 12, 50, less), "ann", next), margin(t, measured, nil, "ann", next); got != want {
		t.Errorf("trained on: %.3f times, want %.3f", got, want)
	}
}

// TestUpperCovers: of what is drawn alike, nineteen in twenty stay under it.
func TestUpperCovers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{8, 12, 20, 39, 40, 64} {
		under, all := 0, 4000
		for range all {
			errs := make([]float64, n)
			for i := range errs {
				errs[i] = 0.2*rng.NormFloat64() - 0.1
			}
			if 0.2*rng.NormFloat64()-0.1 <= upper(errs) {
				under++
			}
		}
		if part := float64(under) / float64(all); part < 0.94 {
			t.Errorf("of %d: %.3f", n, part)
		}
	}
}

// TestWhichRunsAreKept: of each job on each type the largest, the newest jobs first, of
// those that a limit ended only what they were seen to need beyond others of theirs.
func TestWhichRunsAreKept(t *testing.T) {
	f := alike(1, 10)
	run := func(sig, gpuType string, peak int64, censored bool) Sample {
		return Sample{Seq: 1, Signature: sig, GPUType: gpuType, User: "ada", Features: f, PeakMiB: peak, Censored: censored}
	}
	const a100, small, t4 = "A100-SXM4-80GB", "A100-SXM4-40GB", "T4"
	h := NewHistory([]Sample{ // the oldest first
		run("a", a100, 900, false), run("a", a100, 1000, false), run("a", t4, 700, false), run("a", small, 600, false), run("b", a100, 800, true),
		run("b", a100, 500, false), run("c", a100, 4000, true), {Signature: "d", GPUType: a100, Features: f, PeakMiB: 5},
		run("e", a100, 0, false), run("f", "no such card", 5, false),
	})
	got := map[string]int64{}
	for k, rs := range h.own {
		for _, r := range rs {
			got[k.user+" "+r.signature+" "+r.gpuType] = r.peakMiB
		}
	}
	want := map[string]int64{"ada a " + a100: 1000, "ada a " + t4: 700, "ada a " + small: 600, "ada b " + a100: 800}
	if len(got) != len(want) {
		t.Errorf("kept are %v, want %v", got, want)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %d MiB, want %d", k, got[k], v)
		}
	}
	var many []Sample
	for i := range 3 * ownMost {
		many = append(many, run(fmt.Sprint("x", i), a100, 100, false))
	}
	for _, rs := range NewHistory(many).own {
		if len(rs) != ownMost || rs[0].signature != fmt.Sprint("x", 3*ownMost-1) {
			t.Errorf("%d jobs are kept, the first is %s", len(rs), rs[0].signature)
		}
	}
}

// TestUpperIsNoLess than the largest error of few, and of many than all but one in fifty.
func TestUpperIsNoLess(t *testing.T) {
	for n := ownLeast; n < 200; n++ {
		errs := make([]float64, n)
		errs[n/2] = 3 // one that lies far off
		switch got := upper(slices.Clone(errs)); {
		case n < 49 && got < 3:
			t.Errorf("of %d runs, one of which took far more: %g", n, got)
		case n >= 49 && got != 0:
			t.Errorf("of %d runs, one of which took far more: %g", n, got)
		}
	}
}

// TestRunsOfAboutThatSize count, and it takes enough of these.
func TestRunsOfAboutThatSize(t *testing.T) {
	near := func(i int) float64 { return 1.02 }
	f := alike(0, 10)
	plain := margin(t, DefaultWeights(), nil, "ada", f)
	for n, earned := range map[int]bool{ownLeast - 1: false, ownLeast: true} {
		if got := margin(t, DefaultWeights(), ran(t, "ada", n, 10, near), "ada", f); (got < plain) != earned {
			t.Errorf("by %d runs: margin %g, without any %g", n, got, plain)
		}
		local := DefaultWeights()
		if earned {
			local.TrainedSeq = 1 // so many have shown what kind of machine it is
		}
		if got, want := margin(t, DefaultWeights(), ran(t, "ada", n, 10, near), "bob", f), margin(t, local, nil, "bob", f); got != want {
			t.Errorf("another user's margin follows %d runs: %g, want %g", n, got, want)
		}
	}
}

// TestNoUserNarrowsTheMarginsOfAll: however many runs one user brings that take what the
// weights say, where the others' take more the margins of who has none stay wide.
func TestNoUserNarrowsTheMarginsOfAll(t *testing.T) {
	t.Parallel()
	w := DefaultWeights()
	w.TrainedSeq = 0
	exact := func(int) float64 { return 1 }
	later := func(runs []Sample) []Sample {
		for i := range runs {
			runs[i].Seq += 1000
		}
		return runs
	}
	wide := margin(t, w, nil, "carol", alike(0, 0))
	if alone := margin(t, w, ran(t, "mallory", 64, 0, exact), "carol", alike(0, 0)); alone >= wide {
		t.Fatalf("a site where all is as the weights say has margin %.2f, one of which nothing is known %.2f", alone, wide)
	}
	others := ran(t, "bob", 24, 0, func(i int) float64 { return []float64{1, 1, 2.5}[i%3] })
	if got := margin(t, w, slices.Concat(others, later(ran(t, "mallory", 64, 0, exact))), "carol", alike(0, 0)); got != wide {
		t.Errorf("one user narrows the margin of others from %.2f to %.2f", wide, got)
	}
	for name, n := range map[string]int{"dora": 20, "emil": 20, "fred": 20} {
		others = slices.Concat(others, ran(t, name, n, 0, exact))
	}
	h := NewHistory(slices.Concat(others, later(ran(t, "mallory", 64, 0, exact))))
	of := map[bool]int{}
	for _, r := range h.newestOfAll() {
		of[r.seq > 1000]++
	}
	if of[true] != siteMost/siteVoices || of[false] != siteMost-siteMost/siteVoices {
		t.Errorf("%d of one user, %d of four others", of[true], of[false])
	}
}

package model

import (
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestNumbers: those that say how long it runs come first, those of sizes do not.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ command, want string }{
		{"python train.py --lr 0.1 --epochs 20 --batch-size 64 5", "[{--epochs 20 true} {--lr 0.1 false} { 5 false}]"},
		{"EPOCHS=3 sh -c 'for i in $(seq 1 4); do x; done'", "[{EPOCHS 3 true} { 1 false} { 4 false}]"},
		{"x --save-steps 5 --max_steps=1e3 --gpu_ids 0,1", "[{--max_steps 1000 true} {--save-steps 5 false}]"},
		{"x --lrs 0.1,0.2 --hidden 7 -n 4 --seed 1234567891", "[{--lrs NaN false} {--seed 1.23456789e+09 false}]"},
		{"x", "[]"},
	} {
		ns := Numbers([]string{c.command})
		if got := fmt.Sprint(ns); got != c.want {
			t.Errorf("%s: %s, want %s", c.command, got, c.want)
		}
		for i, v := range DecodeNumbers(EncodeNumbers(ns)) {
			if v != ns[i].Value && !math.IsNaN(ns[i].Value) {
				t.Errorf("%s: number %d is %v, was %v", c.command, i, v, ns[i].Value)
			}
		}
	}
	for _, bad := range []string{"1 x", "nan1", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"} {
		if got := DecodeNumbers(bad); got != nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// TestNumbersAreBounded: whatever the command, its numbers fit into the log, and two
// commands of one program have as many.
func TestNumbersAreBounded(t *testing.T) {
	t.Parallel()
	word := rapid.OneOf(rapid.StringMatching(`-{0,2}[a-z_]{1,8}(=[0-9.e+,-]{0,12})?`), rapid.StringMatching(`-?[0-9]{1,25}(\.[0-9]{1,20})?(e-?[0-9]{1,3})?`))
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(word, 0, 40).Draw(t, "words")
		ns := Numbers(words)
		text := EncodeNumbers(ns)
		if len(ns) > maxNumbers || len(text) > MaxNumbersText || len(DecodeNumbers(text)) != len(ns) {
			t.Fatalf("%d numbers in %d bytes: %s", len(ns), len(text), text)
		}
		other := slices.Clone(words)
		for i := range other {
			if isNumber(other[i]) {
				other[i] = strconv.Itoa(i)
			}
		}
		if (Features{}).Program("1", words) == (Features{}).Program("1", other) && len(Numbers(other)) != len(ns) {
			t.Fatalf("%d numbers, and %d of the same program", len(ns), len(Numbers(other)))
		}
	})
}

// programRuns are samples of a program whose commands have such numbers.
func programRuns(n int, run func(i int) (numbers []float64, seconds, mib float64)) []Sample {
	var out []Sample
	for i := range n {
		ns, secs, mib := run(i)
		out = append(out, Sample{Signature: fmt.Sprint("s", i), Program: "p", Numbers: ns, GPUType: "T4", PeakMiB: int64(mib), Seconds: secs})
	}
	return out
}

func predictNumbers(t testing.TB, samples []Sample, ns ...Number) Prediction {
	p, err := NewPredictor(DefaultWeights(), NewHistory(samples))
	if err != nil {
		t.Fatal(err)
	}
	return p.Predict(Request{Signature: "mine", Program: "p", Numbers: ns, Types: []TypeInfo{{Name: "T4"}}})[0]
}

// TestTimeByNumbers: what a number says of how long a program runs.
func TestTimeByNumbers(t *testing.T) {
	t.Parallel()
	epochs := func(v float64) Number { return Number{Name: "--epochs", Value: v, Long: true} }
	lr := func(v float64) Number { return Number{Name: "--lr", Value: v} }
	// of runs of 2 s and 7 s an epoch, whatever the rate.
	of := func(es ...float64) []Sample {
		return programRuns(len(es), func(i int) ([]float64, float64, float64) {
			return []float64{es[i], 0.1 * float64(i*i%5)}, (2 + 7*es[i]) * (1 + 0.02*float64(i%3-1)), 3000
		})
	}
	late := of(1, 2, 4, 8, 16, 3)
	late[3].Seconds *= 10 // a node was slow
	for name, c := range map[string]struct {
		samples  []Sample
		epochs   float64
		secs     float64 // within a tenth
		by       string
		min, max float64 // of the confidence
	}{
		"three runs, fourfold":    {of(1, 2, 4), 16, 114, "--epochs", 0.5, 0.9},
		"three runs, between":     {of(1, 2, 4), 3, 23, "--epochs", 0.6, 0.9},
		"fifty times as much":     {of(1, 2, 4), 200, 1402, "--epochs", 0.2, 0.75},
		"what ran":                {of(1, 2, 4), 4, 30, "--epochs", 0.6, 0.9},
		"one run is far off":      {late, 32, 226, "--epochs", 0.3, 0.9},
		"all of one length":       {of(4, 4, 4), 4, 30, "", 0.7, 0.75},
		"all of one, asked twice": {of(4, 4, 4), 8, 30, "", 0.7, 0.75},
		"beyond any bound":        {of(1, 2, 4), 1e300, 30000, "--epochs", leastSure, leastSure},
		"no number":               {of(1, 2, 4), math.NaN(), 18.5, "", leastSure, 0.3},
	} {
		q := predictNumbers(t, c.samples, epochs(c.epochs), lr(0.3))
		if math.Abs(q.Seconds/c.secs-1) > 0.1 || q.TimeBy != c.by || q.TimeConfidence < c.min || q.TimeConfidence > c.max || q.Source != SourceProgram {
			t.Errorf("%s: %.1f s by %q, confidence %.3f, want %.1f by %q within %.2f to %.2f", name, q.Seconds, q.TimeBy, q.TimeConfidence, c.secs, c.by, c.min, c.max)
		}
	}
	// A number that falls, one that is squared, and one whose name says nothing.
	for name, c := range map[string]struct {
		f    func(x float64) float64
		want float64
	}{
		"squared": {func(x float64) float64 { return 1 + 0.5*x*x }, 201},
		"falling": {func(x float64) float64 { return 3 + 200/x }, 13},
	} {
		q := predictNumbers(t, programRuns(7, func(i int) ([]float64, float64, float64) {
			x := float64(2 + i)
			return []float64{x}, c.f(x), 3000
		}), Number{Value: 20})
		if math.Abs(q.Seconds/c.want-1) > 0.1 {
			t.Errorf("%s: %.1f s, want %.1f", name, q.Seconds, c.want)
		}
	}
	// Whoever says how long it takes is believed.
	p, _ := NewPredictor(DefaultWeights(), NewHistory(of(1, 2, 4)))
	q := p.Predict(Request{Signature: "mine", Program: "p", Numbers: []Number{epochs(16), lr(1)}, Declared: Declared{Seconds: 60}, Types: []TypeInfo{{Name: "T4"}}})[0]
	if q.Seconds != 60 || q.TimeConfidence != 0 || q.TimeBy != "" {
		t.Errorf("declared 60 s: %+v", q)
	}
}

// TestMemoryByNumbers: memory is a number's doing only where that is clear, and no further
// than twice beyond what ran.
func TestMemoryByNumbers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		xs   []float64
		ask  float64
		f    func(x float64, i int) float64
		want float64 // 0: nobody knows
	}{
		"clear":     {[]float64{1, 2, 3, 4}, 6, func(x float64, _ int) float64 { return 1000 + 500*x }, 4000},
		"too far":   {[]float64{1, 2, 3, 4}, 9, func(x float64, _ int) float64 { return 1000 + 500*x }, 0},
		"too few":   {[]float64{1, 2, 4}, 3, func(x float64, _ int) float64 { return 1000 + 500*x }, 0},
		"not clear": {[]float64{1, 2, 3, 4}, 3, func(x float64, i int) float64 { return 1000 + 500*x + float64(i%2)*900 }, 0},
	} {
		q := predictNumbers(t, programRuns(len(c.xs), func(i int) ([]float64, float64, float64) {
			return []float64{c.xs[i]}, 60, c.f(c.xs[i], i)
		}), Number{Value: c.ask})
		if known := q.Source == SourceProgram; known != (c.want > 0) || known && (math.Abs(float64(q.GPUMemMiB)/c.want-1) > 0.02 || float64(q.GPUMemP95MiB) < 1.02*c.want) {
			t.Errorf("%s: %d MiB (95%%: %d) from %s, want %.0f", name, q.GPUMemMiB, q.GPUMemP95MiB, q.Source, c.want)
		}
	}
}

// TestTrendsAreBounded: whatever the runs, a prediction is a number within bounds, equal
// runs give equal ones, and runs that take the same whatever their numbers predict that.
func TestTrendsAreBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, cols := rapid.IntRange(1, 20).Draw(t, "runs"), rapid.IntRange(0, 5).Draw(t, "numbers")
		same := rapid.Bool().Draw(t, "same")
		number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 100), rapid.Just(math.NaN()), rapid.Map(rapid.IntRange(0, 4), func(i int) float64 { return float64(i) }))
		least, most := math.Inf(1), 0.0
		samples := programRuns(n, func(int) ([]float64, float64, float64) {
			secs := 60.0
			if !same {
				secs = rapid.Float64Range(0.001, 1e9).Draw(t, "seconds")
			}
			least, most = min(least, secs), max(most, secs)
			return rapid.SliceOfN(number, cols, cols).Draw(t, "of"), secs, 3000
		})
		var ns []Number
		for range cols {
			ns = append(ns, Number{Value: number.Draw(t, "value"), Long: rapid.Bool().Draw(t, "long")})
		}
		samples = append(samples, programRuns(3, func(int) ([]float64, float64, float64) { return nil, 0, 3000 })...)
		tt := testing.TB(nil)
		q, again := predictNumbers(tt, samples, ns...), predictNumbers(tt, samples, ns...)
		if q.Seconds != again.Seconds || q.TimeConfidence != again.TimeConfidence {
			t.Fatalf("%v, and %v again", q, again)
		}
		if !(q.Seconds >= least/trendRange-0.001 && q.Seconds <= most*trendRange) || !(q.TimeConfidence >= 0 && q.TimeConfidence <= mostSure) {
			t.Fatalf("%+v of runs of %g to %g s", q, least, most)
		}
		if same && math.Abs(q.Seconds-60) > 0.01 {
			t.Fatalf("runs of 60 s, %g is predicted", q.Seconds)
		}
	})
}

// TestNumbersThatMeanNothing: in searches over rates and seeds whose times only scatter,
// hardly ever is a number taken for their cause.
func TestNumbersThatMeanNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{3, 5, 10, 16} {
		const worlds = 400
		found, worse, covered := 0, 0, 0
		for range worlds {
			secs := func() float64 { return 60 * math.Exp(0.25*rng.NormFloat64()) }
			samples := programRuns(n, func(i int) ([]float64, float64, float64) {
				return []float64{math.Pow(10, -1-3*rng.Float64()), float64(i), float64(1 + rng.IntN(5))}, secs(), 3000
			})
			q := predictNumbers(t, samples, Number{Name: "--lr", Value: math.Pow(10, -1-3*rng.Float64())}, Number{Name: "--seed", Value: float64(n)}, Number{Name: "--alpha", Value: 3})
			if q.TimeBy != "" {
				found++
			}
			actual := secs()
			if math.Abs(math.Log(q.Seconds/actual)) > math.Log(3) {
				worse++
			}
			if actual <= q.Seconds*(3-1.5*q.TimeConfidence) {
				covered++
			}
		}
		t.Logf("%2d runs: a number is taken for the cause in %.1f %%, off by 3 in %.1f %%, nine-in-ten covers %.1f %%", n, 100*float64(found)/worlds, 100*float64(worse)/worlds, 100*float64(covered)/worlds)
		if found > worlds/12 || worse > worlds/100 || covered < worlds*85/100 {
			t.Errorf("%d runs: %d causes found, %d far off, %d covered of %d", n, found, worse, covered, worlds)
		}
	}
}

// TestTimeByNumbersOnMeasuredSteps: how long a step took of programs on GPUs of several
// types by the batch (Sia's measurements), as if the batch were a number of the command:
// when three and more values ran, each larger one is asked for. Where the number counts it
// is off by less than a third of what carrying over is.
func TestTimeByNumbersOnMeasuredSteps(t *testing.T) {
	t.Parallel()
	runs := stepsByBatch(t)
	for _, number := range []Number{{Name: "--images"}, {Name: "--steps", Long: true}} {
		var all, allCarried, by, byCarried []float64
		covered := 0
		for _, rs := range runs {
			for seen := 3; seen < len(rs); seen++ {
				samples := programRuns(seen, func(i int) ([]float64, float64, float64) { return rs[i].numbers, rs[i].seconds, 3000 })
				mean := 0.0
				for _, s := range samples {
					mean += s.Seconds / float64(seen)
				}
				for _, ask := range rs[seen:] {
					number.Value = ask.numbers[0]
					q := predictNumbers(t, samples, number)
					err, carried := math.Abs(q.Seconds/ask.seconds-1), math.Abs(mean/ask.seconds-1)
					all, allCarried = append(all, err), append(allCarried, carried)
					if q.TimeBy != "" {
						by, byCarried = append(by, err), append(byCarried, carried)
					}
					if ask.seconds <= q.Seconds*(3-1.5*q.TimeConfidence) {
						covered++
					}
				}
			}
		}
		mid := func(v []float64) float64 { slices.Sort(v); return 100 * v[len(v)/2] }
		t.Logf("%s: median error of %d predictions %.1f %%, carried over %.1f %%; of %d by the number %.1f and %.1f %%; nine in ten covers %.1f %%",
			number.Name, len(all), mid(all), mid(allCarried), len(by), mid(by), mid(byCarried), 100*float64(covered)/float64(len(all)))
		if mid(by) > mid(byCarried)/3 || mid(all) > mid(allCarried)/2 || len(by) < len(all)/3 || covered < len(all)*8/10 {
			t.Errorf("%s says too little", number.Name)
		}
	}
}

// stepsByBatch are the steps of Sia's programs on one GPU, in order of the batch.
func stepsByBatch(t *testing.T) map[string][]numbered {
	runs := map[string][]numbered{}
	for _, row := range measured(t, "sia/steptime.csv.gz") {
		if row["n_gpus"] != "1" {
			continue
		}
		k := row["gpu"] + "/" + row["model"]
		x, _ := strconv.ParseFloat(row["local_bsz"], 64)
		y, _ := strconv.ParseFloat(row["step_time_s"], 64)
		runs[k] = append(runs[k], numbered{numbers: []float64{x}, seconds: 100 * y})
	}
	for k := range runs {
		slices.SortFunc(runs[k], func(a, b numbered) int { return cmp.Compare(a.numbers[0], b.numbers[0]) })
		runs[k] = runs[k][:min(len(runs[k]), 12)]
	}
	return runs
}

// measured reads a table of the published measurements; the test is skipped without them.
func measured(t *testing.T, name string) (rows []map[string]string) {
	t.Helper()
	dir := os.Getenv("BERTH_PREDICTOR_DATA")
	f, err := os.Open(filepath.Join(dir, name))
	if dir == "" || err != nil {
		t.Skip("the published measurements are not here")
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(z).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all[1:] {
		row := map[string]string{}
		for i, h := range all[0] {
			row[h] = r[i]
		}
		rows = append(rows, row)
	}
	return rows
}

package learn

import (
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/model"
)

// numbered gives samples rising numbers from first on.
func numbered(s []model.Sample, first uint64) []model.Sample {
	for i := range s {
		s[i].Seq = first + uint64(i)
	}
	return s
}

// scaled multiplies what was measured of memory and time.
func scaled(s []model.Sample, factor float64) []model.Sample {
	for i := range s {
		s[i].PeakMiB = int64(factor * float64(s[i].PeakMiB))
		s[i].Seconds *= factor
	}
	return s
}

func challenge(t *testing.T, s []model.Sample, champion model.Weights) Verdict {
	t.Helper()
	v, err := Challenge(s, champion, Options{Trees: 3})
	if err != nil {
		t.Fatal(err)
	}
	if v.Reason == "" {
		t.Error("a verdict without a reason")
	}
	t.Logf("better %v: %s (trained on %d, tested on %d; covers %.2f, was %.2f)", v.Better, v.Reason, v.Trained, v.Tested, v.ChallengerCover, v.ChampionCover)
	return v
}

// champion is what taught teaches, as if from samples up to number 400.
func champion(t *testing.T) model.Weights {
	w := taught(t)
	w.TrainedSeq = 400
	return w
}

// TestNoiseDoesNotWin: more samples of a world that the champion knows as well
// as its noise allows make nothing better, but for one challenger in twenty.
func TestNoiseDoesNotWin(t *testing.T) {
	t.Parallel()
	won := 0
	old := newWorld(1)
	for seed := range uint64(20) {
		w := newWorld(100 + seed)
		v := challenge(t, append(old.samples(400)[320:], numbered(w.samples(100), 401)...), champion(t))
		if v.Better {
			won++
		} else if !strings.Contains(v.Reason, "no better") && !strings.Contains(v.Reason, "got worse") {
			t.Errorf("seed %d: %s", seed, v.Reason)
		}
	}
	if won > 1 {
		t.Errorf("noise has won %d times of 20", won)
	}
}

// TestBetterWhenTheChampionIsWrong: the core alone knows nothing of this world,
// and a champion of another world is wrong in it.
func TestBetterWhenTheChampionIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(31)
	for _, tc := range []struct {
		name     string
		champion model.Weights
		samples  []model.Sample
	}{
		{"the core alone", model.CoreWeights(), numbered(w.samples(120), 1)},
		{"all has changed", champion(t), numbered(scaled(w.samples(240), 1.5), 401)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := challenge(t, tc.samples, tc.champion)
			if !v.Better || v.ChallengerErr > 0.5*v.ChampionErr {
				t.Fatalf("error %.3f, was %.3f, better: %v", v.ChallengerErr, v.ChampionErr, v.Better)
			}
			half := len(tc.samples) / 2
			if v.Trained != len(tc.samples)-half || v.Tested != half {
				t.Errorf("trained on %d, tested on %d", v.Trained, v.Tested)
			}
			if want := tc.samples[len(tc.samples)-half-1].Seq; v.Weights.TrainedSeq != want {
				t.Errorf("trained up to sample %d, must be %d", v.Weights.TrainedSeq, want)
			}
		})
	}
}

// TestFewNewSamples: a verdict, and the champion stays.
func TestFewNewSamples(t *testing.T) {
	t.Parallel()
	w, c := newWorld(41), champion(t)
	for _, tc := range []struct {
		name, reason string
		samples      []model.Sample
	}{
		{"none", "0 new samples, 16 are needed", nil},
		{"fifteen", "15 new samples, 16 are needed", numbered(w.samples(15), 401)},
		{"none of them new", "0 new samples", numbered(w.samples(100), 301)},
		{"outside of a cluster", "0 new samples", numberless(w.samples(100))},
		{"nothing known of their models", "too few", nameless(numbered(w.samples(100), 401))},
		{"nothing known of the tested ones", "name too few jobs", append(numbered(w.samples(100), 401), nameless(numbered(w.samples(100), 501))...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := challenge(t, tc.samples, c)
			if v.Better || !strings.Contains(v.Reason, tc.reason) {
				t.Fatalf("better: %v, reason %q; must say %q", v.Better, v.Reason, tc.reason)
			}
			if v.Tested == 0 && v.Weights.Checksum() != c.Checksum() {
				t.Error("no challenger: the weights must be the champion's")
			}
		})
	}
}

func numberless(s []model.Sample) []model.Sample {
	for i := range s {
		s[i].Seq = 0
	}
	return s
}

func nameless(s []model.Sample) []model.Sample {
	for i := range s {
		s[i].Features = model.Features{}
	}
	return s
}

// TestOneJobDoesNotDecide: a job that ran a thousand times, and takes three
// times what its model needs, counts once, however the test splits: here 40
// other jobs say that the challenger is better.
func TestOneJobDoesNotDecide(t *testing.T) {
	t.Parallel()
	w := newWorld(51)
	jobs := w.samples(90)
	odd := scaled(w.samples(1), 3)[0]
	odd.Signature, odd.User = "odd", "mallory"
	var s []model.Sample
	for i := range jobs {
		s = append(s, jobs[i])
		for range 11 {
			s = append(s, odd)
		}
	}
	v := challenge(t, numbered(s, 1), model.CoreWeights())
	if !v.Better {
		t.Fatalf("one job has decided: %s", v.Reason)
	}
	if v.ChallengerCover < 0.85 {
		t.Errorf("the upper quantile covers %.2f of the jobs", v.ChallengerCover)
	}

	// Runs of one job alone are no comparison.
	s = nil
	for range 100 {
		s = append(s, odd)
	}
	if v := challenge(t, append(jobs, numbered(s, 91)...), model.CoreWeights()); v.Better || v.ChampionErr != 0 {
		t.Errorf("one job makes a comparison: %+v", v.Reason)
	}
}

// errorsOf are those of fifty jobs, all alike.
func errorsOf(v float64) medianError {
	return medianError{median: v, jobs: slices.Repeat([]float64{v}, 50)}
}

// TestUpperQuantileMustGoOnCovering: the point may be better, but if peaks lie
// above what would be reserved, the champion stays.
func TestUpperQuantileMustGoOnCovering(t *testing.T) {
	t.Parallel()
	good := assessment{cover: 0.97}
	for i := range good.err {
		good.err[i] = errorsOf(0.10)
	}
	better := assessment{cover: good.cover}
	for i := range better.err {
		better.err[i] = errorsOf(0.05)
	}
	for _, tc := range []struct {
		name   string
		change func(champion, challenger *assessment)
		better bool
		reason string
	}{
		{"better in all", func(_, _ *assessment) {}, true, "error 5.0 %, was 10.0 %"},
		{"equal", func(a, b *assessment) { *b = *a }, false, "no better"},
		{"hardly better", func(a, b *assessment) {
			*b = *a
			for i := range b.err {
				b.err[i] = errorsOf(0.099)
			}
		}, false, "no better"},
		{"a better median, but no more jobs", func(_, b *assessment) {
			for i := range b.err {
				for j := range 24 {
					b.err[i].jobs[j] = 0.5
				}
			}
		}, false, "closer for 78 numbers of jobs, further off for 72"},
		{"stops covering", func(_, b *assessment) { b.cover = 0.85 }, false, "its upper quantile covers 85 %"},
		{"covers less, but as much as it should", func(a, b *assessment) { a.cover, b.cover = 1, 0.93 }, true, ""},
		{"covers no less than a poor champion", func(a, b *assessment) { a.cover, b.cover = 0.5, 0.5 }, true, ""},
		{"worse in one target", func(_, b *assessment) { b.err[model.Time] = errorsOf(0.2) }, false, "time got worse"},
		{"worse in a target that few jobs tell of", func(a, b *assessment) {
			a.err[model.Time], b.err[model.Time] = medianError{median: 0.1, jobs: make([]float64, 3)}, medianError{median: 0.2, jobs: make([]float64, 3)}
		}, true, ""},
		{"no jobs to compare", func(a, b *assessment) { *a, *b = assessment{}, assessment{} }, false, "name too few jobs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := good, better
			for i := range b.err {
				b.err[i].jobs = slices.Clone(b.err[i].jobs)
			}
			tc.change(&a, &b)
			var v Verdict
			v.decide(a, b)
			if v.Better != tc.better || !strings.Contains(v.Reason, tc.reason) {
				t.Fatalf("better: %v, reason %q; must be %v with %q", v.Better, v.Reason, tc.better, tc.reason)
			}
		})
	}
}

// TestCoverCountsJobs: the share of covered peaks is that of jobs, not of runs.
func TestCoverCountsJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(61)
	s := w.samples(9)
	odd := s[0]
	odd.PeakMiB *= 50 // beyond any reserve
	for range 100 {
		s = append(s, odd)
	}
	a, err := assess(nil, s[1:], champion(t))
	if err != nil {
		t.Fatal(err)
	}
	if want := 8. / 9; a.cover < want-0.13 || a.cover > want+1e-9 {
		t.Errorf("covers %.3f, must be at most %.3f", a.cover, want)
	}
	if n := len(a.err[model.Memory].jobs); n != 9 {
		t.Errorf("%d jobs, must be 9", n)
	}
}

// TestTrainedSeqRises: through a row of challenges, better or not, and each
// starts from where the last one ended.
func TestTrainedSeqRises(t *testing.T) {
	t.Parallel()
	w := newWorld(71)
	all := numbered(w.samples(160), 1)
	current, last := model.CoreWeights(), uint64(0)
	for n := 40; n <= 160; n += 40 {
		v := challenge(t, all[:n], current)
		if v.Weights.TrainedSeq < last || v.Weights.TrainedSeq >= uint64(n) {
			t.Fatalf("after %d samples trained up to %d, before to %d", n, v.Weights.TrainedSeq, last)
		}
		if v.Tested > 0 && v.Weights.TrainedSeq <= last {
			t.Fatalf("the challenger has trained up to %d, the champion to %d", v.Weights.TrainedSeq, last)
		}
		if v.Better {
			current, last = v.Weights, v.Weights.TrainedSeq
		}
		if again := challenge(t, all[:n], current); v.Better && again.Tested >= v.Tested {
			t.Fatalf("a second challenge tests %d samples, the first %d", again.Tested, v.Tested)
		}
	}
	if last == 0 {
		t.Error("no challenger was ever better")
	}
}

// among deals jobs of others evenly among those of a world's users.
func among(own, others []model.Sample) (all []model.Sample) {
	for i, j := 0, 0; i < len(own) || j < len(others); {
		if j == len(others) || i < len(own) && i*len(others) <= j*len(own) {
			all = append(all, own[i])
			i++
		} else {
			all = append(all, others[j])
			j++
		}
	}
	return all
}

// liesOf are n jobs of one user that took what lie says of what they need.
func liesOf(n int, lie func(i int) float64) []model.Sample {
	w := newWorld(200)
	w.users, w.name = 1, "mallory"
	out := w.samples(n)
	for i := range out {
		one := scaled(out[i:i+1], lie(i))
		one[0].Signature = "lie-" + one[0].Signature
	}
	return out
}

// TestOneUserDoesNotDecide: a user who brings many jobs that are like nobody else's has no
// weights published that suit these alone, and keeps none from being published that suit the others.
func TestOneUserDoesNotDecide(t *testing.T) {
	t.Parallel()
	old, h := newWorld(1), newWorld(100)
	for _, n := range []int{240, 480, 1000} {
		lies := liesOf(n, func(int) float64 { return 0.4 })
		if v := challenge(t, append(old.samples(400), numbered(among(h.samples(60), lies), 401)...), champion(t)); v.Better || v.ChampionErr > 0.1 {
			t.Errorf("%d jobs of one user have decided: error %.2f of the champion; %s", n, v.ChampionErr, v.Reason)
		}
		wild := liesOf(n, func(i int) float64 { return []float64{0.1, 9}[i%2] })
		if v := challenge(t, numbered(among(h.samples(160), wild), 1), model.CoreWeights()); !v.Better {
			t.Errorf("%d jobs of one user have stopped it: %s", n, v.Reason)
		}
	}
}

// TestMedianOfUsers: where no user has more than a share, the median is that of the jobs.
func TestMedianOfUsers(t *testing.T) {
	t.Parallel()
	errs := make([]float64, 100)
	users := make([]string, 100)
	for i := range errs {
		errs[i], users[i] = float64((i*37)%100), string(rune('a'+i%10))
	}
	if e := medianOf(errs, users); e.weights != nil || e.median != 49.5 {
		t.Errorf("median %v of ten users", e.median)
	}
	for i := range 90 {
		errs[i], users[i] = 1000, "mallory"
	}
	for i := 90; i < 100; i++ {
		errs[i] = 1
	}
	if e := medianOf(errs, users); e.weight(0) != 20./90 || e.weight(99) != 1 {
		t.Errorf("weights %v and %v", e.weight(0), e.weight(99))
	}
	if e := medianOf(errs[60:], users[60:]); e.median != 1000 { // 20 of 30
		t.Errorf("median %v", e.median)
	}
	if e := medianOf(nil, nil); len(e.jobs) != 0 {
		t.Errorf("%+v", e)
	}
}

// TestJobsCountByTheirUsers: who is closer more often is counted in the weights of jobs.
func TestJobsCountByTheirUsers(t *testing.T) {
	t.Parallel()
	errs := func(many, few float64) (a assessment) {
		for i := range a.err {
			a.err[i] = medianError{median: 0.1, jobs: append(slices.Repeat([]float64{many}, 40), slices.Repeat([]float64{few}, 10)...)}
			a.err[i].weights = append(slices.Repeat([]float64{0.1}, 40), slices.Repeat([]float64{1}, 10)...)
		}
		return a
	}
	before, after := errs(0.2, 0.1), errs(0.1, 0.2)
	for i := range after.err {
		after.err[i].median = 0.05
	}
	var v Verdict
	if v.decide(before, after); v.Better || !strings.Contains(v.Reason, "closer for 12 numbers of jobs, further off for 30") {
		t.Errorf("better: %v, %s", v.Better, v.Reason)
	}
	v = Verdict{}
	for i := range after.err { // closer for all
		after.err[i].jobs = before.err[i].jobs
		before.err[i].jobs = slices.Repeat([]float64{0.3}, 50)
	}
	if v.decide(before, after); !v.Better {
		t.Error(v.Reason)
	}
}

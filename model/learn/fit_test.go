package learn

import (
	"errors"
	"math"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/model"
)

// quick are options with which a fit takes a fraction of the time.
var quick = Options{Trees: 10}

// known is what 400 samples of eight families on three types teach.
var known = sync.OnceValues(func() (model.Weights, error) {
	w := newWorld(1)
	return Fit(w.samples(400), model.CoreWeights(), quick)
})

func taught(t testing.TB) model.Weights {
	t.Helper()
	w, err := known()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestFitRecoversThePhysics: on fresh jobs of the same world, of families never
// seen, and on a type never seen, the error is little more than the noise, which
// is 3.2 % on average, and the upper quantile covers the peaks.
func TestFitRecoversThePhysics(t *testing.T) {
	t.Parallel()
	w := taught(t)
	w.TrainedSeq = 1 // by this world's own runs
	for _, tc := range []struct {
		name   string
		change func(*world)
		most   [3]float64 // memory, utilization, time
	}{
		{"the same families", func(*world) {}, [3]float64{0.045, 0.045, 0.05}},
		{"families never seen", func(w *world) { w.families = []string{"larch", "maple", "nutmeg", "oak"} }, [3]float64{0.06, 0.06, 0.07}},
		{"a type never seen", func(w *world) { w.types = []string{"A40"} }, [3]float64{0.08, 0.12, 0.25}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fresh := newWorld(2)
			tc.change(&fresh)
			held := fresh.samples(1000)
			before, after := scoreOf(t, model.CoreWeights(), held), scoreOf(t, w, held)
			t.Logf("error %.3f, was %.3f; covers %.3f with a reserve of %.3f", after.miss, before.miss, after.cover, after.room)
			for _, target := range model.Targets() {
				if after.miss[target] > tc.most[target] || after.miss[target] >= before.miss[target] {
					t.Errorf("%s: error %.3f, at most %.3f allowed, was %.3f", target, after.miss[target], tc.most[target], before.miss[target])
				}
			}
			if after.cover < 0.93 || after.room > 0.35 {
				t.Errorf("the upper quantile covers %.3f of the peaks with %.3f to spare", after.cover, after.room)
			}
		})
	}
}

// TestForestLearnsWhatPhysicsMisses: where labels follow a rule that is not in
// the terms, trees are used and lower the error.
func TestForestLearnsWhatPhysicsMisses(t *testing.T) {
	t.Parallel()
	w := newWorld(3)
	bend := func(s []model.Sample) []model.Sample {
		for i := range s {
			if f := &s[i].Features; f.Norms > f.Activations {
				s[i].PeakMiB = s[i].PeakMiB * 4 / 3
			}
		}
		return s
	}
	got := learned(t, bend(w.samples(200)), Options{Trees: 40})
	w.seed = 4
	held := bend(w.samples(400))
	bare := got
	bare.Learned[model.Memory].Trees = [3]int{}
	with, without := scoreOf(t, got, held).miss[model.Memory], scoreOf(t, bare, held).miss[model.Memory]
	t.Logf("error %.3f with %v trees, %.3f without", with, got.Learned[model.Memory].Trees, without)
	if got.Learned[model.Memory].Trees[model.KnownFamily] == 0 || with > 0.7*without {
		t.Errorf("error %.3f with %v trees, %.3f without", with, got.Learned[model.Memory].Trees, without)
	}
}

// TestSamplesThatSayNothing: censored ones, and those that do not describe their
// model, change no bit.
func TestSamplesThatSayNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(5)
	clean := w.samples(60)
	want := learned(t, clean, Options{Trees: 5})
	extra := w.samples(40)
	for i := range extra {
		s := &extra[i]
		s.PeakMiB, s.Seconds = 10*s.PeakMiB, 10*s.Seconds
		switch i % 5 {
		case 0:
			s.Censored = true
		case 1:
			s.Features = model.Features{}
		case 2:
			s.Features.Source = model.SourceNone
		case 3:
			s.Features.Batch = -1 // out of range
		case 4:
			s.PeakMiB, s.UtilMilli, s.Steps = 0, 0, 0 // nothing was measured
		}
	}
	got := learned(t, append(extra, clean...), Options{Trees: 5})
	if want.Checksum() != got.Checksum() {
		t.Error("samples that say nothing have changed what was learned")
	}
}

// TestLabelsThatCannotBe: numbers that no run can show must not keep everybody
// else from learning.
func TestLabelsThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(6)
	s := w.samples(60)
	want := scoreOf(t, learned(t, s, Options{Trees: 5}), s)
	for i, v := range []float64{math.Inf(1), math.NaN(), math.Inf(-1), math.MaxFloat64, 1e-300, -5} {
		bad := s[i]
		bad.Seconds, bad.PeakMiB, bad.UtilMilli, bad.User = v, math.MaxInt64, math.MaxInt64, "mallory"
		s = append(s, bad)
	}
	got := scoreOf(t, learned(t, s, Options{Trees: 5}), s[:60])
	for i := range got.miss {
		if got.miss[i] > want.miss[i]+0.05 {
			t.Errorf("%s: error %.3f with impossible labels, %.3f without", model.Target(i), got.miss[i], want.miss[i])
		}
	}
}

// TestOneUserCannotPoison: 1,000 samples of one user, with labels ten times as
// large or as small as they should be, against 400 of eight others.
func TestOneUserCannotPoison(t *testing.T) {
	t.Parallel()
	clean := taught(t)
	honest, fresh := newWorld(1), newWorld(2)
	held := fresh.samples(200)
	want := scoreOf(t, clean, held)
	for _, tc := range []struct {
		name   string
		factor float64
		most   [3]float64 // by how much the mean error may rise
		room   float64    // and the reserve
	}{
		{"ten times as large", 10, [3]float64{0.03, 0.05, 0.03}, 1.6},
		{"a tenth", 0.1, [3]float64{0.03, 0.05, 0.03}, 0.1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(666)
			w.users, w.name = 1, "mallory"
			bad := w.samples(1000)
			for i := range bad {
				s := &bad[i]
				s.PeakMiB = int64(tc.factor * float64(s.PeakMiB))
				s.Seconds *= tc.factor
				s.UtilMilli = max(1, int64(float64(s.UtilMilli)/tc.factor))
			}
			got := scoreOf(t, learned(t, append(bad, honest.samples(400)...), Options{Trees: 2}), held)
			t.Logf("error %.3f, was %.3f; covers %.3f, was %.3f; reserve %.3f, was %.3f", got.miss, want.miss, got.cover, want.cover, got.room, want.room)
			for i := range got.miss {
				if got.miss[i] > want.miss[i]+tc.most[i] {
					t.Errorf("%s: error %.3f, was %.3f", model.Target(i), got.miss[i], want.miss[i])
				}
			}
			if got.cover < 0.9 || got.room > want.room+tc.room {
				t.Errorf("covers %.3f with %.3f to spare, was %.3f with %.3f", got.cover, got.room, want.cover, want.room)
			}
		})
	}
}

func TestFitIsDeterministic(t *testing.T) {
	t.Parallel()
	w := newWorld(8)
	opt := Options{Trees: 5}
	a, b := learned(t, w.samples(60), opt), learned(t, w.samples(60), opt)
	if d := cmp.Diff(a.Encode(), b.Encode()); d != "" {
		t.Error("equal samples gave other bytes")
	}
	opt.Seed = 9
	if c := learned(t, w.samples(60), opt); a.Checksum() == c.Checksum() {
		t.Error("another seed gave the same bytes")
	}
}

func TestTooFew(t *testing.T) {
	t.Parallel()
	w := newWorld(9)
	start := taught(t)
	for _, tc := range []struct {
		name    string
		samples []model.Sample
		opt     Options
	}{
		{"none", nil, Options{}},
		{"one less than needed", w.samples(15), Options{}},
		{"fewer than asked for", w.samples(60), Options{MinSamples: 61}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Fit(tc.samples, start, tc.opt)
			if !errors.Is(err, ErrTooFew) {
				t.Fatalf("error %v, must be ErrTooFew", err)
			}
			if got.Checksum() != start.Checksum() {
				t.Error("the start must come back as it was")
			}
		})
	}
	if _, err := Fit(w.samples(16), model.CoreWeights(), Options{Trees: 3}); err != nil {
		t.Errorf("sixteen must do: %v", err)
	}
}

// TestOneTargetAlone: where only peaks were measured, only memory is learned.
func TestOneTargetAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(10)
	s := w.samples(40)
	for i := range s {
		s[i].Steps, s[i].UtilMilli = 0, 0
	}
	got := learned(t, s, Options{Trees: 3})
	for _, target := range model.Targets() {
		if has := len(got.Learned[target].Groups) > 0; has != (target == model.Memory) {
			t.Errorf("%s learned: %v", target, has)
		}
	}
}

// TestWhatIsLearnedCanBeSent: odd names and all, and three full forests take no
// more than 100 KiB.
func TestWhatIsLearnedCanBeSent(t *testing.T) {
	t.Parallel()
	long := string(make([]byte, 300))
	w := newWorld(11)
	s := w.samples(150)
	for i := range s {
		switch i % 5 {
		case 0:
			s[i].GPUType = "Future X" + strconv.Itoa(i)
		case 1:
			s[i].GPUType = long
		case 2:
			s[i].Features.Framework, s[i].Features.Model = "a/b/c/d/e/f/g/h", "???"
		}
	}
	got := learned(t, s, Options{Trees: 5})
	back, err := model.DecodeWeights(got.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if back.Checksum() != got.Checksum() {
		t.Error("decoding and encoding changed the bytes")
	}
}

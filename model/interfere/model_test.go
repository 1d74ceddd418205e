package interfere_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/model/interfere"
)

const gpuType = "A100-SXM4-80GB"

func genObservation() *rapid.Generator[interfere.Observation] {
	return rapid.Custom(func(t *rapid.T) interfere.Observation {
		return interfere.Observation{
			GPUType: rapid.SampledFrom([]string{gpuType, "NVIDIA A10", "Tesla K80", "Odd 9GB"}).Draw(t, "type"),
			Mode:    genMode().Draw(t, "mode"),
			Job:     genJob().Draw(t, "job"),
			Others:  genJobs(1, 3).Draw(t, "others"),
			Speed:   rapid.Float64Range(0.01, 2).Draw(t, "speed"),
			User:    rapid.SampledFrom([]string{"", "u", "v"}).Draw(t, "user"),
		}
	})
}

// TestLearnedLaws: whatever was observed, neighbours never gain from load or
// company, order has no meaning, and a lone job has speed 1.
func TestLearnedLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := interfere.Fit(rapid.SliceOfN(genObservation(), 0, 30).Draw(t, "observations"))
		mode := genMode().Draw(t, "mode")
		name := rapid.SampledFrom([]string{gpuType, "A10", "H200", "ODD-9GB", "odd 9gb", "never seen"}).Draw(t, "type")
		jobs := genJobs(1, interfere.MaxSet).Draw(t, "jobs")
		checkLaws(t, jobs, func(jobs []interfere.Job) []float64 {
			return m.Speeds(interfere.Set{GPUType: name, Mode: mode, Jobs: jobs}, nil)
		}, false)
	})
}

// TestFitIsDeterministic: equal observations give equal bytes.
func TestFitIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		obs := rapid.SliceOfN(genObservation(), 0, 60).Draw(t, "observations")
		a, b := interfere.Fit(obs).Encode(), interfere.Fit(obs).Encode()
		if !bytes.Equal(a, b) {
			t.Fatal("equal observations gave different models")
		}
	})
}

// world is a truth to learn: slowdowns of pairs by the prior's form, with other
// coefficients and with offsets of each job.
type world struct {
	coefs interfere.Coefficients
	jobs  []interfere.Job
	touch []float64 // how touchy each job is, and
	rude  []float64 // how rude: slowdowns are multiplied by both
}

func newWorld(n int) world {
	w := world{coefs: interfere.Coefficients{Switch: 0.05, Compute: 0.4, Memory: 0.5, Bandwidth: 0.2}}
	for i := range n {
		at := float64(i) / float64(n)
		w.jobs = append(w.jobs, interfere.Job{
			Signature: fmt.Sprintf("job-%d", i), Family: fmt.Sprintf("family-%d", i/4),
			Util: 0.2 + 0.8*at, Bandwidth: 0.9 * math.Abs(math.Sin(float64(i))),
		})
		w.touch = append(w.touch, 1+0.15*math.Sin(float64(3*i)))
		w.rude = append(w.rude, 1+0.15*math.Cos(float64(5*i)))
	}
	return w
}

func (w *world) speed(v, o int) float64 {
	s := 1 / w.coefs.Speeds([]interfere.Job{w.jobs[v], w.jobs[o]}, nil)[0]
	return 1 / max(1, s*w.touch[v]*w.rude[o])
}

func (w *world) observe(v, o int) interfere.Observation {
	return interfere.Observation{
		GPUType: gpuType, Mode: interfere.MPS, Job: w.jobs[v], Others: []interfere.Job{w.jobs[o]}, Speed: w.speed(v, o),
	}
}

func (w *world) predict(m *interfere.Model, v, o int) float64 {
	return m.Speeds(interfere.Set{GPUType: gpuType, Mode: interfere.MPS, Jobs: []interfere.Job{w.jobs[v], w.jobs[o]}}, nil)[0]
}

// miss is the mean relative error over the pairs that keep says.
func (w *world) miss(m *interfere.Model, keep func(v, o int) bool) float64 {
	var sum float64
	var n int
	for v := range w.jobs {
		for o := range w.jobs {
			if keep(v, o) {
				sum += math.Abs(w.predict(m, v, o)/w.speed(v, o) - 1)
				n++
			}
		}
	}
	return sum / float64(n)
}

// TestLearningNearsTruth: errors fall with the observations, also on pairs that
// were never seen together.
func TestLearningNearsTruth(t *testing.T) {
	w := newWorld(24)
	unseen := func(v, o int) bool { return (v+o)%5 == 0 }
	var obs []interfere.Observation
	for step := 1; step < len(w.jobs); step++ {
		for v := range w.jobs {
			if o := (v + step) % len(w.jobs); !unseen(v, o) {
				obs = append(obs, w.observe(v, o))
			}
		}
	}
	var errs []float64
	for _, n := range []int{0, 20, 100, len(obs)} {
		errs = append(errs, w.miss(interfere.Fit(obs[:n]), unseen))
	}
	t.Logf("mean error on pairs never seen: %.3f", errs)
	for i := 1; i < len(errs); i++ {
		if errs[i] >= errs[i-1] {
			t.Errorf("more observations, more error: %.3f", errs)
		}
	}
	if last := errs[len(errs)-1]; last > 0.04 || last > errs[0]/3 {
		t.Errorf("error %.3f in the end, %.3f in the beginning", last, errs[0])
	}
}

// TestOneObservationMovesLittle: by itself it moves predictions of the very pair
// in its direction by at most half, of others by less.
func TestOneObservationMovesLittle(t *testing.T) {
	w := newWorld(24)
	var calibration []interfere.Observation
	for i := range w.jobs {
		calibration = append(calibration, w.observe(i, (i+1)%24), w.observe((i+1)%24, i))
	}
	before := interfere.Fit(calibration)
	odd := w.observe(3, 20)
	prior := w.predict(before, 3, 20)
	odd.Speed = prior / 1.5
	after := interfere.Fit(append(calibration, odd))
	moved := func(v, o int) float64 {
		was, is := 1/w.predict(before, v, o), 1/w.predict(after, v, o)
		return (is - was) / (was * 0.5)
	}
	if m := moved(3, 20); m <= 0.05 || m > 0.6 {
		t.Errorf("the pair itself moved by %.2f of the surprise", m)
	}
	for _, p := range [][2]int{{3, 15}, {10, 20}} {
		if m := moved(p[0], p[1]); m < 0 || m > 0.2 {
			t.Errorf("pair %v moved by %.2f of the surprise", p, m)
		}
	}
	if m := moved(12, 9); math.Abs(m) > 0.05 {
		t.Errorf("a pair of others moved by %.2f of the surprise", m)
	}
}

// TestPairHistory: what two jobs do only to each other is learned by repeating
// it, and stays between them and on that type.
func TestPairHistory(t *testing.T) {
	w := newWorld(12)
	var obs []interfere.Observation
	for v := range w.jobs {
		for o := range w.jobs {
			obs = append(obs, w.observe(v, o))
		}
	}
	odd := w.observe(2, 9)
	odd.Speed *= 0.6
	var errs []float64
	for n := range interfere.MaxRepeats {
		if n > 0 {
			obs = append(obs, odd)
		}
		errs = append(errs, math.Abs(w.predict(interfere.Fit(obs), 2, 9)/odd.Speed-1))
	}
	t.Logf("error by repeats: %.3f", errs)
	for i := 1; i < len(errs); i++ {
		if errs[i] >= errs[i-1] {
			t.Errorf("repeating makes it worse: %.3f", errs)
		}
	}
	if last := errs[len(errs)-1]; last > errs[0]/2 {
		t.Errorf("error %.3f after all repeats, %.3f before", last, errs[0])
	}
	m := interfere.Fit(obs)
	if got, want := w.predict(m, 9, 2), w.speed(9, 2); math.Abs(got/want-1) > 0.08 {
		t.Errorf("the other of the pair is at %.3f, want %.3f", got, want)
	}
}

// TestTriples: what three jobs show teaches about two of them.
func TestTriples(t *testing.T) {
	w := newWorld(12)
	var obs []interfere.Observation
	for i := range 12 {
		for step := 1; step < 11; step++ {
			a, b, c := i, (i+step)%12, (i+2*step+1)%12
			jobs := []interfere.Job{w.jobs[a], w.jobs[b], w.jobs[c]}
			slow := 1/w.speed(a, b) + 1/w.speed(a, c) - 1
			obs = append(obs, interfere.Observation{GPUType: gpuType, Mode: interfere.MPS, Job: jobs[0], Others: jobs[1:], Speed: 1 / slow})
		}
	}
	all := func(int, int) bool { return true }
	before, after := w.miss(nil, all), w.miss(interfere.Fit(obs), all)
	if after > 0.5*before {
		t.Errorf("error of pairs is %.3f, was %.3f before the triples", after, before)
	}
}

// TestCrowd: bandwidth that is short only when three meet is learned from
// threes.
func TestCrowd(t *testing.T) {
	truth := interfere.Coefficients{Switch: 0.02, Compute: 0.3, Bandwidth: 2}
	var obs []interfere.Observation
	for i := range 400 {
		var jobs []interfere.Job
		for k := range 3 {
			jobs = append(jobs, interfere.Job{Util: 0.3 + 0.07*float64((i*(k+3))%10), Bandwidth: 0.2 + 0.03*float64((i*(k+1)+k)%11)})
		}
		obs = append(obs, interfere.Observation{
			GPUType: gpuType, Mode: interfere.MPS, Job: jobs[0], Others: jobs[1:], Speed: truth.Speeds(jobs, nil)[0],
		})
	}
	m := interfere.Fit(obs)
	for i := range 20 {
		jobs := append([]interfere.Job{obs[i].Job}, obs[i].Others...)
		got := m.Speeds(interfere.Set{GPUType: gpuType, Mode: interfere.MPS, Jobs: jobs}, nil)[0]
		if math.Abs(got/obs[i].Speed-1) > 0.06 {
			t.Errorf("three jobs %v: speed %.3f, want %.3f", jobs, got, obs[i].Speed)
		}
	}
}

// TestCrowdIsNobodysFault: slowness that the crowd explains is not put down to
// the jobs in it.
func TestCrowdIsNobodysFault(t *testing.T) {
	c := interfere.DefaultCoefficients(interfere.MPS)
	jobs := []interfere.Job{
		{Signature: "a", Util: 0.5, Bandwidth: 0.5}, {Signature: "b", Util: 0.5, Bandwidth: 0.5}, {Signature: "c", Util: 0.5, Bandwidth: 0.5},
	}
	o := interfere.Observation{GPUType: gpuType, Mode: interfere.MPS, Job: jobs[0], Others: jobs[1:], Speed: c.Speeds(jobs, nil)[0]}
	for _, n := range interfere.Fit([]interfere.Observation{o}).Explain(interfere.Set{GPUType: gpuType, Mode: interfere.MPS, Jobs: jobs})[0].Neighbours {
		if math.Abs(n.Sensitivity)+math.Abs(n.Aggression)+math.Abs(n.History) > 1e-4 {
			t.Errorf("offsets %v, %v, %v out of what the prior explains", n.Sensitivity, n.Aggression, n.History)
		}
	}
}

// TestPlaces: what was learned holds for its mode and class of GPU only.
func TestPlaces(t *testing.T) {
	w := newWorld(12)
	var obs []interfere.Observation
	for v := range w.jobs {
		for o := range w.jobs {
			obs = append(obs, w.observe(v, o))
		}
	}
	m := interfere.Fit(obs)
	jobs := []interfere.Job{w.jobs[3], w.jobs[10]}
	at := func(m *interfere.Model, name string, mode interfere.Mode) []float64 {
		return m.Speeds(interfere.Set{GPUType: name, Mode: mode, Jobs: jobs}, nil)
	}
	for _, tc := range []struct {
		name string
		gpu  string
		mode interfere.Mode
		same string // like "trained", "class" or "built-in"
	}{
		{"the type", gpuType, interfere.MPS, "trained"},
		{"another spelling", "nvidia a100-sxm4-80gb", interfere.MPS, "trained"},
		{"its architecture", "NVIDIA A10", interfere.MPS, "class"},
		{"another mode", gpuType, interfere.TimeSlicing, "built-in"},
		{"another architecture", "H200", interfere.MPS, "built-in"},
		{"an unknown type", "Odd 9GB", interfere.MPS, "built-in"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := at(m, tc.gpu, tc.mode)
			want := at(m, gpuType, interfere.MPS)
			switch tc.same {
			case "built-in":
				want = at(nil, tc.gpu, tc.mode)
			case "class": // without the history of the pair
				if cmp.Equal(got, at(nil, tc.gpu, tc.mode)) {
					t.Error("nothing carries over")
				}
				want = at(m, "A10", tc.mode)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("speeds differ (-want +got):\n%s", d)
			}
		})
	}
}

// TestGolden: the bytes of a fitted model are the same on every machine; where
// they differ from these, an architecture fuses multiplications and additions.
// A change of the arithmetic changes them too: then put the new sum here.
func TestGolden(t *testing.T) {
	w := newWorld(16)
	round := func(v float64) float64 { return math.Round(v*1000) / 1000 } // the test's own last bits
	var obs []interfere.Observation
	for v := range w.jobs {
		for o := range w.jobs {
			ob := w.observe(v, o)
			for _, j := range []*interfere.Job{&ob.Job, &ob.Others[0]} {
				j.Util, j.Bandwidth = round(j.Util), round(j.Bandwidth)
			}
			ob.Speed = round(ob.Speed)
			obs = append(obs, ob)
		}
	}
	const want = 0x2c8d2b7f
	if got := crc32.ChecksumIEEE(interfere.Fit(obs).Encode()); got != want {
		t.Errorf("checksum %#08x, want %#08x", got, want)
	}
}

func TestSpeedsAllocatesNothing(t *testing.T) {
	w := newWorld(24)
	var obs []interfere.Observation
	for v := range w.jobs {
		for o := range w.jobs {
			obs = append(obs, w.observe(v, o))
		}
	}
	m := interfere.Fit(obs)
	s := interfere.Set{GPUType: gpuType, Mode: interfere.MPS, Jobs: w.jobs[5:8]}
	out := make([]float64, 0, 8)
	if n := testing.AllocsPerRun(100, func() { out = m.Speeds(s, out[:0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestExplain: the parts add up to what Speeds says.
func TestExplain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		obs := rapid.SliceOfN(genObservation(), 0, 20).Draw(t, "observations")
		m := interfere.Fit(obs)
		s := interfere.Set{
			GPUType: rapid.SampledFrom([]string{gpuType, "A10", "never seen"}).Draw(t, "type"), Mode: genMode().Draw(t, "mode"),
			Jobs: genJobs(0, interfere.MaxSet+1).Draw(t, "jobs"),
		}
		speeds := m.Speeds(s, nil)
		for i, e := range m.Explain(s) {
			if e.Speed != speeds[i] || e.Signature != s.Jobs[i].Signature {
				t.Fatalf("job %d: explains %v of %q, want %v of %q", i, e.Speed, e.Signature, speeds[i], s.Jobs[i].Signature)
			}
			if len(s.Jobs) > interfere.MaxSet {
				continue
			}
			if len(e.Neighbours) != len(s.Jobs)-1 {
				t.Fatalf("job %d has %d neighbours of %d", i, len(e.Neighbours), len(s.Jobs)-1)
			}
			sum := 1 + e.Crowd
			for _, n := range e.Neighbours {
				sum += n.Excess
				x := max(-1.6, min(1.6, n.Sensitivity+n.Aggression+n.History))
				prior := 1 + n.Switch + n.Compute + n.Memory + n.Bandwidth + n.Blind
				if want := max(0, prior*(2+x)/(2-x)-1); math.Abs(want-n.Excess) > 1e-9 {
					t.Fatalf("job %d: parts give %v, excess is %v", i, want, n.Excess)
				}
			}
			if math.Abs(sum-e.Slowdown) > 1e-9 || math.Abs(max(interfere.MinSpeed, 1/sum)-e.Speed) > 1e-9 {
				t.Fatalf("job %d: parts add up to %v, slowdown %v, speed %v", i, sum, e.Slowdown, e.Speed)
			}
		}
	})
}

func BenchmarkSpeeds(b *testing.B) {
	w := newWorld(24)
	var obs []interfere.Observation
	for v := range w.jobs {
		for o := range w.jobs {
			obs = append(obs, w.observe(v, o))
		}
	}
	m := interfere.Fit(obs)
	for _, n := range []int{2, 3, 8} {
		b.Run(fmt.Sprintf("jobs=%d", n), func(b *testing.B) {
			s := interfere.Set{GPUType: gpuType, Mode: interfere.MPS, Jobs: w.jobs[5 : 5+n]}
			out := make([]float64, 0, 8)
			b.ReportAllocs()
			for b.Loop() {
				out = m.Speeds(s, out[:0])
			}
		})
	}
}

func BenchmarkFit(b *testing.B) {
	w := newWorld(100)
	var obs []interfere.Observation
	for v := range w.jobs {
		for o := range w.jobs {
			obs = append(obs, w.observe(v, o))
		}
	}
	obs = obs[:interfere.MaxObservations]
	b.ReportAllocs()
	for b.Loop() {
		interfere.Fit(obs)
	}
}

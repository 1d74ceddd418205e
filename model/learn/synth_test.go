package learn

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/fit"
	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/model/graph"
)

// world is a cluster whose physics is known: the true coefficients lie away
// from the priors, inside of their boxes.
type world struct {
	seed     uint64
	families []string
	types    []string
	noise    float64 // standard deviation of the logarithm of a label
	users    int
	name     string // of the first user
}

var (
	someFamilies = []string{"alder", "birch", "cedar", "douglas", "elm", "fir", "ginkgo", "hazel"}
	someTypes    = []string{"A100-SXM4-80GB", "H200", "L40S"}
)

func newWorld(seed uint64) world {
	return world{seed: seed, families: someFamilies, types: someTypes, noise: 0.04, users: 8, name: "user"}
}

// truth is the coefficient of each term: a third of the way from the prior to
// the upper edge, or to the lower one, by turns.
func truth(t model.Target) []float64 {
	c, boxes := t.Priors()
	for i, b := range boxes {
		to := min(b.High, 2*c[i]+0.5)
		if i%2 == 1 {
			to = max(b.Low, c[i]/2)
		}
		c[i] += float64((to - c[i]) / 3)
	}
	return c
}

// expect is what the world says of a job, without noise.
func expect(t model.Target, f *model.Features, gpu string) float64 {
	spec, _ := gpuspec.Lookup(gpu)
	w := model.CoreWeights()
	v := 0.0
	for i, x := range w.Terms(t, f, &spec) {
		v += float64(truth(t)[i] * x)
	}
	if t == model.Util {
		v = min(v, 1)
	}
	return v
}

// job draws the features of a model of a family: its size is the model's, its
// batch the run's.
func (w *world) job(r *rand.Rand) model.Features {
	family := w.families[r.IntN(len(w.families))]
	size := int64(r.IntN(5) + 1)
	batch := int64(8 << r.IntN(4))
	shape := rand.New(rand.NewPCG(uint64(model.FamilyHash(family)), uint64(size)))
	per := func(low, high int64) int64 { return low + shape.Int64N(high-low) }
	f := model.Features{Source: model.SourceGraph, Model: family + strconv.FormatInt(size, 10)}
	f.Run = model.Run{Mode: model.Training, Batch: batch, Steps: 100, Precision: graph.FP32, Optimizer: graph.Adam, Framework: "pytorch"}
	f.ParamBytes = size * per(20<<20, 120<<20)
	f.Params = f.ParamBytes / 4
	f.LargestBytes = batch * per(1<<20, 4<<20)
	f.SavedBytes = f.LargestBytes * (2 + size) * 4
	f.ActBytes, f.MatrixBytes = f.SavedBytes*2, f.SavedBytes/2
	f.InputBytes, f.OutputBytes = batch*602112, batch*4000
	f.WorkspaceBytes = per(0, 64<<20)
	f.MovedBytes = f.SavedBytes * 3
	f.FLOPs = batch * size * per(1e9, 8e9)
	f.Convs, f.Linears, f.Activations, f.Norms, f.Others = size*per(5, 20), 1, size*per(5, 20), size*per(5, 20), size
	return f
}

// samples draws n finished runs.
func (w *world) samples(n int) []model.Sample {
	r := rand.New(rand.NewPCG(w.seed, 77))
	out := make([]model.Sample, 0, n)
	for i := range n {
		f := w.job(r)
		gpu := w.types[r.IntN(len(w.types))]
		s := model.Sample{
			Seq: uint64(i + 1), Signature: "job-" + strconv.Itoa(i), GPUType: gpu, Steps: 100, Features: f,
			User: w.name + strconv.Itoa(r.IntN(max(1, w.users))),
		}
		// A sum of uniform numbers: near enough to normal, and the same everywhere.
		noisy := func() float64 {
			z := 0.0
			for range 12 {
				z += r.Float64()
			}
			return fit.Exp(float64(w.noise * (z - 6)))
		}
		s.PeakMiB = int64(math.Round(expect(model.Memory, &f, gpu) * noisy()))
		s.UtilMilli = int64(math.Round(1000 * min(1, expect(model.Util, &f, gpu)*noisy())))
		s.Seconds = expect(model.Time, &f, gpu) * noisy() * float64(s.Steps)
		out = append(out, s)
	}
	return out
}

func learned(t testing.TB, samples []model.Sample, opt Options) model.Weights {
	t.Helper()
	w, err := Fit(samples, model.CoreWeights(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// score is how well weights do on samples.
type score struct {
	miss  [3]float64 // mean |log(predicted/label)|
	cover float64    // of the peaks by the upper quantile
	room  float64    // mean of log(upper quantile/label)
}

func scoreOf(t testing.TB, w model.Weights, samples []model.Sample) (s score) {
	t.Helper()
	p, err := model.NewPredictor(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := float64(len(samples))
	for i := range samples {
		x := &samples[i]
		q := p.Predict(model.Request{Features: x.Features, Types: []model.TypeInfo{{Name: x.GPUType}}})[0]
		for _, target := range model.Targets() {
			label, _ := target.Label(x)
			s.miss[target] += math.Abs(math.Log(predicted(target, &q)/label)) / n
		}
		if q.GPUMemP95MiB >= x.PeakMiB {
			s.cover += 1 / n
		}
		s.room += math.Log(float64(q.GPUMemP95MiB)/float64(x.PeakMiB)) / n
	}
	return s
}

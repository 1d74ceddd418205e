package learn

import (
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/fit"
	"github.com/berth-scheduler/berth/model/gpuspec"
)

var update = flag.Bool("update", false, "rewrite testdata/golden.txt")

// TestGolden learns from fixed samples and compares the bytes with those of
// every other processor: run it with GOARCH=arm64, and with GOAMD64=v3. The
// checksums also change when a constant of the learning or a term of the physics
// does; -update then writes them anew.
func TestGolden(t *testing.T) {
	t.Parallel()
	w := newWorld(81)
	s := w.samples(60)
	first := learned(t, s, Options{Trees: 5})
	more, few := newWorld(82), newWorld(83)
	var b strings.Builder
	for _, v := range []struct {
		name string
		w    func() (model.Weights, error)
	}{
		{"learned", func() (model.Weights, error) { return first, nil }},
		{"learned by weight", func() (model.Weights, error) {
			for i := range s {
				s[i].User = "user"
				if i%3 == 0 {
					s[i].User, s[i].Signature = s[i].User+string(rune('a'+i%5)), "same"
				}
			}
			return Fit(s, model.CoreWeights(), Options{Trees: 5})
		}},
		{"learned on top", func() (model.Weights, error) { return Fit(more.samples(200), first, Options{Trees: 5}) }},
		{"calibrated", func() (model.Weights, error) { return Fit(few.samples(20), first, Options{Trees: 5}) }},
		{"challenger", func() (model.Weights, error) {
			v, err := Challenge(numbered(more.samples(40), 1), model.CoreWeights(), Options{Trees: 5})
			return v.Weights, err
		}},
	} {
		got, err := v.w()
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		fmt.Fprintf(&b, "%-18s %08x\n", v.name, crc32.ChecksumIEEE(got.Encode()))
	}
	const path = "testdata/golden.txt"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("checksums\n%smust be\n%sif constants have changed, run with -update; if nothing has, the arithmetic differs here", b.String(), want)
	}
}

// TestSizeOfFullForests: three targets with 150 trees each, and groups for a
// dozen kinds of runs, take at most 100 KiB.
func TestSizeOfFullForests(t *testing.T) {
	t.Parallel()
	w := newWorld(91)
	r := rand.New(rand.NewPCG(1, 1))
	var rows [][]float64
	var y []float64
	for _, s := range w.samples(1000) {
		spec, _ := gpuspec.Lookup(s.GPUType)
		rows, y = append(rows, s.Features.Columns(&spec)), append(y, r.NormFloat64()) // noise fills every tree
	}
	f, err := fit.Boost(rows, y, nil, fit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	full := model.CoreWeights()
	for _, target := range model.Targets() {
		prior, _ := target.Priors()
		l := model.Learned{Forest: f, Trees: [3]int{f.Trees(), f.Trees(), f.Trees()}, Types: someTypes, Factors: []float32{0, 0, 0}}
		for i := range 13 {
			coef := make([]float32, len(prior))
			for j := range coef {
				coef[j] = float32(prior[j])
			}
			key := ""
			if i > 0 {
				key = fmt.Sprintf("train/saved/bf16/pytorch/arch %02d/", i)
			}
			l.Groups = append(l.Groups, model.Group{Key: key, Coef: coef, Margin: -1})
		}
		for i := range 200 {
			l.Families = append(l.Families, uint32(i))
		}
		full.Learned[target] = l
	}
	if err := full.Check(); err != nil {
		t.Fatal(err)
	}
	n := len(full.Encode())
	t.Logf("%d trees of %d nodes per target: %d bytes", f.Trees(), f.Nodes(), n)
	if f.Trees() != 150 || n > 100<<10 {
		t.Errorf("%d trees take %d bytes, at most %d are allowed", f.Trees(), n, 100<<10)
	}
}

func BenchmarkFit(b *testing.B) {
	w := newWorld(1)
	s := w.samples(4096)
	for b.Loop() {
		learned(b, s, Options{})
	}
}

// BenchmarkPredictLearned asks for eight GPU types with learned weights, all of
// whose trees count.
func BenchmarkPredictLearned(b *testing.B) {
	w := newWorld(1)
	s := w.samples(600)
	r := rand.New(rand.NewPCG(2, 2))
	for i := range s { // noise that no physics explains keeps the trees
		f := &s[i].Features
		odd := math.Exp(0.3 * math.Sin(float64(f.Convs)+float64(f.Norms)*3+float64(f.Batch)))
		s[i].PeakMiB = int64(float64(s[i].PeakMiB) * odd)
		s[i].Seconds *= odd
		s[i].UtilMilli = max(1, int64(float64(s[i].UtilMilli)*(0.5+0.5*r.Float64())))
	}
	got := learned(b, s, Options{})
	for t := range got.Learned {
		l := &got.Learned[t]
		for i := range l.Trees {
			l.Trees[i] = l.Forest.Trees()
		}
	}
	p, err := model.NewPredictor(got, nil)
	if err != nil {
		b.Fatal(err)
	}
	var types []model.TypeInfo
	for _, name := range []string{"A100-SXM4-80GB", "H200", "L40S", "T4", "A40", "RTX-3090", "V100-SXM2-32GB", "L4"} {
		types = append(types, model.TypeInfo{Name: name})
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		p.Predict(model.Request{Features: s[i%len(s)].Features, Types: types})
		i++
	}
	b.ReportMetric(float64(got.Learned[0].Forest.Trees()+got.Learned[1].Forest.Trees()+got.Learned[2].Forest.Trees()), "trees")
}

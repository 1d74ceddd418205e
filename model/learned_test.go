package model

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/model/fit"
	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/model/graph"
)

// forests are a tame one and one whose leaves are beyond all reason.
var forests = sync.OnceValue(func() []*fit.Forest {
	r := rand.New(rand.NewPCG(1, 2))
	var out []*fit.Forest
	for _, size := range []float64{0.3, 1e15} {
		var rows [][]float64
		var y []float64
		for range 200 {
			row := make([]float64, columnCount)
			for j := range row {
				row[j] = 20 * r.NormFloat64()
			}
			rows, y = append(rows, row), append(y, size*(2*r.Float64()-1))
		}
		f, err := fit.Boost(rows, y, nil, fit.Options{Trees: 8, MinLeaf: 5, Loss: fit.Squared})
		if err != nil {
			panic(err)
		}
		out = append(out, f)
	}
	return out
})

// drawLearned makes what could have been learned of a target, within the bounds
// of check and out to their edges.
func drawLearned(t *rapid.T, target Target) Learned {
	var l Learned
	if rapid.IntRange(0, 3).Draw(t, "nothing learned") == 0 {
		return l
	}
	keys := []string{"", "infer/", "train/", "train/fp32/", "train/saved/", "train/saved/fp32/", "zzz/"}
	for i, key := range keys {
		if i > 0 && rapid.Bool().Draw(t, "no such group") {
			continue
		}
		g := Group{Key: key, Margin: rapid.SampledFrom([]float64{-1, 0, 0.1, maxMarginLog}).Draw(t, "group margin")}
		for range target.terms() {
			g.Coef = append(g.Coef, rapid.SampledFrom([]float32{0, 1e-30, 0.5, 1, 3, 1e4}).Draw(t, "coefficient"))
		}
		l.Groups = append(l.Groups, g)
	}
	l.Forest = rapid.SampledFrom(append(forests(), nil)).Draw(t, "forest")
	for i := range l.Trees {
		l.Trees[i] = rapid.IntRange(0, l.Forest.Trees()).Draw(t, "trees")
		l.Margins[i] = rapid.Float64Range(0, maxMarginLog).Draw(t, "margin")
	}
	for _, name := range []string{"A100-SXM4-40GB", "RTX-3090", "T4"} {
		if rapid.Bool().Draw(t, "type") {
			l.Types = append(l.Types, name)
			l.Factors = append(l.Factors, rapid.SampledFrom([]float32{-4, -0.1, 0, 0.5, 4}).Draw(t, "factor"))
		}
	}
	l.Families = rapid.SliceOfN(rapid.Uint32(), 0, 5).Draw(t, "families")
	l.Families = append(l.Families, FamilyHash("resnet"))
	slices.Sort(l.Families)
	l.Kinds = []uint32{KindHash(rapid.SampledFrom(keys).Draw(t, "kind"))}
	l.Samples = rapid.Int64Range(0, math.MaxInt64).Draw(t, "samples")
	return l
}

// drawWeights makes weights that Check takes.
func drawWeights(t *rapid.T) Weights {
	w := CoreWeights()
	if rapid.Bool().Draw(t, "odd core") {
		for _, c := range w.coefficients() {
			if rapid.Bool().Draw(t, c.name) {
				*c.p = rapid.SampledFrom([]float64{c.low, c.max, (c.low + c.max) / 2}).Draw(t, "value")
			}
		}
	}
	for _, target := range Targets() {
		w.Learned[target] = drawLearned(t, target)
	}
	w.TrainedSeq = rapid.Uint64().Draw(t, "seq")
	return w
}

func TestLearnedPredictionsStayInRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWeights(t)
		h := NewHistory([]Sample{{Signature: "a", GPUType: "T4", PeakMiB: rapid.Int64Range(0, 1<<20).Draw(t, "peak"), Seconds: 5, Steps: 2, UtilMilli: 300}})
		p, err := NewPredictor(w, h)
		if err != nil {
			t.Fatal(err)
		}
		ti := drawType(t)
		f := drawFeatures(t)
		f.Declared = Declared{}
		if rapid.Bool().Draw(t, "known family") {
			f.Model = "ResNet50"
		}
		r := Request{Features: f, Signature: rapid.SampledFrom([]string{"", "a"}).Draw(t, "signature"), Types: []TypeInfo{ti}}
		got := p.Predict(r)[0]
		card := ti.MemMiB
		if card == 0 {
			s, _ := gpuspec.Lookup(ti.Name)
			card = s.MemMiB
		}
		if got.GPUMemMiB < 1 || got.GPUMemP95MiB < got.GPUMemMiB || got.GPUMemP95MiB > card {
			t.Errorf("memory %d, P95 %d, card %d", got.GPUMemMiB, got.GPUMemP95MiB, card)
		}
		if got.UtilMilli < 1 || got.UtilMilli > 1000 || !(got.Confidence >= 0 && got.Confidence <= 1) {
			t.Errorf("utilization %d, confidence %v", got.UtilMilli, got.Confidence)
		}
		for _, v := range []float64{got.Seconds, got.StepSeconds} {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Errorf("%v s, %v s a step", got.Seconds, got.StepSeconds)
			}
		}
		if got.HostMemMiB < 0 || got.CPUMilli < 0 || got.PowerW < 0 {
			t.Errorf("out of range: %+v", got)
		}
		if d := cmp.Diff(got, p.Predict(r)[0]); d != "" {
			t.Errorf("a second answer differs:\n%s", d)
		}
		back, err := DecodeWeights(w.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if p, err = NewPredictor(back, h); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(got, p.Predict(r)[0]); d != "" {
			t.Errorf("decoded weights answer otherwise:\n%s", d)
		}
	})
}

// TestNothingTakesNoTime: a core without any constant cost, and a step without
// work, are no reason to answer NaN.
func TestNothingTakesNoTime(t *testing.T) {
	t.Parallel()
	w := CoreWeights()
	w.StepMillis, w.KernelMicros, w.LaunchMicros = 0, 0, 0
	f := Features{Source: SourceGraph, Run: Run{Batch: 1}}
	spec, _ := gpuspec.Lookup("T4")
	if seconds, util := w.step(&f, &spec); seconds != 0 || util != 0 {
		t.Errorf("%v s at %v, must be 0", seconds, util)
	}
}

// TestPartsAddUp: what a learned estimate is made of comes to the estimate, but
// for what rounding up each part adds.
func TestPartsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := CoreWeights()
		for w.Learned[Memory].empty() {
			w.Learned[Memory] = drawLearned(t, Memory)
		}
		l := &w.Learned[Memory]
		f := drawFeatures(t)
		f.Source = SourceGraph
		spec, _ := gpuspec.Lookup(rapid.SampledFrom([]string{"T4", "H200"}).Draw(t, "type"))
		var sc scratch
		g := l.estimate(Memory, l.Forest.Split(firstTypeColumn), &w, &f, &spec, &sc)
		sum := int64(0)
		for _, p := range g.parts(sc.terms[:], nil) {
			if p.MiB < 0 && p.Name != "correction" {
				t.Errorf("%s takes %d MiB", p.Name, p.MiB)
			}
			sum += p.MiB
		}
		if off := float64(sum) - g.value; off < -1-1e-9*g.value || off > maxTerms+1+1e-9*g.value {
			t.Errorf("parts of %d MiB make %v MiB", sum, g.value)
		}
		if g.p95 < g.value || !(g.value >= 0) {
			t.Errorf("estimate %v, upper quantile %v", g.value, g.p95)
		}
	})
}

// learnedOf builds small weights with one thing to learn from.
func learnedOf(change func(*Learned)) Weights {
	w := CoreWeights()
	prior, _ := Memory.Priors()
	coef := make([]float32, len(prior))
	for i, v := range prior {
		coef[i] = float32(v)
	}
	half := slices.Clone(coef)
	for i := range half {
		half[i] /= 2
	}
	l := Learned{
		Groups: []Group{{Coef: coef, Margin: -1}, {Key: "infer/", Coef: half, Margin: 0.2}},
		Forest: forests()[0], Trees: [3]int{8, 4, 2}, Margins: [3]float64{0.1, 0.3, 0.5},
		Families: []uint32{FamilyHash("resnet")}, Types: []string{"T4"}, Factors: []float32{0},
		Kinds: []uint32{KindHash("infer/saved/fp32/"), KindHash("train/saved/fp32/")},
	}
	slices.Sort(l.Kinds)
	change(&l)
	w.Learned[Memory] = l
	return w
}

// TestWhatAppliesToAJob: the group, the margin, the trees and the factor.
func TestWhatAppliesToAJob(t *testing.T) {
	t.Parallel()
	resnet := features(t, "resnet50", training64)
	infer := resnet
	infer.Mode = Inference
	stranger := resnet
	stranger.Model = "stranger3"
	kind := resnet
	kind.Precision = graph.FP16
	reserve := func(w Weights, f Features, gpu string) float64 {
		spec, _ := gpuspec.Lookup(gpu)
		var sc scratch
		g := w.Learned[Memory].estimate(Memory, w.Learned[Memory].Forest.Split(firstTypeColumn), &w, &f, &spec, &sc)
		return math.Log(g.p95 / g.value)
	}
	point := func(w Weights, f Features, gpu string) float64 {
		spec, _ := gpuspec.Lookup(gpu)
		var sc scratch
		return w.Learned[Memory].estimate(Memory, w.Learned[Memory].Forest.Split(firstTypeColumn), &w, &f, &spec, &sc).value
	}
	plain := learnedOf(func(*Learned) {})
	known, family, both := reserve(plain, resnet, "T4"), reserve(plain, stranger, "T4"), reserve(plain, stranger, "H200")
	if own := reserve(plain, infer, "T4"); !(known <= own && known < family && family < both) {
		t.Errorf("margins %v known, %v own group, %v new family, %v new type as well", known, own, family, both)
	}
	if other := reserve(plain, kind, "T4"); other <= family {
		t.Errorf("a margin of %v for a kind of run never measured, of %v for a new family", other, family)
	}
	bare := learnedOf(func(l *Learned) { l.Trees = [3]int{} })
	for name, f := range map[string]Features{"resnet": resnet, "stranger": stranger} {
		if point(plain, f, "T4") == point(bare, f, "T4") {
			t.Errorf("%s: the trees do not count", name)
		}
	}
	onlyKnown := learnedOf(func(l *Learned) { l.Trees = [3]int{8, 0, 0} })
	if a, b := point(onlyKnown, stranger, "T4"), point(bare, stranger, "T4"); a != b {
		t.Errorf("a new family has trees that did not prove helpful: %v, physics %v", a, b)
	}
	if a, b := point(onlyKnown, resnet, "H200"), point(bare, resnet, "H200"); a != b {
		t.Errorf("a new type has trees that did not prove helpful: %v, physics %v", a, b)
	}
	twice := learnedOf(func(l *Learned) { l.Trees, l.Factors[0] = [3]int{}, float32(math.Ln2) })
	if a, b := point(twice, resnet, "T4"), point(bare, resnet, "T4"); math.Abs(a/b-2) > 1e-6 {
		t.Errorf("a factor of 2 makes %v of %v", a, b)
	}
	if a, b := point(twice, resnet, "H200"), point(bare, resnet, "H200"); a != b {
		t.Errorf("another type's factor makes %v of %v", a, b)
	}
	wild := learnedOf(func(l *Learned) { l.Forest = forests()[1] })
	if r := math.Abs(math.Log(point(wild, resnet, "T4") / point(bare, resnet, "T4"))); r > Memory.RatioLimit()+1e-9 {
		t.Errorf("a wild forest corrects by e^%v, at most e^%v is allowed", r, Memory.RatioLimit())
	}
}

func TestFamily(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, want string }{
		{"resnet50", "resnet"}, {"ResNet-101", "resnet"}, {"wide_resnet50_2", "wide"}, {"bert-base-uncased", "bert"},
		{"GPT2", "gpt"}, {"vit", "vit"}, {"", ""}, {"50shades", ""}, {"Übernet", ""}, {"netü", "net"}, {"a", "a"},
	} {
		if got := Family(tc.name); got != tc.want {
			t.Errorf("Family(%q) = %q, must be %q", tc.name, got, tc.want)
		}
	}
	for _, tc := range []struct {
		text string
		want uint32
	}{{"", 0x811c9dc5}, {"a", 0xe40c292c}, {"foobar", 0xbf9cf968}} { // of the FNV authors' test suite
		if got := FamilyHash(tc.text); got != tc.want {
			t.Errorf("FamilyHash(%q) = %#x, must be %#x", tc.text, got, tc.want)
		}
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		t      Target
		s      Sample
		want   float64
		absent bool
	}{
		{"a peak", Memory, Sample{PeakMiB: 7}, 7, false},
		{"no peak", Memory, Sample{}, 0, true},
		{"a negative peak", Memory, Sample{PeakMiB: -1}, 0, true},
		{"a peak beyond any card", Memory, Sample{PeakMiB: math.MaxInt64}, 0, true},
		{"cut off by a limit", Memory, Sample{PeakMiB: 7, Censored: true}, 0, true},
		{"utilization", Util, Sample{UtilMilli: 250}, 0.25, false},
		{"more than a whole GPU", Util, Sample{UtilMilli: 5000}, 1, false},
		{"a step", Time, Sample{Seconds: 6, Steps: 3}, 2, false},
		{"unknown steps", Time, Sample{Seconds: 6}, 0, true},
		{"negative steps", Time, Sample{Seconds: 6, Steps: -1}, 0, true},
		{"NaN", Time, Sample{Seconds: math.NaN(), Steps: 1}, 0, true},
		{"for ever", Time, Sample{Seconds: math.Inf(1), Steps: 1}, 0, true},
		{"no time at all", Time, Sample{Seconds: 1e-300, Steps: 1}, 0, true},
	} {
		v, ok := tc.t.Label(&tc.s)
		if ok == tc.absent || ok && v != tc.want {
			t.Errorf("%s: %v, %v; must be %v, %v", tc.name, v, ok, tc.want, !tc.absent)
		}
	}
}

// TestPriorsLieInTheirBoxes, and each target has room in the scratch of Predict.
func TestPriorsLieInTheirBoxes(t *testing.T) {
	t.Parallel()
	for _, target := range Targets() {
		c, boxes := target.Priors()
		if len(c) > maxTerms || len(c) != len(boxes) {
			t.Fatalf("%s has %d priors and %d boxes, at most %d", target, len(c), len(boxes), maxTerms)
		}
		for i, b := range boxes {
			if !(b.Low >= 0 && b.Low <= c[i] && c[i] <= b.High && b.High <= 1e4) {
				t.Errorf("%s: %s: prior %v, box %v", target, target.terms()[i].name, c[i], b)
			}
		}
	}
}

// TestLearnedRefused: each bound of what may have been learned.
func TestLearnedRefused(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for _, tc := range []struct {
		name, want string
		change     func(*Learned)
	}{
		{"a negative coefficient", "must be 0 to 10000", func(l *Learned) { l.Groups[0].Coef[0] = -1 }},
		{"a coefficient of NaN", "must be 0 to 10000", func(l *Learned) { l.Groups[1].Coef[2] = nan }},
		{"a coefficient too large", "must be 0 to 10000", func(l *Learned) { l.Groups[0].Coef[1] = 1e5 }},
		{"a coefficient too few", "coefficients, must be", func(l *Learned) { l.Groups[0].Coef = l.Groups[0].Coef[1:] }},
		{"a coefficient too many", "", func(l *Learned) { l.Groups[0].Coef = append(l.Groups[0].Coef, 1) }},
		{"no general group", "must be the general one", func(l *Learned) { l.Groups = l.Groups[1:] }},
		{"groups not sorted", "not sorted", func(l *Learned) { l.Groups = append(l.Groups, Group{Key: "a/", Coef: l.Groups[0].Coef}) }},
		{"too many groups", "at most 64", func(l *Learned) { l.Groups = slices.Repeat(l.Groups[:1], maxGroups+1) }},
		{"a long key", "", func(l *Learned) { l.Groups[1].Key = strings.Repeat("k", maxGroupKey+1) }},
		{"a group margin of NaN", "margin NaN", func(l *Learned) { l.Groups[0].Margin = math.NaN() }},
		{"a group margin too wide", "margin 2", func(l *Learned) { l.Groups[0].Margin = 2 }},
		{"types not sorted", "not sorted", func(l *Learned) { l.Types, l.Factors = []string{"T4", "A40"}, []float32{0, 0} }},
		{"too many types", "at most 64", func(l *Learned) { l.Types, l.Factors = slices.Repeat([]string{"T4"}, 65), make([]float32, 65) }},
		{"a long type", "at most 64", func(l *Learned) { l.Types[0] = strings.Repeat("T", maxTypeName+1) }},
		{"a factor of NaN", "factor", func(l *Learned) { l.Factors[0] = nan }},
		{"a factor too large", "factor", func(l *Learned) { l.Factors[0] = 5 }},
		{"families not sorted", "not sorted", func(l *Learned) { l.Families = []uint32{2, 1} }},
		{"too many families", "1025 families", func(l *Learned) { l.Families = make([]uint32, maxFamilies+1) }},
		{"kinds not sorted", "not sorted", func(l *Learned) { l.Kinds = []uint32{2, 1} }},
		{"too many kinds", "", func(l *Learned) { l.Kinds = make([]uint32, maxKinds+1) }},
		{"a negative margin", "margin -0.1", func(l *Learned) { l.Margins[1] = -0.1 }},
		{"a margin of NaN", "margin NaN", func(l *Learned) { l.Margins[2] = math.NaN() }},
		{"more trees than there are", "there are 8", func(l *Learned) { l.Trees[0] = 9 }},
		{"trees without a forest", "there are 0", func(l *Learned) { l.Forest = nil }},
		{"a forest without physics", "forest", func(l *Learned) { l.Groups = nil }},
		{"negative samples", "", func(l *Learned) { l.Samples = -1 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := learnedOf(tc.change)
			if err := w.Check(); !errors.Is(err, ErrWeights) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Check: error %v, must hold %q", err, tc.want)
			}
			if _, err := DecodeWeights(w.Encode()); !errors.Is(err, ErrWeights) {
				t.Errorf("DecodeWeights: error %v, must be ErrWeights", err)
			}
			if _, err := NewPredictor(w, nil); !errors.Is(err, ErrWeights) {
				t.Errorf("NewPredictor: error %v, must be ErrWeights", err)
			}
		})
	}
	if w := learnedOf(func(*Learned) {}); w.Check() != nil {
		t.Errorf("unchanged: %v", w.Check())
	}
}

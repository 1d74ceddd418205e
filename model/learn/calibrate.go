package learn

import (
	"slices"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/fit"
)

// What a full fit on top of learned weights needs. With less, samples only
// calibrate: a few jobs that run all day show how this cluster differs from earlier
// measurements, but not what other kinds of models need.
const (
	fullRows   = 200
	fullModels = 8
)

// calibrates reports whether the samples only calibrate what is known.
func (tr *trainer) calibrates() bool {
	if len(tr.start.Groups) == 0 {
		return false
	}
	models := make(map[string]struct{})
	for i := range tr.rows {
		models[tr.rows[i].model] = struct{}{}
	}
	return len(tr.rows) < fullRows || len(models) < fullModels
}

// calibrate keeps physics and forest and adjusts the factors of the GPU types that
// the samples ran on. What counts is the number of models, not of runs, and of a
// user no more than its weight. Margins grow to cover what is left.
func (tr *trainer) calibrate(w *model.Weights, samples []model.Sample) (model.Learned, error) {
	l := tr.start
	l.Types, l.Factors, l.Groups = slices.Clone(l.Types), slices.Clone(l.Factors), slices.Clone(l.Groups)
	l.Samples += int64(len(tr.rows))
	miss, err := tr.missed(w, samples)
	if err != nil {
		return l, err
	}
	for _, gpu := range tr.types() {
		move := tr.shift(gpu, miss)
		j, ok := slices.BinarySearch(l.Types, gpu)
		if !ok {
			if len(l.Types) >= maxTypes {
				continue
			}
			l.Types, l.Factors = slices.Insert(l.Types, j, gpu), slices.Insert(l.Factors, j, 0)
		}
		old := float64(l.Factors[j])
		l.Factors[j] = float32(min(max(old+move, -2), 2))
		for i := range tr.rows {
			if tr.rows[i].gpu == gpu {
				miss[i] -= float64(l.Factors[j]) - old
			}
		}
	}
	weights := make([]float64, len(tr.rows))
	for i := range tr.rows {
		weights[i] = tr.rows[i].weight
	}
	left := min(max(fit.Conformal(slices.Clone(miss), weights, strict(tr.opt.Quantile)), 0), 1.5)
	for i := range l.Margins {
		l.Margins[i] = max(l.Margins[i], left)
	}
	for i := range l.Groups {
		if g := &l.Groups[i]; g.Margin >= 0 {
			g.Margin = max(g.Margin, left)
		}
	}
	return l, nil
}

// missed returns the logarithm of label over prediction, by row: of the samples, the
// prediction knows the floors that they show and nothing else.
func (tr *trainer) missed(w *model.Weights, samples []model.Sample) ([]float64, error) {
	p, err := model.NewPredictor(*w, model.NewHistory(samples))
	if err != nil {
		return nil, err
	}
	const anyCard = 1 << 29 // MiB: predictions must not be clamped to a GPU
	miss := make([]float64, len(tr.rows))
	for i := range tr.rows {
		s := &samples[tr.rows[i].sample]
		q := p.Predict(model.Request{Features: s.Features, Types: []model.TypeInfo{{Name: s.GPUType, Drivers: s.Driver, MemMiB: anyCard}}})[0]
		miss[i] = fit.Log(tr.rows[i].label / predicted(tr.t, &q))
	}
	return miss, nil
}

// types returns the GPU types of the rows, sorted.
func (tr *trainer) types() []string {
	var out []string
	for i := range tr.rows {
		out = append(out, tr.rows[i].gpu)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// shift returns the median miss of the models on a type, shrunk towards 0 if they
// are few.
func (tr *trainer) shift(gpu string, miss []float64) float64 {
	at := make(map[string]int)
	var values, weights [][]float64
	for i := range tr.rows {
		r := &tr.rows[i]
		if r.gpu != gpu {
			continue
		}
		j, ok := at[r.model]
		if !ok {
			j = len(values)
			at[r.model] = j
			values, weights = append(values, nil), append(weights, nil)
		}
		values[j], weights[j] = append(values[j], miss[i]), append(weights[j], r.weight)
	}
	middle, weight, total := make([]float64, len(values)), make([]float64, len(values)), 0.0
	for j := range values {
		sum := 0.0
		for _, w := range weights[j] {
			sum += w
		}
		middle[j], weight[j] = fit.Median(values[j], weights[j]), min(1, sum)
		total += weight[j]
	}
	return float64(fit.Median(middle, weight)*total) / (total + typeShrink)
}

// startCoef returns the coefficients that the start has for exactly this group.
func (tr *trainer) startCoef(key string) []float64 {
	for i := range tr.start.Groups {
		if tr.start.Groups[i].Key == key {
			return widen(tr.start.Groups[i].Coef)
		}
	}
	return nil
}

// keepGroups adds the groups of the start about which the samples say nothing.
func (tr *trainer) keepGroups(groups []model.Group) []model.Group {
	for _, g := range tr.start.Groups {
		known := slices.ContainsFunc(groups, func(o model.Group) bool { return o.Key == g.Key })
		if !known && len(groups) < maxGroups {
			groups = append(groups, g)
		}
	}
	return groups
}

package learn

import (
	"slices"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/fit"
)

// What a full fit on top of learned weights needs. With less, samples only
// calibrate: a few jobs that run all day say how this cluster differs from the
// measurements before, but not what models of other kinds need.
const (
	fullRows   = 200
	fullModels = 8
)

// calibrates tells whether the samples only calibrate what is known.
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

// calibrate keeps physics and forest and moves the factors of the GPU types
// that the samples ran on. What counts is the number of models, not of runs.
func (tr *trainer) calibrate(w *model.Weights, samples []model.Sample) (model.Learned, error) {
	p, err := model.NewPredictor(*w, nil)
	if err != nil {
		return model.Learned{}, err
	}
	l := tr.start
	l.Types, l.Factors, l.Groups = slices.Clone(l.Types), slices.Clone(l.Factors), slices.Clone(l.Groups)
	l.Samples += int64(len(tr.rows))
	type key struct{ gpu, model string }
	at := make(map[key]int)
	var keys []key
	var miss [][]float64
	for i := range tr.rows {
		r := &tr.rows[i]
		s := &samples[r.sample]
		q := p.Predict(model.Request{Features: s.Features, Types: []model.TypeInfo{{Name: s.GPUType, MemMiB: 1 << 29}}})[0]
		k := key{r.gpu, r.model}
		j, ok := at[k]
		if !ok {
			j = len(keys)
			at[k], keys, miss = j, append(keys, k), append(miss, nil)
		}
		miss[j] = append(miss[j], fit.Log(r.label/predicted(tr.t, &q)))
	}
	byType := make(map[string][]float64)
	var types []string
	for j, k := range keys {
		if byType[k.gpu] == nil {
			types = append(types, k.gpu)
		}
		byType[k.gpu] = append(byType[k.gpu], fit.Quantile(miss[j], 0.5))
	}
	for _, gpu := range types {
		n := float64(len(byType[gpu]))
		move := fit.Quantile(byType[gpu], 0.5) * n / (n + typeShrink)
		j, ok := slices.BinarySearch(l.Types, gpu)
		if !ok {
			if len(l.Types) >= maxTypes {
				continue
			}
			l.Types, l.Factors = slices.Insert(l.Types, j, gpu), slices.Insert(l.Factors, j, 0)
		}
		l.Factors[j] = float32(min(max(float64(l.Factors[j])+move, -2), 2))
	}
	return l, nil
}

// startCoef are the coefficients that the start has for exactly this group.
func (tr *trainer) startCoef(key string) []float64 {
	for i := range tr.start.Groups {
		if tr.start.Groups[i].Key == key {
			return widen(tr.start.Groups[i].Coef)
		}
	}
	return nil
}

// keepGroups adds the groups of the start that the samples say nothing about.
func (tr *trainer) keepGroups(groups []model.Group) []model.Group {
	for _, g := range tr.start.Groups {
		known := slices.ContainsFunc(groups, func(o model.Group) bool { return o.Key == g.Key })
		if !known && len(groups) < maxGroups {
			groups = append(groups, g)
		}
	}
	return groups
}

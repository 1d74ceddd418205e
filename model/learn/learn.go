// Package learn turns samples of finished runs into the predictor's weights:
// coefficients for the physics, a boosted forest for what the physics misses, and
// margins that hold for unseen models and GPU types.
//
// Everything is a function of the arguments: equal samples give equal bytes.
package learn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/fit"
	"github.com/berth-scheduler/berth/model/gpuspec"
)

// ErrTooFew is returned if the samples do not suffice for any target.
var ErrTooFew = errors.New("too few samples to learn from")

// Options of Fit and Challenge. The zero value takes the defaults.
type Options struct {
	// MinSamples is how many samples a target needs: 16.
	MinSamples int
	// Trees is the most trees per target: 150.
	Trees int
	// Quantile is the target of the margins: 0.95.
	Quantile float64
	Seed     uint64
}

func (o Options) withDefaults() Options {
	o.MinSamples = cmp.Or(o.MinSamples, 16)
	o.Trees = cmp.Or(o.Trees, 150)
	o.Quantile = cmp.Or(o.Quantile, 0.95)
	return o
}

// Fit learns from samples on top of start, whose analytic coefficients it keeps;
// targets with too few samples keep what start has. If start has learned before,
// few samples calibrate it (factors of GPU types), and many pull its coefficients
// and replace its forest; groups of runs without samples stay as they were. Samples
// that a limit ended, or whose features say nothing, are left out. The error is
// ErrTooFew if no target has enough.
func Fit(samples []model.Sample, start model.Weights, opt Options) (model.Weights, error) {
	opt = opt.withDefaults()
	w, learned := start, 0
	for _, t := range model.Targets() {
		rows := collect(t, samples, &w)
		if len(rows) < opt.MinSamples {
			continue
		}
		tr := newTrainer(t, rows, opt)
		tr.start = start.Learned[t]
		var l model.Learned
		var err error
		if tr.calibrates() {
			l, err = tr.calibrate(&start, samples)
		} else {
			l, err = tr.learn()
		}
		if err != nil {
			return start, fmt.Errorf("learn %s: %w", t, err)
		}
		w.Learned[t] = l
		learned++
	}
	if learned == 0 {
		return start, ErrTooFew
	}
	if err := w.Check(); err != nil {
		return start, err
	}
	return w, nil
}

// row is one sample as a target's learner sees it.
type row struct {
	terms, cols   []float64
	label, weight float64
	target        float64 // label less the factor of its type, while fitting
	key           string  // of the group
	family, model string
	gpu           string
	sample        int // its index
}

// collect makes rows of the samples with a label for t.
func collect(t model.Target, samples []model.Sample, w *model.Weights) []row {
	rows := make([]row, 0, len(samples))
	for i := range samples {
		s := &samples[i]
		label, ok := t.Label(s)
		if !ok || !s.Features.Known() || s.Features.Check() != nil {
			continue
		}
		spec, _ := gpuspec.Lookup(s.GPUType)
		if len(spec.Name) > maxTypeName {
			continue
		}
		rows = append(rows, row{
			terms: w.Terms(t, &s.Features, &spec), cols: s.Features.Columns(&spec), label: label,
			key: model.GroupKey(t, &s.Features, &spec), family: model.Family(s.Features.Model), model: s.Features.Model,
			gpu: spec.Name, sample: i,
		})
	}
	weigh(rows, samples)
	return rows
}

// trainer learns one target.
type trainer struct {
	t     model.Target
	opt   Options
	rows  []row
	start model.Learned // what was known before
}

func newTrainer(t model.Target, rows []row, opt Options) *trainer {
	return &trainer{t: t, opt: opt, rows: rows}
}

// learn fits physics and forest to all rows, and determines by leaving groups out
// how much of the forest counts and how wide the margins are.
func (tr *trainer) learn() (model.Learned, error) {
	all := make([]int, len(tr.rows))
	for i := range all {
		all[i] = i
	}
	c, err := tr.physics(all)
	if err != nil {
		return model.Learned{}, err
	}
	forest, err := tr.forest(all, c)
	if err != nil {
		return model.Learned{}, err
	}
	l := model.Learned{Groups: c.groups, Forest: forest, Types: c.types, Factors: c.factors, Samples: int64(len(tr.rows))}
	for i := range tr.rows {
		if r := &tr.rows[i]; r.family != "" {
			l.Families = append(l.Families, model.FamilyHash(r.family))
		}
		l.Kinds = append(l.Kinds, model.KindHash(tr.rows[i].key))
	}
	l.Families = distinct(l.Families, maxFamilies)
	l.Kinds = distinct(append(l.Kinds, tr.start.Kinds...), maxKinds)
	if err := tr.judge(&l); err != nil {
		return model.Learned{}, err
	}
	if most := max(l.Trees[0], l.Trees[1], l.Trees[2]); most < forest.Trees() {
		l.Forest = forest.First(most)
	}
	return l, nil
}

// distinct sorts hashes, removes duplicates and keeps at most n.
func distinct(hashes []uint32, n int) []uint32 {
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	return hashes[:min(len(hashes), n)]
}

// Bounds of the families, kinds and types that weights remember, and of their
// names.
const (
	maxFamilies = 1024
	maxKinds    = 256
	maxTypes    = 64
	maxTypeName = 64
)

// judge leaves out models, families and types in turn.
func (tr *trainer) judge(l *model.Learned) error {
	byModel := func(r *row) string { return r.model }
	byFamily := func(r *row) string { return r.family }
	byType := func(r *row) string { return r.gpu }
	known, err := tr.leaveOut(byModel, 2)
	if err != nil {
		return err
	}
	if known == nil {
		if known, err = tr.leaveOut(nil, 2); err != nil {
			return err
		}
	}
	l.Trees[model.KnownFamily], l.Margins[model.KnownFamily] = known.trees, known.margin(nil, tr.fewModels(strict(tr.opt.Quantile)))
	for i := range l.Groups {
		g := &l.Groups[i]
		if !slices.ContainsFunc(tr.rows, func(r row) bool { return hasPrefix(r.key, g.Key) }) {
			continue // keeps the start's
		}
		g.Margin = known.margin(func(r *row) bool { return hasPrefix(r.key, g.Key) }, tr.fewModels(strict(tr.opt.Quantile)))
	}
	for i, by := range []func(*row) string{byFamily, byType} {
		v, err := tr.leaveOut(by, 3)
		if err != nil {
			return err
		}
		if v == nil {
			// Unknown: physics alone, and a wider margin.
			l.Margins[i+1] = min(1.5, 1.5*l.Margins[0])
			continue
		}
		l.Trees[i+1], l.Margins[i+1] = v.trees, max(l.Margins[0], v.margin(nil, strict(tr.opt.Quantile)))
	}
	return nil
}

// strict returns the quantile to aim at if the groups that were left out are only
// some of those to come: a fifth fewer misses.
func strict(q float64) float64 { return 1 - float64(0.8*(1-q)) }

// fewModels returns the quantile to aim at for rows of few models: rows of one
// model miss alike, so few models say little about the tail.
func (tr *trainer) fewModels(q float64) float64 {
	models := make(map[string]struct{})
	for i := range tr.rows {
		models[tr.rows[i].model] = struct{}{}
	}
	return 1 - float64((1-q)*max(0, 1-fewGroups/float64(len(models))))
}

// fewGroups is the number of models that say nothing about the tail.
const fewGroups = 5

func hasPrefix(s, prefix string) bool { return len(s) >= len(prefix) && s[:len(prefix)] == prefix }

// maxFolds bounds how often leaveOut trains.
const maxFolds = 5

// folds assigns each row a fold, rows of one group the same; nil if there are fewer
// groups than least. A nil by assigns the rows one by one.
func (tr *trainer) folds(by func(*row) string, least int) [][]int {
	seen := make(map[string]int)
	sizes := make([]int, 0, maxFolds)
	out := make([][]int, maxFolds)
	name := func(i int) string {
		if by == nil {
			return strconv.Itoa(i)
		}
		return by(&tr.rows[i])
	}
	// Large groups first, each to the smallest fold, so that folds become even.
	count := make(map[string]int)
	var names []string
	for i := range tr.rows {
		n := name(i)
		if count[n]++; count[n] == 1 {
			names = append(names, n)
		}
	}
	if len(names) < least {
		return nil
	}
	slices.SortStableFunc(names, func(a, b string) int { return count[b] - count[a] })
	for range min(maxFolds, len(names)) {
		sizes = append(sizes, 0)
	}
	for _, n := range names {
		k := slices.Index(sizes, slices.Min(sizes))
		seen[n] = k
		sizes[k] += count[n]
	}
	for i := range tr.rows {
		k := seen[name(i)]
		out[k] = append(out[k], i)
	}
	return out[:len(sizes)]
}

// verdict is the result of leaving groups out.
type verdict struct {
	tr    *trainer
	trees int
	miss  []float64 // log(label/estimate) of each row with that many trees
}

// stages are the numbers of trees that leaveOut tries, as fractions of all.
var stages = [...]float64{0, 0.15, 0.3, 0.5, 0.75, 1}

// leaveOut predicts each row from what was learned from the rows of other groups.
// It returns nil if there are fewer groups than least.
func (tr *trainer) leaveOut(by func(*row) string, least int) (*verdict, error) {
	tr = tr.sample(maxJudged)
	folds := tr.folds(by, least)
	if folds == nil {
		return nil, nil
	}
	limit := tr.t.RatioLimit()
	var miss [len(stages)][]float64
	for s := range miss {
		miss[s] = make([]float64, len(tr.rows))
	}
	for k, test := range folds {
		var train []int
		for j, f := range folds {
			if j != k {
				train = append(train, f...)
			}
		}
		slices.Sort(train)
		c, err := tr.physics(train)
		if err != nil {
			return nil, err
		}
		forest, err := tr.forest(train, c)
		if err != nil {
			return nil, err
		}
		for _, i := range test {
			r := &tr.rows[i]
			base := fit.Log(r.label / c.estimate(r))
			sum, from := 0.0, 0
			for s, part := range stages {
				to := int(part * float64(forest.Trees()))
				sum += forest.Range(r.cols, from, to)
				from = to
				miss[s][i] = base - min(max(sum, -limit), limit)
			}
		}
	}
	best, most := 0, 0.0
	for s := range miss {
		e := 0.0
		for i, m := range miss[s] {
			m = min(abs(m), 2)
			if tr.loss() == fit.Squared {
				m = float64(m * m)
			}
			e += float64(tr.rows[i].weight * m)
		}
		// More trees must earn their place.
		if e = float64(e * (1 + float64(0.01*stages[s]))); s == 0 || e < most {
			best, most = s, e
		}
	}
	return &verdict{tr: tr, trees: int(stages[best] * float64(tr.opt.Trees)), miss: miss[best]}, nil
}

// maxJudged bounds the rows that leaveOut works on.
const maxJudged = 3000

// sample returns a trainer of at most n rows, taken evenly.
func (tr *trainer) sample(n int) *trainer {
	if len(tr.rows) <= n {
		return tr
	}
	some := *tr
	some.rows = make([]row, 0, n)
	for k := range n {
		some.rows = append(some.rows, tr.rows[k*len(tr.rows)/n])
	}
	return &some
}

func abs(v float64) float64 { return max(v, -v) }

// minMargin is how many rows a margin needs.
const minMargin = 40

// margin returns how far, as a logarithm, labels exceed estimates with probability
// q among the rows for which pick is true (nil: all); −1 if they are too few to
// tell, 0 if estimates are above anyway.
func (v *verdict) margin(pick func(*row) bool, q float64) float64 {
	var miss, weights []float64
	for i := range v.miss {
		if pick == nil || pick(&v.tr.rows[i]) {
			miss, weights = append(miss, v.miss[i]), append(weights, v.tr.rows[i].weight)
		}
	}
	if pick != nil && len(miss) < minMargin {
		return -1
	}
	return min(max(fit.Conformal(miss, weights, q), 0), 1.5)
}

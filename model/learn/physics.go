package learn

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/fit"
)

// Parameters of the coefficient fit.
const (
	// rootPull and groupPull are how many rows the prior counts for: published
	// physics for the root, the root's coefficients for a group.
	rootPull, groupPull = 2, 15
	// minGroup is how many rows a group needs for coefficients of its own.
	minGroup  = 30
	maxGroups = 64
	// robust is the relative error beyond which a row pulls no harder.
	robust = 0.05
	rounds = 6
)

// core is what is learned before the forest.
type core struct {
	groups  []model.Group
	types   []string // sorted
	factors []float32
}

// estimate returns the core's estimate for r.
func (c *core) estimate(r *row) float64 {
	v := r.base(c.groups)
	if k, ok := slices.BinarySearch(c.types, r.gpu); ok {
		v *= fit.Exp(float64(c.factors[k]))
	}
	return v
}

// base returns the physics of r with the coefficients of its group.
func (r *row) base(groups []model.Group) float64 {
	g := &groups[0]
	for i := range groups {
		if c := &groups[i]; len(c.Key) > len(g.Key) && hasPrefix(r.key, c.Key) {
			g = c
		}
	}
	v := 0.0
	for i, c := range g.Coef {
		v += float64(float64(c) * r.terms[i])
	}
	return max(v, 1e-6)
}

// typeShrink is how many rows the prior "this type is as the physics says" counts
// for.
const typeShrink = 3

// physics fits coefficients and factors of GPU types in turn, so that type-specific
// effects do not distort the coefficients.
func (tr *trainer) physics(train []int) (*core, error) {
	c := &core{}
	for _, i := range train {
		c.types = append(c.types, tr.rows[i].gpu)
	}
	slices.Sort(c.types)
	c.types = slices.Compact(c.types)
	c.types = c.types[:min(len(c.types), maxTypes)]
	c.factors = make([]float32, len(c.types))
	for range 3 {
		groups, err := tr.groups(train, c)
		if err != nil {
			return nil, err
		}
		if c.groups = groups; len(c.types) < 2 {
			break
		}
		miss, weights := make([][]float64, len(c.types)), make([][]float64, len(c.types))
		for _, i := range train {
			r := &tr.rows[i]
			if k, ok := slices.BinarySearch(c.types, r.gpu); ok {
				miss[k], weights[k] = append(miss[k], fit.Log(r.label/r.base(groups))), append(weights[k], r.weight)
			}
		}
		for k, m := range miss {
			n := float64(len(m))
			c.factors[k] = float32(min(max(fit.Median(m, weights[k])*n/(n+typeShrink), -2), 2))
		}
	}
	return c, nil
}

// groups fits the coefficients of the root and of each group that is large enough,
// from general to special, to the labels divided by c's factors.
func (tr *trainer) groups(train []int, c *core) ([]model.Group, error) {
	for _, i := range train {
		r := &tr.rows[i]
		r.target = r.label
		if k, ok := slices.BinarySearch(c.types, r.gpu); ok {
			r.target = r.label / fit.Exp(float64(c.factors[k]))
		}
	}
	prior := tr.startCoef("")
	if prior == nil {
		prior, _ = tr.t.Priors()
	}
	root, err := tr.coefficients(train, prior, rootPull)
	if err != nil {
		return nil, err
	}
	groups := []model.Group{{Coef: root, Margin: -1}}
	members := make(map[string][]int)
	for _, i := range train {
		key := tr.rows[i].key
		for end := 0; end < len(key); {
			end += strings.IndexByte(key[end:], '/') + 1
			members[key[:end]] = append(members[key[:end]], i)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(members)) {
		rows := members[k]
		parent := groups[0]
		size := len(train)
		for _, g := range groups {
			if len(g.Key) > len(parent.Key) && hasPrefix(k, g.Key) {
				parent, size = g, len(members[g.Key])
			}
		}
		if len(rows) < minGroup || len(rows) == size || len(groups) == maxGroups {
			continue
		}
		prior := tr.startCoef(k)
		if prior == nil {
			prior = widen(parent.Coef)
		}
		coef, err := tr.coefficients(rows, prior, groupPull)
		if err != nil {
			return nil, err
		}
		groups = append(groups, model.Group{Key: k, Coef: coef, Margin: -1})
	}
	groups = tr.keepGroups(groups)
	slices.SortFunc(groups, func(a, b model.Group) int { return cmp.Compare(a.Key, b.Key) })
	return groups, nil
}

func widen(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// coefficients minimizes the relative error with Huber's loss: a row that is far
// off pulls with a bounded force. It uses iteratively reweighted least squares,
// starting from the prior, lest outliers decide where it ends.
func (tr *trainer) coefficients(train []int, prior []float64, pull float64) ([]float32, error) {
	rows, y := make([][]float64, len(train)), make([]float64, len(train))
	_, boxes := tr.t.Priors()
	c := prior
	for range rounds {
		for k, i := range train {
			r := &tr.rows[i]
			s := math.Sqrt(float64(r.weight * r.force(c)))
			rows[k] = slices.Grow(rows[k][:0], len(r.terms))
			for _, v := range r.terms {
				rows[k] = append(rows[k], float64(v/r.target)*s)
			}
			y[k] = s
		}
		var err error
		if c, err = fit.Bounded(rows, y, prior, boxes, pull); err != nil {
			return nil, err
		}
	}
	out := make([]float32, len(c))
	for j := range c {
		out[j] = float32(min(c[j], 1e4))
	}
	return out, nil
}

// force returns how much r counts in the next round given this round's c: less
// beyond a miss of robust. The miss is relative to the greater of estimate and
// label, or else a label that is far too small would pull harder the smaller it is.
func (r *row) force(c []float64) float64 {
	v := 0.0
	for j := range c {
		v += float64(c[j] * r.terms[j])
	}
	v /= r.target
	over := max(1, v)
	return min(1, robust*over/max(abs(v-1), 1e-9)) / over / over
}

// forest fits what the physics misses.
func (tr *trainer) forest(train []int, c *core) (*fit.Forest, error) {
	rows, y, w := make([][]float64, len(train)), make([]float64, len(train)), make([]float64, len(train))
	limit := tr.t.RatioLimit()
	for k, i := range train {
		r := &tr.rows[i]
		rows[k], w[k] = r.cols, r.weight
		y[k] = min(max(fit.Log(r.label/c.estimate(r)), -2*limit), 2*limit)
	}
	even := !slices.ContainsFunc(w, func(v float64) bool { return v != 1 })
	if even {
		w = nil
	}
	leaf := min(15, max(5, len(train)/50))
	return fit.Boost(rows, y, w, fit.Options{Trees: tr.opt.Trees, MinLeaf: leaf, Loss: tr.loss(), Seed: tr.opt.Seed})
}

// loss returns the loss of the forest. One utilization far off is worse than two
// that are slightly off, since the scheduler adds them up; memory and time have
// unexplainable outliers.
func (tr *trainer) loss() fit.Loss {
	if tr.t == model.Util {
		return fit.Squared
	}
	return fit.Absolute
}

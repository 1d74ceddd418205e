package fit

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Options of Boost. The zero value takes the defaults.
type Options struct {
	Trees   int     // 150
	Depth   int     // 4, at most MaxDepth
	MinLeaf int     // minimum rows per leaf: 15
	Rate    float64 // learning rate: 0.07
	Sample  float64 // fraction of the rows that each tree sees, at most 1: 0.6
	Loss    Loss
	Seed    uint64
}

// Loss is what Boost minimizes.
type Loss uint8

// The losses: Absolute aims at the median and tolerates outliers, Squared at the
// mean.
const (
	Absolute Loss = iota
	Squared
)

// MaxDepth bounds Options.Depth, MaxColumns the numbers per row.
const (
	MaxDepth   = 8
	MaxColumns = 256
)

// maxLabel bounds the labels: leaves hold float32, and their squares are summed.
const maxLabel = 1e15

func (o Options) withDefaults() Options {
	o.Trees = cmp.Or(o.Trees, 150)
	o.Depth = cmp.Or(o.Depth, 4)
	o.MinLeaf = cmp.Or(o.MinLeaf, 15)
	o.Rate = cmp.Or(o.Rate, 0.07)
	o.Sample = cmp.Or(o.Sample, 0.6)
	o.Depth = min(max(o.Depth, 1), MaxDepth)
	o.Sample = min(o.Sample, 1)
	return o
}

// maxBins bounds the thresholds tried per column.
const maxBins = 96

// Boost fits a forest to y by gradient boosting: with the absolute error as its
// loss each tree is grown on the signs of the residuals and outputs medians, with
// the squared error on the residuals and outputs means (Friedman 2001, Greedy
// Function Approximation, algorithms 3 and 2), each on a random part of the rows
// (Friedman 2002). Thresholds are quantiles of the columns. weights, not negative,
// say how many rows each row counts for; nil means one each. A forest that reaches
// MaxNodes has fewer trees than requested. Errors wrap ErrData.
func Boost(rows [][]float64, y, weights []float64, opt Options) (*Forest, error) {
	n, err := columns(rows, y)
	if err != nil {
		return nil, err
	}
	if err := checkLabels(y, weights, n); err != nil {
		return nil, err
	}
	g := newGrower(rows, y, weights, n, opt.withDefaults())
	f := &Forest{Columns: n}
	for range g.opt.Trees {
		if len(f.nodes)+2<<g.opt.Depth > MaxNodes {
			break
		}
		g.sample()
		f.starts = append(f.starts, int32(len(f.nodes)))
		f.nodes = g.tree(f.nodes)
	}
	return f, nil
}

// checkLabels checks the requirements of Boost alone.
func checkLabels(y, weights []float64, n int) error {
	if n > MaxColumns {
		return fmt.Errorf("%w: %d columns, at most %d are allowed", ErrData, n, MaxColumns)
	}
	if weights != nil && len(weights) != len(y) {
		return fmt.Errorf("%w: %d weights for %d rows", ErrData, len(weights), len(y))
	}
	for i, v := range y {
		if math.Abs(v) > maxLabel {
			return fmt.Errorf("%w: value %d is %v, must be within ±%v", ErrData, i, v, float64(maxLabel))
		}
	}
	for i, w := range weights {
		if !(w >= 0 && w <= maxLabel) {
			return fmt.Errorf("%w: weight %d is %v, must be 0 to %v", ErrData, i, w, float64(maxLabel))
		}
	}
	return nil
}

// grower is the state of one Boost.
type grower struct {
	opt     Options
	n       int
	bins    [][]uint8   // per column, per row
	cuts    [][]float64 // per column: bin b holds values ≤ cuts[b]
	left    []float64   // residuals of the trees so far
	weights []float64   // nil: all 1
	rng     *rand.Rand
	order   []int32
	rows    []int32 // of this tree
	cut     []uint8 // by node of this tree: the bin up to which rows go left
	pull    []float64
	right   []int32 // scratch of partition
	here    []pulled
	scratch []float64
	pairs   []weighted
}

func newGrower(rows [][]float64, y, weights []float64, n int, opt Options) *grower {
	g := &grower{
		opt: opt, n: n, left: slices.Clone(y), weights: weights, rng: rand.New(rand.NewPCG(opt.Seed, 0x62657274)),
		order: make([]int32, len(rows)), pull: make([]float64, len(rows)),
	}
	for i := range g.order {
		g.order[i] = int32(i)
	}
	column := make([]float64, len(rows))
	for j := range n {
		for i, r := range rows {
			column[i] = r[j]
		}
		cuts := thresholds(column)
		bins := make([]uint8, len(rows))
		for i, r := range rows {
			b, _ := slices.BinarySearch(cuts, r[j])
			bins[i] = uint8(b)
		}
		g.cuts, g.bins = append(g.cuts, cuts), append(g.bins, bins)
	}
	return g
}

// thresholds returns at most maxBins−1 values between neighbours of the sorted
// column, in increasing order. They are float32, as the forest stores them.
func thresholds(column []float64) []float64 {
	v := slices.Clone(column)
	slices.Sort(v)
	var cuts []float64
	step := max(1, float64(float64(len(v))/maxBins))
	next := step
	for i := 1; i < len(v); i++ {
		if v[i] == v[i-1] || float64(i) < next {
			continue
		}
		c := float64(float32(v[i-1] + float64((v[i]-v[i-1])/2)))
		if c >= v[i] || c < v[i-1] { // float32 cannot tell the two apart
			continue
		}
		if len(cuts) == 0 || c > cuts[len(cuts)-1] {
			cuts = append(cuts, c)
		}
		next = float64(i) + step
	}
	return cuts[:min(len(cuts), maxBins-1)]
}

// sample draws the rows of the next tree.
func (g *grower) sample() {
	k := max(1, int(g.opt.Sample*float64(len(g.order))))
	for i := range k {
		j := i + g.rng.IntN(len(g.order)-i)
		g.order[i], g.order[j] = g.order[j], g.order[i]
	}
	g.rows = append(g.rows[:0], g.order[:k]...)
	slices.Sort(g.rows)
}

// tree grows one tree onto nodes, and subtracts its output from g.left.
func (g *grower) tree(nodes []node) []node {
	root := int32(len(nodes))
	for _, i := range g.rows {
		g.pull[i] = float64(g.weight(i) * g.slope(i))
	}
	g.cut = g.cut[:0]
	nodes = g.grow(nodes, g.rows, 0)
	for i := range g.left {
		at := root
		for nodes[at].right != 0 {
			n := &nodes[at]
			if g.bins[n.column][i] <= g.cut[at-root] {
				at++
			} else {
				at += int32(n.right)
			}
		}
		g.left[i] -= float64(nodes[at].value)
	}
	return nodes
}

// grow adds the subtree over rows; its left child follows it.
func (g *grower) grow(nodes []node, rows []int32, depth int) []node {
	at := len(nodes)
	column, cut := -1, 0
	if depth < g.opt.Depth && len(rows) >= 2*g.opt.MinLeaf {
		column, cut = g.split(rows)
	}
	g.cut = append(g.cut, uint8(cut))
	if column < 0 {
		return append(nodes, node{value: float32(g.opt.Rate * g.center(rows))})
	}
	nodes = append(nodes, node{column: uint8(column), value: float32(g.cuts[column][cut])})
	k := g.partition(rows, column, cut)
	nodes = g.grow(nodes, rows[:k], depth+1)
	nodes[at].right = uint16(len(nodes) - at)
	return g.grow(nodes, rows[k:], depth+1)
}

// partition moves the rows of the left child to the front, keeping the order, and
// returns their number.
func (g *grower) partition(rows []int32, column, cut int) int {
	bins, k := g.bins[column], 0
	g.right = g.right[:0]
	for _, i := range rows {
		if int(bins[i]) <= cut {
			rows[k] = i
			k++
		} else {
			g.right = append(g.right, i)
		}
	}
	copy(rows[k:], g.right)
	return k
}

// split finds the column and cut that explain most of the residuals; the first
// among equals; −1 if none explains any.
func (g *grower) split(rows []int32) (column, cut int) {
	var total, weight float64
	g.here = g.here[:0]
	for _, i := range rows {
		p := pulled{g.pull[i], g.weight(i), i}
		g.here = append(g.here, p)
		total += p.pull
		weight += p.weight
	}
	best := float64(total*total)/weight + 1e-9
	column = -1
	var hist [maxBins]bin
	for j := range g.n {
		last := len(g.cuts[j])
		clear(hist[:last+1])
		bins := g.bins[j]
		for k := range g.here {
			p := &g.here[k]
			h := &hist[bins[p.row]]
			h.pull += p.pull
			h.weight += p.weight
			h.rows++
		}
		var s, w float64
		c := 0
		for b := range last {
			s, w, c = s+hist[b].pull, w+hist[b].weight, c+hist[b].rows
			if c < g.opt.MinLeaf || len(rows)-c < g.opt.MinLeaf || weight-w <= 0 || w <= 0 {
				continue
			}
			r := total - s
			if score := float64(s*s)/w + float64(r*r)/(weight-w); score > best {
				best, column, cut = score, j, b
			}
		}
	}
	return column, cut
}

// pulled is a row of the node being split, bin the totals of the rows in one bin of
// a column.
type (
	pulled struct {
		pull, weight float64
		row          int32
	}
	bin struct {
		pull, weight float64
		rows         int
	}
)

func (g *grower) weight(i int32) float64 {
	if g.weights == nil {
		return 1
	}
	return g.weights[i]
}

// slope is the residual of row i, or only its sign.
func (g *grower) slope(i int32) float64 {
	if g.opt.Loss == Squared {
		return g.left[i]
	}
	return sign(g.left[i])
}

// center returns the output of a leaf of rows.
func (g *grower) center(rows []int32) float64 {
	if g.opt.Loss == Absolute {
		return g.median(rows)
	}
	var sum, weight float64
	for _, i := range rows {
		w := g.weight(i)
		sum += float64(w * g.left[i])
		weight += w
	}
	return sum / max(weight, tiny)
}

func sign(v float64) float64 {
	switch {
	case v > 0:
		return 1
	case v < 0:
		return -1
	default:
		return 0
	}
}

// median returns the weighted median of the residuals of rows.
func (g *grower) median(rows []int32) float64 {
	if g.weights == nil {
		g.scratch = g.scratch[:0]
		for _, i := range rows {
			g.scratch = append(g.scratch, g.left[i])
		}
		return Quantile(g.scratch, 0.5)
	}
	g.pairs = g.pairs[:0]
	total := 0.0
	for _, i := range rows {
		g.pairs = append(g.pairs, weighted{g.left[i], g.weights[i]})
		total += g.weights[i]
	}
	slices.SortFunc(g.pairs, func(a, b weighted) int { return cmp.Compare(a.v, b.v) })
	sum := 0.0
	for _, p := range g.pairs {
		if sum += p.w; sum >= total/2 {
			return p.v
		}
	}
	return 0
}

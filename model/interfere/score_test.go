package interfere

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Split is how Evaluate divides pairs into those to learn from and those to be
// tested on.
type Split uint8

// The splits. None has the same pair on both sides.
const (
	// Random divides the pairs into five parts and tests on each in turn. Both
	// jobs of most test pairs were seen in other pairs.
	Random Split = iota
	// UnseenFamilies tests on the pairs of each two families in turn, trained on
	// the pairs that have none of the two: neither job's model was ever seen.
	UnseenFamilies
	// UnseenTypes tests on each GPU type in turn, trained on the others.
	UnseenTypes
)

// String is the split in words.
func (s Split) String() string {
	switch s {
	case Random:
		return "random"
	case UnseenFamilies:
		return "unseen families"
	case UnseenTypes:
		return "unseen GPU types"
	}
	return "unknown"
}

// Result is how well one way to predict did.
type Result struct {
	// Method is "learned" for the whole model, "coefficients" for the refitted
	// prior alone, "built-in" for the default prior, "constant" for the mean
	// speed of the training pairs.
	Method string
	Rows   int // speeds predicted: two a pair
	// MAPE, Median and P90 are of the absolute error over the measured speed.
	MAPE, Median, P90 float64
	// Surprises is the share of rows with a predicted speed of 0.9 or more and a
	// measured one below 0.8.
	Surprises float64
}

// String is one line of numbers.
func (r Result) String() string {
	return fmt.Sprintf("%-12s %5d rows: MAPE %4.1f %%, median %4.1f %%, P90 %4.1f %%, surprises %4.1f %%",
		r.Method, r.Rows, 100*r.MAPE, 100*r.Median, 100*r.P90, 100*r.Surprises)
}

var methods = [...]string{"learned", "coefficients", "built-in", "constant"}

// Evaluate predicts all pairs, each by models that were fitted without it, and
// returns one Result a method, or none if the split leaves nothing to train on.
// seed decides which pairs the parts of Random hold. Pairs of the same jobs in
// the same place, in either order, stay together.
func Evaluate(pairs []Pair, split Split, seed uint64) []Result {
	part := make(map[string][]int)
	var names []string
	for i := range pairs {
		n := split.part(&pairs[i], seed)
		if _, ok := part[n]; !ok {
			names = append(names, n)
		}
		part[n] = append(part[n], i)
	}
	slices.Sort(names)
	var scores [len(methods)][]outcome
	for _, n := range names {
		var train, test []Pair
		sample := &pairs[part[n][0]]
		for i := range pairs {
			switch {
			case split.part(&pairs[i], seed) == n:
				test = append(test, pairs[i])
			case !split.taints(&pairs[i], sample):
				train = append(train, pairs[i])
			}
		}
		if len(train) == 0 {
			continue
		}
		for i, o := range predict(train, test) {
			scores[i] = append(scores[i], o...)
		}
	}
	return summarize(scores)
}

// Newcomer says how fast a new model is learned: for each family in turn, it
// fits to the pairs without it and to known of the pairs with it, and predicts
// the others with it. seed decides which pairs are known. It returns one Result
// a method.
func Newcomer(pairs []Pair, known int, seed uint64) []Result {
	families := make(map[string]struct{})
	for i := range pairs {
		families[pairs[i].A.Family] = struct{}{}
		families[pairs[i].B.Family] = struct{}{}
	}
	var scores [len(methods)][]outcome
	for _, f := range slices.Sorted(maps.Keys(families)) {
		var train, with []Pair
		for i := range pairs {
			if pairs[i].A.Family == f || pairs[i].B.Family == f {
				with = append(with, pairs[i])
			} else {
				train = append(train, pairs[i])
			}
		}
		slices.SortStableFunc(with, func(a, b Pair) int { return cmp.Compare(a.shuffle(seed), b.shuffle(seed)) })
		// Pairs of the same jobs stay together.
		cut := min(known, len(with))
		for cut > 0 && cut < len(with) && with[cut].shuffle(seed) == with[cut-1].shuffle(seed) {
			cut++
		}
		train = append(train, with[:cut]...)
		if len(train) == 0 {
			continue
		}
		for i, o := range predict(train, with[cut:]) {
			scores[i] = append(scores[i], o...)
		}
	}
	return summarize(scores)
}

// shuffle is equal for pairs of the same jobs on the same type, else random.
func (p *Pair) shuffle(seed uint64) uint64 {
	return mix((identity(&p.A) + identity(&p.B) + digest(p.GPUType)) ^ mix(seed))
}

// Score fits to train and predicts test, one Result a method. It does not check
// that the two have nothing in common.
func Score(train, test []Pair) []Result {
	if len(train) == 0 || len(test) == 0 {
		return nil
	}
	return summarize(predict(train, test))
}

// part names the part in which a pair is tested.
func (s Split) part(p *Pair, seed uint64) string {
	switch s {
	case UnseenFamilies:
		return min(p.A.Family, p.B.Family) + "\x00" + max(p.A.Family, p.B.Family)
	case UnseenTypes:
		return p.GPUType
	}
	const parts = 5
	return string(rune('a' + p.shuffle(seed)%parts))
}

// taints says whether p must not be trained on when the part of test is tested.
func (s Split) taints(p, test *Pair) bool {
	if s != UnseenFamilies {
		return false
	}
	for _, f := range [...]string{p.A.Family, p.B.Family} {
		if f == test.A.Family || f == test.B.Family {
			return true
		}
	}
	return false
}

type outcome struct{ predicted, actual float64 }

// predict gives the outcomes of each method.
func predict(train, test []Pair) (out [len(methods)][]outcome) {
	m := Fit(Observations(train))
	var mean float64
	for i := range train {
		mean += (train[i].SpeedA + train[i].SpeedB) / float64(2*len(train))
	}
	var buf []float64
	for i := range test {
		p := &test[i]
		jobs := []Job{p.A, p.B}
		add := func(method int, speeds []float64) {
			out[method] = append(out[method], outcome{speeds[0], p.SpeedA}, outcome{speeds[1], p.SpeedB})
		}
		buf = m.Speeds(Set{GPUType: p.GPUType, Mode: p.Mode, Jobs: jobs}, buf[:0])
		add(0, buf)
		c := m.coefficients(m.find(p.GPUType), p.Mode)
		add(1, c.Speeds(jobs, nil))
		c = DefaultCoefficients(p.Mode)
		add(2, c.Speeds(jobs, nil))
		add(3, []float64{mean, mean})
	}
	return out
}

func summarize(scores [len(methods)][]outcome) []Result {
	var out []Result
	for i, os := range scores {
		if len(os) == 0 {
			return nil
		}
		r := Result{Method: methods[i], Rows: len(os)}
		errs := make([]float64, len(os))
		for j, o := range os {
			errs[j] = math.Abs(o.predicted-o.actual) / o.actual
			r.MAPE += errs[j] / float64(len(os))
			if o.predicted >= 0.9 && o.actual < 0.8 {
				r.Surprises += 1 / float64(len(os))
			}
		}
		slices.SortFunc(errs, cmp.Compare[float64])
		r.Median, r.P90 = quantile(errs, 0.5), quantile(errs, 0.9)
		out = append(out, r)
	}
	return out
}

// quantile of sorted values, by the nearest rank.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

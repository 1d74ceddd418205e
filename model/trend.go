package model

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// How the runs of a program depend on its numbers follows Ernest (Venkataraman et
// al., NSDI 2016): run time is a constant and a part that grows with the size of
// the run, neither below zero, and few runs are enough to know both. Since a
// cluster's runs are not made for the purpose, the coefficients are the medians of
// Theil and Sen instead of least squares, so that some runs may be far off, and a
// number counts only if it predicts the runs at each of its values from those at
// the others, much better than carrying over does.
const (
	// trendPart is the fraction of the error of carrying over that a number may
	// leave if its name suggests how long a program runs, and trendPartUnnamed if
	// it does not; trendMiss and trendMissUnnamed are what it may leave in any
	// case, as logarithms.
	trendPart, trendPartUnnamed = 0.5, 0.2
	trendMiss, trendMissUnnamed = 0.40, 0.20
	// trendValues and trendValuesUnnamed are the numbers of distinct values that
	// need runs.
	trendValues, trendValuesUnnamed = 2, 3
	// curvedValues is that number for growth other than in proportion, and
	// curvedPart the fraction of the proportional error that it may leave.
	curvedValues = 6
	curvedPart   = 0.5
	// passedOver is the number of values from which on the worst outlier is
	// ignored.
	passedOver = 6
	// trendRange bounds the ratio of a prediction to the most, or the least, of
	// those that ran.
	trendRange = 1000
	// memoryValues and memoryMiss are what it takes to attribute memory to a
	// number, the second as a logarithm; memoryRange bounds the ratio of the number
	// to those that ran.
	memoryValues = 4
	memoryMiss   = 0.10
	memoryRange  = 2
)

// Confidence of a time predicted from a number. Nine in ten errors are below 1.28
// standard deviations, which are 1.25 mean errors; few values make both uncertain.
// Each factor of two in a number's distance from those that ran reduces it by
// perDoubling, a logarithm.
const (
	tailOfMiss  = 1.6
	fewValues   = 2
	perDoubling = 0.12
	leastSure   = 0.001
	mostSure    = 0.9
)

// powers are those of a number with which something may grow, proportional first;
// with a negative one it falls.
var powers = [...]float64{1, 2, 0.5, 3, -1}

// numbered is a run of a program: its numbers, and its time and memory, 0 if
// unknown.
type numbered struct {
	numbers      []float64
	seconds, mib float64
}

// trends are how the runs of a program on one type of GPU depend on its numbers,
// computed on demand. Commands of one program have the same names of numbers, so it
// does not matter who asks first.
type trends struct {
	runs         []numbered
	once         sync.Once
	seconds, mem trend
	carried      float64 // mean error of carrying times over, as a logarithm
}

// note keeps a run of a program; observe bounds their number.
func (o *observed) note(s *Sample) {
	if s.Censored {
		return
	}
	if o.trends == nil {
		o.trends = &trends{}
	}
	r := numbered{numbers: s.Numbers, mib: float64(s.PeakMiB)}
	if s.Features.Steps == 0 && s.Seconds > 0 && s.Seconds < 1e12 {
		r.seconds = s.Seconds
	}
	o.trends.runs = append(o.trends.runs, r)
}

func (t *trends) learn(ns []Number) {
	t.once.Do(func() {
		t.seconds = findTrend(t.runs, ns, func(r *numbered) float64 { return r.seconds })
		t.mem = findTrend(t.runs, ns, func(r *numbered) float64 { return r.mib })
		var all []value
		for i := range t.runs {
			if s := t.runs[i].seconds; s > 0 {
				all = append(all, value{y: s, n: 1, sum: s})
			}
		}
		t.carried = carryMiss(all)
	})
}

// secondsBy returns how long a command with such numbers runs, by which of them, -1
// for none, and with what confidence; see Prediction.TimeConfidence.
func (o *observed) secondsBy(ns []Number) (secs float64, by int, sure float64) {
	secs, by = o.seconds.value(), -1
	if o.trends == nil {
		return secs, by, 0
	}
	t := o.trends
	t.learn(ns)
	if t.seconds.tells(ns) {
		y, beyond := t.seconds.at(ns[t.seconds.number].Value)
		return y, t.seconds.number, sureOf(t.seconds.miss, float64(len(t.seconds.values)), beyond)
	}
	if o.seconds.n > 1 {
		return secs, by, min(confidenceProgram, sureOf(t.carried, float64(o.seconds.n), 0))
	}
	for i, n := range ns { // one run says nothing about twice the epochs
		if was := t.runs[0].numbers; n.Long && i < len(was) && was[i] != n.Value && len(t.runs) == 1 {
			return secs, by, leastSure
		}
	}
	return secs, by, 0
}

// memoryBy returns the memory of a command with such numbers if it clearly depends
// on one of them, and the factor by which it may be more.
func (o *observed) memoryBy(ns []Number) (mib, margin float64, ok bool) {
	if o.trends == nil {
		return 0, 0, false
	}
	o.trends.learn(ns)
	t := &o.trends.mem
	if !t.tells(ns) || len(t.values) < memoryValues || t.worst > memoryMiss {
		return 0, 0, false
	}
	mib, beyond := t.at(ns[t.number].Value)
	if !(beyond <= math.Log2(memoryRange)) {
		return 0, 0, false
	}
	return mib, math.Exp(2 * t.worst), true
}

// sureOf converts a mean error over n values to a confidence: nine in ten take at
// most 3 − 1.5 times it as long.
func sureOf(miss, n, beyond float64) float64 {
	tail := math.Exp(float64((tailOfMiss+fewValues/n)*miss) + float64(perDoubling*beyond))
	return min(mostSure, max(leastSure, (3-tail)/1.5))
}

// value is what runs at one value of a number took: the median, their number, and
// their sum.
type value struct {
	x, y, sum float64
	n         float64
}

// trend is growth with a number: start + each × value^power. The zero value is
// none.
type trend struct {
	number             int
	power, start, each float64
	miss, worst        float64 // errors at left-out values, as logarithms
	values             []value // by x
}

// tells reports whether there is a trend that applies to such numbers.
func (t *trend) tells(ns []Number) bool {
	return len(t.values) > 0 && t.number < len(ns) && ns[t.number].Value >= 0 && !math.IsInf(ns[t.number].Value, 0)
}

// at returns the trend's prediction for a value, and how many doublings it is away
// from those that ran. Runs at that very value are a better predictor than any
// line.
func (t *trend) at(x float64) (y, beyond float64) {
	least, most := t.values[0], t.values[len(t.values)-1]
	if i := slices.IndexFunc(t.values, func(v value) bool { return v.x == x }); i >= 0 {
		return t.values[i].y, 0
	}
	switch {
	case x > most.x:
		beyond = math.Log2(x / most.x)
	case x < least.x:
		beyond = math.Log2(least.x / x)
	}
	low, high := least.y, most.y
	for _, v := range t.values {
		low, high = min(low, v.y), max(high, v.y)
	}
	return min(high*trendRange, max(low/trendRange, t.line(x))), beyond
}

func (t *trend) line(x float64) float64 {
	return t.start + float64(t.each*math.Pow(x, t.power))
}

// findTrend looks for the number with which get's figure of the runs grows: the one
// that best predicts left-out values, preferring those whose names suggest how long
// a program runs.
func findTrend(runs []numbered, ns []Number, get func(*numbered) float64) (best trend) {
	for i, n := range ns {
		vs := at(runs, i, len(ns), get)
		least, part, miss := trendValues, trendPart, trendMiss
		if !n.Long {
			least, part, miss = trendValuesUnnamed, trendPartUnnamed, trendMissUnnamed
		}
		if len(vs) < least {
			continue
		}
		carry := carryMiss(vs)
		for _, power := range powers {
			if power != 1 && len(vs) < curvedValues {
				break
			}
			t := trend{number: i, power: power, values: vs}
			if !t.fit() || t.miss > min(miss, part*carry) {
				continue
			}
			limit := math.Inf(1)
			switch {
			case len(best.values) == 0:
			case ns[best.number].Long && !n.Long:
				limit = 0
			case best.number != i:
				limit = best.miss
			default:
				limit = curvedPart * best.miss
			}
			if t.miss < limit {
				best = t
			}
		}
	}
	return best
}

// at collects what runs took at each value of one of their numbers, in order;
// nothing if a value is below zero or unknown.
func at(runs []numbered, number, numbers int, get func(*numbered) float64) (out []value) {
	type run struct{ x, y float64 }
	var all []run
	for i := range runs {
		y := get(&runs[i])
		if len(runs[i].numbers) != numbers || y <= 0 {
			continue
		}
		x := runs[i].numbers[number]
		if !(x >= 0) || math.IsInf(x, 0) {
			return nil
		}
		all = append(all, run{x, y})
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(a.y, b.y)) })
	for len(all) > 0 {
		n, sum := 0, 0.0
		for n < len(all) && all[n].x == all[0].x {
			sum += all[n].y
			n++
		}
		out = append(out, value{x: all[0].x, y: (all[(n-1)/2].y + all[n/2].y) / 2, sum: sum, n: float64(n)})
		all = all[n:]
	}
	return out
}

// carryMiss returns the mean error, as a logarithm, of predicting what runs took at
// one value by the mean of the others; 0 for one value.
func carryMiss(vs []value) (miss float64) {
	sum, n := 0.0, 0.0
	for _, v := range vs {
		sum, n = sum+v.sum, n+v.n
	}
	if len(vs) < 2 {
		return 0
	}
	for _, v := range vs {
		miss += math.Abs(math.Log((sum-v.sum)/(n-v.n)/v.y)) / float64(len(vs))
	}
	return miss
}

// fit sets the line of t and its errors, each at a left-out value, and reports
// whether there is such a line. With many values the worst outlier is ignored.
func (t *trend) fit() bool {
	vs := t.values
	rest := make([]value, 0, len(vs))
	sum := 0.0
	for i, v := range vs {
		rest = append(append(rest[:0], vs[:i]...), vs[i+1:]...)
		if !t.through(rest) {
			return false
		}
		miss := math.Abs(math.Log(t.line(v.x) / v.y))
		if !(miss < 100) {
			return false
		}
		sum, t.worst = sum+miss, max(t.worst, miss)
	}
	if n := float64(len(vs)); len(vs) >= passedOver {
		t.miss = (sum - t.worst) / (n - 1)
	} else {
		t.miss = sum / n
	}
	return t.through(vs)
}

// through fits the line through values: the median of the slopes of all pairs, and
// of the remainders; through the origin if that is below zero, or there is one
// value.
func (t *trend) through(vs []value) bool {
	var slopes, left []float64
	for i, v := range vs {
		for _, w := range vs[:i] {
			if d := math.Pow(v.x, t.power) - math.Pow(w.x, t.power); d != 0 {
				slopes = append(slopes, (v.y-w.y)/d)
			}
		}
	}
	if len(slopes) > 0 {
		t.each = median(slopes)
		for _, v := range vs {
			left = append(left, v.y-float64(t.each*math.Pow(v.x, t.power)))
		}
		t.start = median(left)
	}
	if len(slopes) == 0 || t.start < 0 {
		slopes = slopes[:0]
		for _, v := range vs {
			if x := math.Pow(v.x, t.power); x > 0 {
				slopes = append(slopes, v.y/x)
			}
		}
		if len(slopes) == 0 {
			return false
		}
		t.start, t.each = 0, median(slopes)
	}
	return t.each > 0 && t.each < math.Inf(1) && !math.IsInf(t.start, 0) && !math.IsNaN(t.start)
}

// median sorts its argument.
func median(vs []float64) float64 {
	slices.Sort(vs)
	return (vs[(len(vs)-1)/2] + vs[len(vs)/2]) / 2
}

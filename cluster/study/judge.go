package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Seen is what one run of a trial reported of the metric. Values are immutable.
type Seen struct {
	// Last is the latest value, and Best the best one, at BestStep.
	Last, Best float64
	BestStep   int64
	// Marks are the values at rungs, lowest rung first.
	Marks []Mark
}

// Mark is a trial's value at a rung, counted from 0.
type Mark struct {
	Rung  uint32
	Value float64
}

// maxRungs bounds rungs: beyond it, step numbers overflow.
const maxRungs = 40

// brackets is how many brackets Hyperband has.
const brackets = 3

func (s *Study) better(a, b float64) bool {
	if s.Maximize {
		return a > b
	}
	return a < b
}

// bracket returns a trial's Hyperband bracket: of 1 + Eta + Eta² consecutive trials
// most are in the first.
func (s *Study) bracket(trial uint32) int {
	if s.Rule != RuleHyperband {
		return 0
	}
	eta := uint32(s.Eta)
	switch at := trial % (1 + eta + eta*eta); {
	case at < eta*eta:
		return 0
	case at < eta*eta+eta:
		return 1
	}
	return brackets - 1
}

// rung returns the highest rung that a trial reaches at that many steps; ok is
// false below the first.
func (s *Study) rung(trial uint32, step int64) (rung uint32, ok bool) {
	if !s.stops() {
		return 0, false
	}
	if s.Rule == RulePBT {
		return uint32(min(step/s.First-1, math.MaxUint32)), step >= s.First
	}
	at := s.First
	for range s.bracket(trial) {
		at *= int64(s.Eta)
	}
	for n := uint32(0); n < maxRungs && step >= at; n++ {
		rung, ok = n, true
		if at > step/int64(s.Eta) {
			break
		}
		at *= int64(s.Eta)
	}
	return rung, ok
}

// Step returns the number of steps at which a trial reaches a rung.
func (s *Study) Step(trial, rung uint32) int64 {
	at := s.First
	if s.Rule == RulePBT {
		return at * (int64(rung) + 1)
	}
	for range min(int(rung), maxRungs) + s.bracket(trial) {
		if at > math.MaxInt64/int64(s.Eta) {
			return math.MaxInt64
		}
		at *= int64(s.Eta)
	}
	return at
}

// News reports whether a trial with state was, nil for none, has reached a rung for
// which it has no mark.
func (s *Study) News(trial uint32, was *Seen, step int64) bool {
	r, ok := s.rung(trial, step)
	return ok && (was == nil || len(was.Marks) == 0 || was.Marks[len(was.Marks)-1].Rung < r)
}

// Saw returns the state of a trial, was before (nil for none), after it reported
// said at step: the last value and, with a BestStep above 0, the best until then.
// Values that are not numbers change nothing.
func (s *Study) Saw(trial uint32, was *Seen, step int64, said Seen) *Seen {
	value := said.Last
	if !finite(value) {
		return was
	}
	now := &Seen{Last: value, Best: value, BestStep: step}
	if said.BestStep > 0 && finite(said.Best) && !s.better(value, said.Best) {
		now.Best, now.BestStep = said.Best, min(said.BestStep, step)
	}
	if was != nil {
		now.Marks = was.Marks
		if !s.better(now.Best, was.Best) {
			now.Best, now.BestStep = was.Best, was.BestStep
		}
	}
	if s.News(trial, was, step) {
		r, _ := s.rung(trial, step)
		now.Marks = append(now.Marks[:len(now.Marks):len(now.Marks)], Mark{r, value})
		if n := len(now.Marks); s.Rule == RulePBT && n > keepMarks {
			now.Marks = now.Marks[n-keepMarks:]
		}
	}
	return now
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Trial is one trial of a study and its state.
type Trial struct {
	No   uint32
	Seen *Seen // nil before the first report
	// Over means that it no longer runs, so no trial may continue from it.
	Over bool
}

// Field holds the values of a study's trials at each rung, against which each is
// judged.
type Field struct {
	s  *Study
	at map[place][]float64 // sorted, best first
}

// place is a rung of a bracket.
type place struct {
	bracket int
	rung    uint32
}

// Field collects the trials that reported something, including ended ones. Its cost
// is that of sorting their marks.
func (s *Study) Field(all []Trial) *Field {
	f := &Field{s: s, at: map[place][]float64{}}
	for _, t := range all {
		if t.Seen == nil {
			continue
		}
		b := s.bracket(t.No)
		for i, m := range t.Seen.Marks {
			f.at[place{b, m.Rung}] = append(f.at[place{b, m.Rung}], f.worth(t.Seen.Marks[:i+1]))
		}
	}
	for _, values := range f.at {
		slices.SortFunc(values, f.byWorth)
	}
	return f
}

// worth returns the value by which a trial is compared at the last of its marks:
// the value there, or under the median rule the mean up to there.
func (f *Field) worth(marks []Mark) float64 {
	if f.s.Rule != RuleMedian {
		return marks[len(marks)-1].Value
	}
	sum := 0.0
	for _, m := range marks {
		sum += m.Value
	}
	return sum / float64(len(marks))
}

// byWorth orders better values first.
func (f *Field) byWorth(a, b float64) int {
	if f.s.Maximize {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// Verdict returns why a trial of the field should end, "" if it goes on. It is
// judged at the highest rung that it has reached, each time another trial reaches
// that rung: being among the first to reach it does not protect it.
func (f *Field) Verdict(t Trial) string {
	s := f.s
	if !s.stops() || s.Rule == RulePBT || t.Seen == nil || len(t.Seen.Marks) == 0 {
		return ""
	}
	marks := t.Seen.Marks
	mark := marks[len(marks)-1]
	values := f.at[place{s.bracket(t.No), mark.Rung}]
	n := len(values)
	own, found := slices.BinarySearchFunc(values, f.worth(marks), f.byWorth) // the first of equal ones
	switch {
	case !found: // it is not in the field
		return ""
	case s.Rule == RuleMedian:
		return s.belowMedian(t, mark, values, own)
	case n < s.Eta || own < n/s.Eta:
		return ""
	}
	return fmt.Sprintf("%s %.6g at step %d is number %d of %d trials there, and the best %d go on", s.Metric, mark.Value, s.Step(t.No, mark.Rung), own+1, n, n/s.Eta)
}

// leastOthers is how many others Vizier's rule needs for a median.
const leastOthers = 3

// belowMedian compares the best of a trial with the means of the others; means is
// sorted, and own is the trial's index in it.
func (s *Study) belowMedian(t Trial, mark Mark, means []float64, own int) string {
	n := len(means) - 1
	if n < leastOthers {
		return ""
	}
	other := func(i int) float64 {
		if i >= own {
			i++
		}
		return means[i]
	}
	best := mark.Value
	for _, m := range t.Seen.Marks {
		if s.better(m.Value, best) {
			best = m.Value
		}
	}
	median := (other((n-1)/2) + other(n/2)) / 2
	if !s.better(median, best) {
		return ""
	}
	return fmt.Sprintf("%s %.6g until step %d is worse than the median %.6g of %d other trials", s.Metric, best, s.Step(t.No, mark.Rung), median, n)
}

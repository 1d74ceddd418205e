package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Seen is what one run of a trial said of the metric. Values are immutable.
type Seen struct {
	// Last is what it said last, and Best the best, at BestStep.
	Last, Best float64
	BestStep   int64
	// Marks are what it said at rungs, the lowest first.
	Marks []Mark
}

// Mark is what a trial said when it had come to a rung, counted from 0.
type Mark struct {
	Rung  uint32
	Value float64
}

// maxRungs bounds rungs: beyond, steps are no numbers any more.
const maxRungs = 40

// brackets is how many Hyperband has.
const brackets = 3

func (s *Study) better(a, b float64) bool {
	if s.Maximize {
		return a > b
	}
	return a < b
}

// bracket is which of Hyperband's a trial is in: of 1 + Eta + Eta² trials in a row most
// are in the first.
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

// rung is the highest that a trial has come to with so many steps; ok is false below the
// first.
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

// Step is at how many steps a trial comes to a rung.
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

// News reports whether a trial that was seen, nil for never, has come to a rung that it
// has no mark of.
func (s *Study) News(trial uint32, was *Seen, step int64) bool {
	r, ok := s.rung(trial, step)
	return ok && (was == nil || len(was.Marks) == 0 || was.Marks[len(was.Marks)-1].Rung < r)
}

// Saw is what is known of a trial that was seen, nil for never, when it has said something
// after so many steps: the last and, with a BestStep above 0, the best until then. What is no
// number changes nothing.
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

// Trial is one of a study's, as far as it has come.
type Trial struct {
	No   uint32
	Seen *Seen // nil when it said nothing
	// Over is that it runs no more, so that none goes on from it.
	Over bool
}

// Field is what the trials of a study said at each rung, by which one of them is judged.
type Field struct {
	s  *Study
	at map[place][]float64 // sorted, the best first
}

// place is a rung of a bracket.
type place struct {
	bracket int
	rung    uint32
}

// Field puts those of a study's trials side by side that said something, ended ones among
// them. It takes about as long as sorting their marks.
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

// worth is what a trial is compared by at the last of its marks: what it said there, or
// under the median rule the mean until then.
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

// byWorth puts the better first.
func (f *Field) byWorth(a, b float64) int {
	if f.s.Maximize {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// Verdict says why a trial of the field is to end, "" when it goes on. It is judged at the
// highest rung that it has come to, as often as others come there: who was among the first
// is not spared for that.
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
	case !found: // it is none of the field
		return ""
	case s.Rule == RuleMedian:
		return s.belowMedian(t, mark, values, own)
	case n < s.Eta || own < n/s.Eta:
		return ""
	}
	return fmt.Sprintf("%s %.6g at step %d is number %d of %d trials there, and the best %d go on", s.Metric, mark.Value, s.Step(t.No, mark.Rung), own+1, n, n/s.Eta)
}

// leastOthers is of how many others Vizier's rule needs the median.
const leastOthers = 3

// belowMedian holds the best of a trial against the means of the others; means are in
// order, and own is its place among them.
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

package study

import (
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

// better reports whether a is better than b.
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

// Saw is what is known of a trial that was seen, nil for never, when it says value after so
// many steps. What is no number changes nothing.
func (s *Study) Saw(trial uint32, was *Seen, step int64, value float64) *Seen {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return was
	}
	now := &Seen{Last: value, Best: value, BestStep: step}
	if was != nil {
		now.Marks = was.Marks
		if !s.better(value, was.Best) {
			now.Best, now.BestStep = was.Best, was.BestStep
		}
	}
	if s.News(trial, was, step) {
		r, _ := s.rung(trial, step)
		now.Marks = append(now.Marks[:len(now.Marks):len(now.Marks)], Mark{r, value})
	}
	return now
}

// Trial is one of a study's, as far as it has come.
type Trial struct {
	No   uint32
	Seen *Seen // nil when it said nothing
}

// Verdict says why a trial is to end, "" when it goes on. all are those of the study that
// said something, ended ones and the trial itself among them. It is judged at the highest
// rung that it has come to, as often as others come there: who was among the first is not
// spared for that.
func (s *Study) Verdict(t Trial, all []Trial) string {
	if !s.stops() || t.Seen == nil || len(t.Seen.Marks) == 0 {
		return ""
	}
	mark := t.Seen.Marks[len(t.Seen.Marks)-1]
	var others []Trial
	for _, o := range all {
		if o.No != t.No && s.bracket(o.No) == s.bracket(t.No) && o.at(mark.Rung) != nil {
			others = append(others, o)
		}
	}
	if s.Rule == RuleMedian {
		return s.belowMedian(t, mark, others)
	}
	n := len(others) + 1
	if n < s.Eta {
		return ""
	}
	place := 1
	for _, o := range others {
		if s.better(o.at(mark.Rung).Value, mark.Value) {
			place++
		}
	}
	if place <= n/s.Eta {
		return ""
	}
	return fmt.Sprintf("%s %.6g at step %d is number %d of %d trials there, and the best %d go on", s.Metric, mark.Value, s.Step(t.No, mark.Rung), place, n, n/s.Eta)
}

// leastOthers is of how many others Vizier's rule needs the median.
const leastOthers = 3

func (s *Study) belowMedian(t Trial, mark Mark, others []Trial) string {
	if len(others) < leastOthers {
		return ""
	}
	best := mark.Value
	for _, m := range t.Seen.Marks {
		if s.better(m.Value, best) {
			best = m.Value
		}
	}
	var means []float64
	for _, o := range others {
		sum, n := 0.0, 0.0
		for _, m := range o.Seen.Marks {
			if m.Rung <= mark.Rung {
				sum, n = sum+m.Value, n+1
			}
		}
		means = append(means, sum/n)
	}
	slices.Sort(means)
	median := (means[(len(means)-1)/2] + means[len(means)/2]) / 2
	if !s.better(median, best) {
		return ""
	}
	return fmt.Sprintf("%s %.6g until step %d is worse than the median %.6g of %d other trials", s.Metric, best, s.Step(t.No, mark.Rung), median, len(others))
}

// at is what a trial said when it came to a rung, nil when it did not or passed over it.
func (t *Trial) at(rung uint32) *Mark {
	if t.Seen == nil {
		return nil
	}
	for i := range t.Seen.Marks {
		if t.Seen.Marks[i].Rung == rung {
			return &t.Seen.Marks[i]
		}
	}
	return nil
}

// Package study defines a search over parameters: an array of trials, each with its
// own values, and a rule that ends inferior trials early. It imports nothing else
// of Berth and draws the same values wherever and whenever it is asked, so that
// only a trial's number has to be stored.
package study

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a study.
const (
	// MaxTrials bounds trials, MaxAxes parameters and MaxValues the values of one.
	MaxTrials, MaxAxes, MaxValues = 10_000, 32, 1000
	// MaxPlaces bounds how often its command may name parameters.
	MaxPlaces = 256
	// maxValueBytes bounds one value, maxBytes a whole study; see Bytes.
	maxValueBytes, maxBytes = 256, 48 << 10
	maxName                 = 64
	maxFirst                = 1_000_000_000
	maxBudget               = 876_000 * time.Hour
)

// Study is one search, or without a Space the metric of one job that is not a
// trial. Values are immutable.
type Study struct {
	// Metric is the key under which trials report their quality in their progress,
	// and Maximize reports whether more is better.
	Metric   string
	Maximize bool
	// Rule ends trials early, unless it is "" or RuleNone. Trials are compared at
	// rungs: the first at First steps, and each next at Eta times the steps of the
	// one before.
	Rule  Rule
	First int64
	Eta   int
	// Grid takes every combination of values in turn; otherwise they are drawn, by
	// Seed.
	Grid  bool
	Seed  uint64
	Space []Axis
	// Budget bounds the whole-GPU time of all trials together, 0 for no bound.
	Budget time.Duration
}

// Rule says how trials end early.
type Rule string

// The rules.
const (
	// RuleNone lets all trials run to their end.
	RuleNone Rule = "none"
	// RuleASHA keeps the best 1/Eta of those that have reached a rung (Li et al.,
	// "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020).
	RuleASHA Rule = "asha"
	// RuleHyperband does the same in three brackets, the second and third of which
	// begin to compare later (Li et al., "Hyperband", JMLR 18, 2018).
	RuleHyperband Rule = "hyperband"
	// RuleMedian ends a trial whose best is worse than the median of the others'
	// averages up to the same rung (Golovin et al., "Google Vizier", KDD 2017).
	RuleMedian Rule = "median"
)

// Kind is how the values of a parameter are drawn.
type Kind string

// The kinds.
const (
	KindChoice  Kind = "values"  // one of Values
	KindInt     Kind = "int"     // an integer from Low to High, inclusive
	KindUniform Kind = "uniform" // a number between Low and High
	KindLog     Kind = "log"     // a number between Low and High, log-uniform
)

// Axis is one parameter.
type Axis struct {
	Name      string
	Kind      Kind
	Low, High float64
	Values    []string
}

// Check returns the first fault, and where it is.
func (s *Study) Check() error {
	switch {
	case s.Metric == "" && (s.Rule != "" && s.Rule != RuleNone || s.Maximize):
		return errors.New("metric: is missing; it is the key, such as loss, under which trials say how good they are")
	case s.Metric != "" && !isName(s.Metric, "/.-"):
		return fmt.Errorf("metric %q: want at most %d letters, digits and _ / . -", short(s.Metric), maxName)
	case !slices.Contains([]Rule{"", RuleNone, RuleASHA, RuleHyperband, RuleMedian, RulePBT}, s.Rule):
		return fmt.Errorf("stop %q: want asha, hyperband, median, pbt or none", short(string(s.Rule)))
	case s.stops() && (s.First < 1 || s.First > maxFirst):
		return fmt.Errorf("first %d: want from 1 to %d steps, after which trials are compared first", s.First, maxFirst)
	case s.stops() && (s.Eta < 2 || s.Eta > 10):
		return fmt.Errorf("eta %d: want from 2 to 10: of that many trials the best goes on", s.Eta)
	case s.Budget < 0 || s.Budget > maxBudget:
		return errors.New("budget: want a number of GPU-hours from 0 to 876000")
	case len(s.Space) == 0 && (s.Metric == "" || s.stops() || s.Grid || s.Budget > 0):
		return errors.New("space: has no parameter")
	case len(s.Space) > MaxAxes:
		return fmt.Errorf("space: %d parameters, at most %d are allowed", len(s.Space), MaxAxes)
	}
	names := map[string]bool{}
	for i := range s.Space {
		a := &s.Space[i]
		if err := a.check(s.Grid); err != nil {
			return fmt.Errorf("space: %s: %w", short(a.Name), err)
		}
		if name := strings.ToUpper(a.Name); names[name] {
			return fmt.Errorf("space: %s: is there twice", a.Name)
		} else {
			names[name] = true
		}
	}
	if n := s.Bytes(); n > maxBytes {
		return fmt.Errorf("space: takes %d bytes, at most %d are allowed; give a range in place of a long list", n, maxBytes)
	}
	return nil
}

// Bytes returns the approximate memory of a study, 0 for nil.
func (s *Study) Bytes() int {
	const word, axis = 16, 96 // overhead of a string, and of a parameter besides its values
	if s == nil {
		return 0
	}
	n := axis
	for i := range s.Space {
		n += axis
		for _, v := range s.Space[i].Values {
			n += word + len(v)
		}
	}
	return n
}

// Searches reports whether there is a space, so that jobs are its trials; it is
// false for nil.
func (s *Study) Searches() bool { return s != nil && len(s.Space) > 0 }

func (s *Study) stops() bool { return s.Rule != "" && s.Rule != RuleNone }

func (a *Axis) check(grid bool) error {
	switch {
	case !isName(a.Name, "") || a.Name[0] >= '0' && a.Name[0] <= '9':
		return fmt.Errorf("a parameter's name has at most %d letters, digits and _, and begins with no digit", maxName)
	case a.Kind == KindChoice:
		return a.checkValues()
	case len(a.Values) > 0:
		return errors.New("has values and a range; want one of them")
	case !slices.Contains([]Kind{KindInt, KindUniform, KindLog}, a.Kind):
		return fmt.Errorf("kind %q: want a list of values, or int, uniform or log with two bounds", short(string(a.Kind)))
	case math.IsNaN(a.Low) || math.IsNaN(a.High) || math.Abs(a.Low) > 1e300 || math.Abs(a.High) > 1e300 || a.Low >= a.High:
		return fmt.Errorf("%s from %g to %g: the second bound must be above the first, and both numbers", a.Kind, a.Low, a.High)
	case a.Kind == KindLog && a.Low <= 0:
		return fmt.Errorf("log from %g: both bounds must be above 0", a.Low)
	case a.Kind == KindInt && (a.Low != math.Trunc(a.Low) || a.High != math.Trunc(a.High) || math.Abs(a.Low) > 1<<52 || math.Abs(a.High) > 1<<52):
		return fmt.Errorf("int from %g to %g: want whole numbers", a.Low, a.High)
	case grid && a.Kind != KindInt:
		return fmt.Errorf("%s: a grid needs a list of values, or int", a.Kind)
	case grid && a.High-a.Low >= MaxValues:
		return fmt.Errorf("int: a grid takes at most %d values of one parameter", MaxValues)
	}
	return nil
}

func (a *Axis) checkValues() error {
	if len(a.Values) == 0 || len(a.Values) > MaxValues {
		return fmt.Errorf("%d values, want from 1 to %d", len(a.Values), MaxValues)
	}
	for _, v := range a.Values {
		if len(v) > maxValueBytes || !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("value %q: want at most %d bytes of UTF-8 without control characters", short(v), maxValueBytes)
		}
	}
	return nil
}

// isName reports whether text consists of letters, digits, _ and the characters in
// more, and is not too long.
func isName(text, more string) bool {
	return text != "" && len(text) <= maxName && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && !strings.ContainsRune(more, r)
	})
}

func short(text string) string {
	if len(text) > maxName {
		return text[:maxName] + "..."
	}
	return text
}

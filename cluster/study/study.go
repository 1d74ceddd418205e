// Package study is what a search over parameters is: an array of trials, each with values
// of its own, and a rule by which those end early that do worse than others. It imports
// nothing of ours and draws the same values wherever and whenever it is asked, so that
// nothing of a trial but its number has to be kept.
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
	// MaxTrials is how many trials it may have, and MaxAxes how many parameters, of at
	// most MaxValues values.
	MaxTrials, MaxAxes, MaxValues = 10_000, 32, 1000
	// MaxPlaces is how often its command may name parameters.
	MaxPlaces = 256
	// maxValueBytes and maxBytes bound one value and all of a study, see Bytes.
	maxValueBytes, maxBytes = 256, 48 << 10
	maxName                 = 64
	maxFirst                = 1_000_000_000
	maxBudget               = 876_000 * time.Hour
)

// Study is one search, or without a Space the metric of one job that is no trial. Values
// are immutable.
type Study struct {
	// Metric is the key under which trials say in their progress how good they are, and
	// Maximize reports whether more is better.
	Metric   string
	Maximize bool
	// Rule ends trials early, "" and RuleNone none. They are compared at rungs: at First
	// steps, and each at Eta times the steps of the rung before.
	Rule  Rule
	First int64
	Eta   int
	// Grid takes every combination of values in turn; otherwise they are drawn, by Seed.
	Grid  bool
	Seed  uint64
	Space []Axis
	// Budget is how much time of whole GPUs all trials may use together, 0 is any.
	Budget time.Duration
}

// Rule is how trials end early.
type Rule string

// The rules.
const (
	// RuleNone lets all trials run to their end.
	RuleNone Rule = "none"
	// RuleASHA keeps of those that have come to a rung the best of Eta (Li et al., "A
	// System for Massively Parallel Hyperparameter Tuning", MLSys 2020).
	RuleASHA Rule = "asha"
	// RuleHyperband does so in three brackets, of which the second and third begin to
	// compare later (Li et al., "Hyperband", JMLR 18, 2018).
	RuleHyperband Rule = "hyperband"
	// RuleMedian ends a trial whose best is worse than the median of what the others had
	// on average until the same rung (Golovin et al., "Google Vizier", KDD 2017).
	RuleMedian Rule = "median"
)

// Kind is how the values of a parameter are drawn.
type Kind string

// The kinds.
const (
	KindChoice  Kind = "values"  // one of Values
	KindInt     Kind = "int"     // a whole number from Low to High, both included
	KindUniform Kind = "uniform" // a number between Low and High
	KindLog     Kind = "log"     // a number between Low and High, its logarithm evenly
)

// Axis is one parameter.
type Axis struct {
	Name      string
	Kind      Kind
	Low, High float64
	Values    []string
}

// Check reports the first fault, and where it is.
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

// Bytes is about how much memory a study takes, 0 for nil.
func (s *Study) Bytes() int {
	const word, axis = 16, 96 // of a text, and of a parameter beside its values
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

// Searches reports whether there is a space, and jobs are its trials; nil does not.
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

// isName reports whether text has letters, digits, _ and what more has, and not too many.
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

package study

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Param is a trial's value of one parameter.
type Param struct{ Name, Value string }

// count returns how many values an axis has in a grid.
func (a *Axis) count() int {
	if a.Kind == KindChoice {
		return len(a.Values)
	}
	return int(a.High-a.Low) + 1
}

// Combinations returns the number of trials of a grid, or MaxTrials+1 if it exceeds
// MaxTrials.
func (s *Study) Combinations() int {
	n := 1
	for i := range s.Space {
		if n *= s.Space[i].count(); n > MaxTrials {
			return MaxTrials + 1
		}
	}
	return n
}

// Params returns the values of trial number n, in the order of the space. In a grid
// the last parameter changes fastest.
func (s *Study) Params(n uint32) []Param {
	out := make([]Param, len(s.Space))
	rest := int(n)
	for i := len(s.Space) - 1; i >= 0; i-- {
		a := &s.Space[i]
		out[i] = Param{a.Name, ""}
		if s.Grid {
			at := rest % a.count()
			rest /= a.count()
			out[i].Value = a.at(at)
			continue
		}
		out[i].Value = a.draw(unit(s.Seed, uint64(n), uint64(i)))
	}
	return out
}

func (a *Axis) at(i int) string {
	if a.Kind == KindChoice {
		return a.Values[i]
	}
	return strconv.FormatFloat(a.Low+float64(i), 'f', 0, 64)
}

// draw returns the value at position u, in [0, 1), of the axis.
func (a *Axis) draw(u float64) string {
	switch a.Kind {
	case KindChoice:
		return a.Values[int(u*float64(len(a.Values)))]
	case KindInt:
		return strconv.FormatFloat(a.Low+math.Floor(u*(a.High-a.Low+1)), 'f', 0, 64)
	case KindLog:
		return number(a.Low * math.Exp(u*math.Log(a.High/a.Low)))
	default:
		return number(a.Low + u*(a.High-a.Low))
	}
}

// number formats v with six digits, so that it is the same on every machine.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// unit returns a number in [0, 1) determined by a seed, a trial and an axis: it
// applies the finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014) after
// each of them.
func unit(words ...uint64) float64 {
	h := uint64(0)
	for _, w := range words {
		h += w + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return float64(h>>11) / (1 << 53)
}

// ParseMetric parses the metric of a job that is not a trial: loss, where less is
// better, or accuracy:max.
func ParseMetric(text string) (*Study, error) {
	name, goal, _ := strings.Cut(text, ":")
	s := &Study{Metric: name, Maximize: goal == "max"}
	if goal != "" && goal != "max" && goal != "min" {
		return nil, fmt.Errorf("metric %q: want the name of a number in BERTH_PROGRESS, such as loss, or accuracy:max where more is better", short(text))
	}
	return s, s.Check()
}

// Places returns how often a command names parameters of the study, as {lr}.
func (s *Study) Places(command []string) (n int) {
	for _, arg := range command {
		for i := range s.Space {
			n += strings.Count(arg, "{"+s.Space[i].Name+"}")
		}
	}
	return n
}

// Fill returns a command with the values in place of the names.
func Fill(command []string, params []Param) []string {
	var pairs []string
	for _, p := range params {
		pairs = append(pairs, "{"+p.Name+"}", p.Value)
	}
	r, out := strings.NewReplacer(pairs...), make([]string, len(command))
	for i, arg := range command {
		out[i] = r.Replace(arg)
	}
	return out
}

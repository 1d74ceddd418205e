package jobspec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// studyText is what a spec file says about a study, before its array is built.
type studyText struct {
	s              study.Study
	trials, atOnce int64
}

// studyKeys are the keys of a study in a spec file, except space.
var studyKeys = map[string]func(*studyText, *yaml.Node) error{
	"metric":  func(t *studyText, v *yaml.Node) error { return scalar(v, &t.s.Metric) },
	"goal":    func(t *studyText, v *yaml.Node) error { return either(v, "minimize", "maximize", &t.s.Maximize) },
	"trials":  func(t *studyText, v *yaml.Node) error { return wholeNode(v, study.MaxTrials, &t.trials) },
	"at_once": func(t *studyText, v *yaml.Node) error { return wholeNode(v, study.MaxTrials, &t.atOnce) },
	"seed": func(t *studyText, v *yaml.Node) (err error) {
		if t.s.Seed, err = strconv.ParseUint(v.Value, 10, 64); err != nil {
			return fmt.Errorf("%s: want a whole number of at least 0", console.ShortQuote(v.Value))
		}
		return nil
	},
	"sampling": func(t *studyText, v *yaml.Node) error { return either(v, "random", "grid", &t.s.Grid) },
	"stop":     func(t *studyText, v *yaml.Node) error { return scalar(v, (*string)(&t.s.Rule)) },
	"first":    func(t *studyText, v *yaml.Node) error { return wholeNode(v, math.MaxInt64, &t.s.First) },
	"eta": func(t *studyText, v *yaml.Node) error {
		var n int64
		err := wholeNode(v, math.MaxInt16, &n)
		t.s.Eta = int(n)
		return err
	},
	"budget": func(t *studyText, v *yaml.Node) error {
		h, err := strconv.ParseFloat(v.Value, 64)
		if err != nil || !(h > 0) || h > 876_000 {
			return fmt.Errorf("%s: want a number of GPU-hours above 0", console.ShortQuote(v.Value))
		}
		t.s.Budget = time.Duration(h * float64(time.Hour))
		return nil
	},
}

func scalar(v *yaml.Node, to *string) error {
	if err := wantText(v); err != nil {
		return err
	}
	*to = v.Value
	return nil
}

// either reads one of two words; second is set if it is the second.
func either(v *yaml.Node, first, other string, second *bool) error {
	if v.Kind != yaml.ScalarNode || v.Value != first && v.Value != other {
		return fmt.Errorf("%s: want %s or %s", console.ShortQuote(v.Value), first, other)
	}
	*second = v.Value == other
	return nil
}

func wholeNode(v *yaml.Node, most int64, to *int64) error {
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil || v.Kind != yaml.ScalarNode || n < 1 || n > most {
		return fmt.Errorf("%s: want a whole number from 1 to %d", console.ShortQuote(v.Value), most)
	}
	*to = n
	return nil
}

// study reads the key study of a spec file. The defaults are asha from step 1
// on with the best of 3 if there is a metric; a grid has as many trials as
// combinations.
func (r *Request) study(v *yaml.Node) error {
	if v.Kind != yaml.MappingNode {
		return lineError(v, "study: want keys and values, such as metric: loss")
	}
	t := studyText{s: study.Study{First: 1, Eta: 3}}
	err := pairs(v, func(key string, k, val *yaml.Node) error {
		switch set := studyKeys[key]; {
		case key == "space":
			return t.space(val)
		case set == nil:
			known := append(slices.Sorted(maps.Keys(studyKeys)), "space")
			return lineError(k, "study: unknown key %s%s", console.ShortQuote(key), console.DidYouMean(key, known))
		default:
			if err := set(&t, val); err != nil {
				return lineError(val, "study: %s: %w", key, err)
			}
			return nil
		}
	})
	if err != nil {
		return err
	}
	if t.s.Rule == "" && t.s.Metric != "" {
		t.s.Rule = study.RuleASHA
	}
	if err := t.s.Check(); err != nil {
		return lineError(v, "study: %w", err)
	}
	if t.s.Grid && t.trials == 0 {
		t.trials = int64(t.s.Combinations())
	}
	if t.trials == 0 || t.trials > study.MaxTrials {
		return lineError(v, "study: trials: want a number of trials from 1 to %d", study.MaxTrials)
	}
	text := fmt.Sprintf("0-%d", t.trials-1)
	if t.atOnce > 0 {
		text += fmt.Sprintf("%%%d", t.atOnce)
	}
	r.Spec.Study = &t.s
	r.Spec.Array, err = cluster.ParseArray(text)
	return err
}

// space reads parameters: a list of values each, or {log: [1e-5, 0.1]}.
func (t *studyText) space(v *yaml.Node) error {
	if v.Kind != yaml.MappingNode {
		return lineError(v, "study: space: want parameters, such as lr: {log: [1e-5, 0.1]}")
	}
	return pairs(v, func(name string, _, val *yaml.Node) error {
		a := study.Axis{Name: name, Kind: study.KindChoice}
		switch {
		case val.Kind == yaml.SequenceNode:
			for _, item := range val.Content {
				if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
					return lineError(item, "study: space: %s: want values, no lists or mappings", name)
				}
				a.Values = append(a.Values, item.Value)
			}
		case val.Kind == yaml.MappingNode && len(val.Content) == 2 && val.Content[1].Kind == yaml.SequenceNode && len(val.Content[1].Content) == 2:
			a.Kind = study.Kind(val.Content[0].Value)
			for i, to := range []*float64{&a.Low, &a.High} {
				text := val.Content[1].Content[i].Value
				n, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return lineError(val, "study: space: %s: %s is not a number", name, console.ShortQuote(text))
				}
				*to = n
			}
		default:
			return lineError(val, "study: space: %s: want a list of values, or one of {int: [1, 8]}, {uniform: [0, 0.5]} and {log: [1e-5, 0.1]}", name)
		}
		t.s.Space = append(t.s.Space, a)
		return nil
	})
}

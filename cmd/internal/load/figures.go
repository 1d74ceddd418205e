package load

import (
	"math"
	"strconv"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// Figure is one measurement.
type Figure struct {
	Name  string  `json:"name" yaml:"name"`
	What  string  `json:"what" yaml:"what"`
	Value float64 `json:"value" yaml:"value"`
	Unit  string  `json:"unit" yaml:"unit"`
	// Most is the target, for a coordinator of 10,000 nodes with 8 GPUs each.
	Most *float64 `json:"most,omitempty" yaml:"most,omitempty"`
}

func (t *trial) put(name, what string, value float64, unit string) *Figure {
	t.figures = append(t.figures, Figure{Name: name, What: what, Value: value, Unit: unit})
	return &t.figures[len(t.figures)-1]
}

func (f *Figure) most(v float64) { f.Most = &v }

// text returns a number with three significant digits, and its unit.
func text(v float64, unit string) string {
	s := strconv.FormatFloat(v, 'f', 0, 64)
	if a := math.Abs(v); a < 100 && v != math.Trunc(v) {
		s = strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(max(a, 0.001))))), 64)
	}
	if unit == "" {
		return s
	}
	return s + " " + unit
}

// show prints figures.
func show(e *console.Env, f console.Format, figures []Figure) error {
	if done, err := console.PrintList(e, f, figures); done {
		return err
	}
	t := console.Table{Cols: []console.Column{{Head: "WHAT"}, {Head: "MEASURED", Right: true}, {Head: "TARGET"}}}
	for _, g := range figures {
		target := ""
		if g.Most != nil {
			target = "at most " + text(*g.Most, g.Unit)
			if g.Value > *g.Most {
				target = "missed: " + target
			}
		}
		t.Add(g.What, text(g.Value, g.Unit), target)
	}
	t.Print(e)
	return nil
}

package plot

import (
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// Curve is values along a chart's horizontal axis; those that are not numbers are
// unknown, and leave gaps.
type Curve struct {
	Name   string
	Values []float64
}

// Chart is curves of the same unit over times or steps.
type Chart struct {
	Title, Unit string
	// At has seconds since 1970 if Zone is not nil, otherwise steps. It rises.
	At   []float64
	Zone *time.Location
	// From0 starts the vertical axis at 0, and ends it at Most if that is more than
	// any value.
	From0  bool
	Most   float64
	Curves []Curve
}

const lowly = 190 // points, of each of several stacked charts

// Charts draws one below the other. There is at least one.
func Charts(all []Chart) *Drawing {
	var top, last *Drawing
	for i := range all {
		d := all[i].draw()
		if last == nil {
			top = d
		} else {
			last.below = d
		}
		last = d
	}
	return top
}

func (c *Chart) draw() *Drawing {
	d := newDrawing(c.Title, wide, lowly)
	d.p.Y.Label.Text = c.Unit
	if d.p.X.Label.Text = "step"; c.Zone != nil {
		d.p.X.Label.Text = ""
		d.p.X.Tick.Marker = plot.TimeTicks{Format: clock(c.At), Time: func(s float64) time.Time { return time.Unix(int64(s), 0).In(c.Zone) }}
	}
	most := c.Most
	for n, curve := range c.Curves {
		var part plotter.XYs
		name := curve.Name
		if len(c.Curves) == 1 {
			name = ""
		}
		for i, v := range curve.Values {
			if !bad(v) {
				part, most = append(part, plotter.XY{X: c.At[i], Y: v}), max(most, v)
				continue
			}
			if d.steps(name, part, n); len(part) > 0 {
				part, name = nil, ""
			}
		}
		d.steps(name, part, n)
	}
	if c.From0 {
		d.p.Y.Min, d.p.Y.Max = 0, max(1.05*most, 1e-9)
	}
	if n := len(c.At); n > 0 {
		d.p.X.Min, d.p.X.Max = c.At[0], math.Max(c.At[n-1], c.At[0]+1)
	}
	return d
}

// clock returns the format for times that span so much.
func clock(at []float64) string {
	if n := len(at); n > 0 && at[n-1]-at[0] > 12*3600 {
		return "02 Jan 15:04"
	}
	return "15:04:05"
}

package plot

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series are values under a name, in ascending order.
type Series struct {
	Name   string
	Sorted []float64
}

// maxSteps bounds the points of one curve.
const maxSteps = 2000

// CDF draws which part of the values is at most so much, on a logarithmic axis if
// the values spread over more than two powers of ten. Values are in seconds.
func CDF(title string, all []Series) *Drawing {
	d := newDrawing(title, narrow, tall)
	d.p.X.Label.Text, d.p.Y.Label.Text = "seconds", "% of jobs"
	lo, hi := math.Inf(1), 0.0
	for _, s := range all {
		if n := len(s.Sorted); n > 0 {
			lo, hi = min(lo, max(1, s.Sorted[0])), max(hi, s.Sorted[n-1])
		}
	}
	logs := hi > 100*lo
	for i, s := range all {
		d.steps(s.Name, cumulated(s.Sorted, lo), i)
	}
	d.from0(hi, 102)
	if logs {
		d.p.X.Min = lo
		d.p.X.Scale, d.p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	return d
}

// cumulated returns at most maxSteps points of sorted values, none below lo.
func cumulated(sorted []float64, lo float64) plotter.XYs {
	var out plotter.XYs
	n := len(sorted)
	every := max(1, n/maxSteps)
	for i, v := range sorted {
		if i%every == 0 || i == n-1 {
			out = append(out, plotter.XY{X: max(v, lo), Y: 100 * float64(i+1) / float64(n)})
		}
	}
	return out
}

// Bar is a mean with half of its 95 % interval, 0 if there is none.
type Bar struct {
	Name        string
	Value, CI95 float64
}

// Bars draws one row per bar, with its interval and its value.
func Bars(title, unit string, bars []Bar) *Drawing {
	d := newDrawing(title, narrow, 80+22*float64(max(1, len(bars))))
	d.p.X.Label.Text = clean(unit)
	r := &rows{bars: bars}
	most, least := 0.0, 0.0
	var ticks plot.ConstantTicks
	for i, b := range bars {
		if !bad(b.Value) {
			most, least = max(most, b.Value+b.CI95), min(least, b.Value-b.CI95)
		}
		ticks = append(ticks, plot.Tick{Value: float64(i) + 0.5, Label: clean(b.Name)})
	}
	d.p.Add(r)
	d.from0(most+0.12*(most-least), float64(max(1, len(bars))))
	d.p.X.Min = 1.12 * least
	d.p.Y.Scale = plot.InvertedScale{Normalizer: plot.LinearScale{}}
	d.p.Y.Tick.Marker, d.p.Y.Tick.Length = ticks, 0
	return d
}

// rows is a plotter of horizontal bars.
type rows struct{ bars []Bar }

// Plot implements plot.Plotter.
func (r *rows) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	line := draw.LineStyle{Color: color.Black, Width: vg.Points(0.8)}
	text := p.X.Tick.Label
	text.XAlign, text.YAlign = draw.XLeft, draw.YCenter
	for i, b := range r.bars {
		if bad(b.Value) {
			continue
		}
		at := float64(i)
		y0, y1, mid := y(at+0.15), y(at+0.85), y(at+0.5)
		c.FillPolygon(shade(i), []vg.Point{{X: x(0), Y: y0}, {X: x(b.Value), Y: y0}, {X: x(b.Value), Y: y1}, {X: x(0), Y: y1}})
		end := x(max(b.Value, 0))
		if ci := b.CI95; ci > 0 && !bad(ci) {
			lo, hi := x(b.Value-ci), x(b.Value+ci)
			c.StrokeLine2(line, lo, mid, hi, mid)
			for _, e := range []vg.Length{lo, hi} {
				c.StrokeLine2(line, e, mid-vg.Points(3), e, mid+vg.Points(3))
			}
			end = max(end, hi)
		}
		c.FillText(text, vg.Point{X: end + vg.Points(3), Y: mid}, label(b))
	}
}

func label(b Bar) string {
	s := strconv.FormatFloat(b.Value, 'g', 4, 64)
	if math.Abs(b.Value) >= 1000 {
		s = strconv.FormatFloat(b.Value, 'f', 0, 64)
	}
	if b.CI95 > 0 {
		s += fmt.Sprintf(" ± %.2g", b.CI95)
	}
	return s
}

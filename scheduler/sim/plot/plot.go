// Package plot draws simulations: a Gantt chart of the cards, the fleet over
// time, the distribution of completion times, and bars that compare results.
// The same figures give the same bytes. It stands apart so that the simulator
// itself needs no library for drawing.
package plot

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"
	"unicode"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Format is how a drawing is written.
type Format string

// The formats.
const (
	SVG Format = "svg"
	PNG Format = "png"
)

// Formats lists the formats by name.
func Formats() []string { return []string{string(SVG), string(PNG)} }

// Drawing is a picture that can be written in any format.
type Drawing struct {
	p    *plot.Plot
	w, h vg.Length
}

// Bytes renders the drawing. An unknown format is an error.
func (d *Drawing) Bytes(f Format) ([]byte, error) {
	var b bytes.Buffer
	switch f {
	case SVG:
		c := vgsvg.New(d.w, d.h)
		d.p.Draw(margin(draw.New(c)))
		if _, err := c.WriteTo(&b); err != nil {
			return nil, fmt.Errorf("draw: %w", err)
		}
	case PNG:
		c := vgimg.PngCanvas{Canvas: vgimg.New(d.w, d.h)}
		d.p.Draw(margin(draw.New(c)))
		if _, err := c.WriteTo(&b); err != nil {
			return nil, fmt.Errorf("draw: %w", err)
		}
	default:
		return nil, fmt.Errorf("format %q: want one of %s", f, strings.Join(Formats(), ", "))
	}
	return b.Bytes(), nil
}

// margin keeps labels at the edge whole.
func margin(c draw.Canvas) draw.Canvas {
	return draw.Crop(c, vg.Points(8), -vg.Points(14), vg.Points(4), -vg.Points(4))
}

// Sizes, in points.
const (
	wide   = 760
	narrow = 520
	tall   = 300
)

func newDrawing(title string, w, h float64) *Drawing {
	p := plot.New()
	p.Title.Text = clean(title)
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.Title.Padding = vg.Points(6)
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = vg.Points(9), vg.Points(9)
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = vg.Points(8), vg.Points(8)
	p.Legend.TextStyle.Font.Size = vg.Points(8)
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	return &Drawing{p, vg.Points(w), vg.Points(h)}
}

// clean makes a text of a trace safe to draw: one line, not endless.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 100 {
		s = string(r[:99]) + "…"
	}
	return s
}

// shade is the n-th of seven colours that also colour-blind readers tell apart
// (Paul Tol's bright scheme).
func shade(n int) color.RGBA {
	c := []color.RGBA{
		{0x44, 0x77, 0xaa, 255}, {0xee, 0x66, 0x77, 255}, {0x22, 0x88, 0x33, 255}, {0xcc, 0xbb, 0x44, 255},
		{0x66, 0xcc, 0xee, 255}, {0xaa, 0x33, 0x77, 255}, {0xbb, 0xbb, 0xbb, 255},
	}
	return c[((n%len(c))+len(c))%len(c)]
}

// steps draws a line that holds each value until the next.
func (d *Drawing) steps(name string, points plotter.XYs, colour color.Color) {
	points = slices.DeleteFunc(points, func(p plotter.XY) bool { return bad(p.X) || bad(p.Y) })
	if len(points) == 0 {
		return
	}
	l, err := plotter.NewLine(points)
	if err != nil { // only for values that were left out above
		return
	}
	l.StepStyle, l.Color, l.Width = plotter.PostStep, colour, vg.Points(1)
	d.p.Add(l)
	if name != "" {
		d.p.Legend.Add(clean(name), l)
	}
}

func bad(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// from0 sets both axes to begin at 0 and end at what is given.
func (d *Drawing) from0(x, y float64) {
	d.p.X.Min, d.p.X.Max, d.p.Y.Min, d.p.Y.Max = 0, max(x, 1e-9), 0, max(y, 1e-9)
}

// Package plot draws simulations: a Gantt chart of the GPUs, the fleet over time,
// the distribution of completion times, and bars that compare results. The same
// figures give the same bytes. It is separate so that the simulator itself needs no
// drawing library.
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

// Format is the file format of a drawing.
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
	// lines are the legend next to it, for each of named lines.
	lines plot.Legend
	named int
	// below is drawn below it, nil for nothing.
	below *Drawing
}

// size returns its width and height, including what is below it.
func (d *Drawing) size() (w, h vg.Length) {
	for ; d != nil; d = d.below {
		w, h = max(w, d.w), h+d.h
	}
	return w, h
}

func (d *Drawing) draw(c draw.Canvas) {
	for ; d != nil; d = d.below {
		at := margin(draw.Crop(c, 0, 0, c.Max.Y-c.Min.Y-d.h, 0))
		if d.named > 0 {
			r := d.lines.Rectangle(at)
			beside := r.Max.X - r.Min.X + vg.Points(10)
			d.lines.Draw(draw.Crop(at, at.Max.X-at.Min.X-beside, 0, 0, -vg.Points(24)))
			at = draw.Crop(at, 0, -beside, 0, 0)
		}
		d.p.Draw(at)
		c = draw.Crop(c, 0, 0, 0, -d.h)
	}
}

// svg makes browsers with a dark theme show the drawing dark, and gives all of them
// fonts that they know.
func svg(drawn []byte) []byte {
	const style = `<style>svg{background:#fff}@media(prefers-color-scheme:dark){svg{background:#000}svg>g{filter:invert(1) hue-rotate(180deg)}}</style>`
	drawn = bytes.ReplaceAll(drawn, []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Helvetica,Arial,sans-serif;"))
	return bytes.Replace(drawn, []byte("\n<g "), []byte("\n"+style+"\n<g "), 1)
}

// Bytes renders the drawing. An unknown format is an error.
func (d *Drawing) Bytes(f Format) ([]byte, error) {
	var b bytes.Buffer
	w, h := d.size()
	switch f {
	case SVG:
		c := vgsvg.New(w, h)
		d.draw(draw.New(c))
		if _, err := c.WriteTo(&b); err != nil {
			return nil, fmt.Errorf("draw: %w", err)
		}
		return svg(b.Bytes()), nil
	case PNG:
		c := vgimg.PngCanvas{Canvas: vgimg.New(w, h)}
		d.draw(draw.New(c))
		if _, err := c.WriteTo(&b); err != nil {
			return nil, fmt.Errorf("draw: %w", err)
		}
	default:
		return nil, fmt.Errorf("format %q: want one of %s", f, strings.Join(Formats(), ", "))
	}
	return b.Bytes(), nil
}

// margin keeps labels at the edge from being cut off.
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
	lines := plot.NewLegend()
	for _, t := range []struct {
		of   *draw.TextStyle
		size float64
	}{{&p.Title.TextStyle, 11}, {&p.X.Label.TextStyle, 9}, {&p.Y.Label.TextStyle, 9}, {&p.X.Tick.Label, 8}, {&p.Y.Tick.Label, 8}, {&lines.TextStyle, 8}} {
		t.of.Font.Variant, t.of.Font.Size = "Sans", vg.Points(t.size)
	}
	p.Title.Padding = vg.Points(6)
	lines.Top, lines.Left, lines.Padding, lines.ThumbnailWidth = true, true, vg.Points(3), vg.Points(24)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe4}, color.Gray{0xe4}
	p.Add(grid)
	return &Drawing{p: p, lines: lines, w: vg.Points(w), h: vg.Points(h)}
}

// clean makes a text of a trace safe to draw: one line of bounded length.
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

// shade returns the n-th of seven colours that colour-blind readers can also
// distinguish (Paul Tol's bright scheme).
func shade(n int) color.RGBA {
	c := []color.RGBA{
		{0x44, 0x77, 0xaa, 255}, {0xee, 0x66, 0x77, 255}, {0x22, 0x88, 0x33, 255}, {0xcc, 0xbb, 0x44, 255},
		{0x66, 0xcc, 0xee, 255}, {0xaa, 0x33, 0x77, 255}, {0xbb, 0xbb, 0xbb, 255},
	}
	return c[((n%len(c))+len(c))%len(c)]
}

// dashes returns those of the n-th line, so that lines differ in print without
// colours, too.
func dashes(n int) []vg.Length {
	return [][]vg.Length{nil, {vg.Points(6), vg.Points(2)}, {vg.Points(2), vg.Points(2)}, {vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}}[n%4]
}

// steps draws the n-th line, which holds each value until the next.
func (d *Drawing) steps(name string, points plotter.XYs, n int) {
	points = slices.DeleteFunc(points, func(p plotter.XY) bool { return bad(p.X) || bad(p.Y) })
	if len(points) == 0 {
		return
	}
	l, err := plotter.NewLine(points)
	if err != nil { // only for values that were left out above
		return
	}
	l.StepStyle, l.Color, l.Width, l.Dashes = plotter.PostStep, shade(n), vg.Points(1.2), dashes(n)
	d.p.Add(l)
	if name != "" {
		d.named++
		d.lines.Add(clean(name), l)
	}
}

func bad(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// from0 sets both axes to begin at 0 and end at x and y.
func (d *Drawing) from0(x, y float64) {
	d.p.X.Min, d.p.X.Max, d.p.Y.Min, d.p.Y.Max = 0, max(x, 1e-9), 0, max(y, 1e-9)
}

package sim

import (
	"bytes"
	"fmt"
	"html"
	"math"
)

// drawing is an SVG under way: one plot with axes from 0.
type drawing struct {
	b          bytes.Buffer
	w, h       int
	xmax, ymax float64
	keys       int
}

// Margins around the plot, in pixels.
const (
	left, right, top, bottom = 56, 16, 28, 32
	ticks                    = 5
)

func palette(n int) string {
	c := []string{"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb"}
	return c[((n%len(c))+len(c))%len(c)]
}

func newDrawing(title string, w, h int) *drawing {
	d := &drawing{w: w, h: h, xmax: 1, ymax: 1}
	fmt.Fprintf(&d.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", w, h)
	fmt.Fprintf(&d.b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", w, h)
	fmt.Fprintf(&d.b, `<text x="%d" y="16" font-size="13">%s</text>`+"\n", left, html.EscapeString(title))
	return d
}

func (d *drawing) x(v float64) float64 {
	return left + v/d.xmax*float64(d.w-left-right)
}

func (d *drawing) y(v float64) float64 {
	return float64(d.h-bottom) - v/d.ymax*float64(d.h-top-bottom)
}

// axes sets the scales and draws them; a y axis without a name has no ticks
// and begins at the top, for rows.
func (d *drawing) axes(xname string, xmax float64, yname string, ymax float64) {
	d.xmax, d.ymax = max(xmax, 1e-9), max(ymax, 1e-9)
	fmt.Fprintf(&d.b, `<path d="M%d %dV%dH%d" fill="none" stroke="#000000"/>`+"\n", left, top, d.h-bottom, d.w-right)
	for i := range ticks + 1 {
		v := d.xmax * float64(i) / ticks
		fmt.Fprintf(&d.b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", d.x(v), d.h-bottom+13, tick(v))
		if yname != "" {
			v = d.ymax * float64(i) / ticks
			fmt.Fprintf(&d.b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left-4, d.y(v)+4, tick(v))
		}
	}
	fmt.Fprintf(&d.b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (d.w+left)/2, d.h-4, html.EscapeString(xname))
	if yname != "" {
		fmt.Fprintf(&d.b, `<text x="12" y="%d" text-anchor="middle" transform="rotate(-90 12 %d)">%s</text>`+"\n", d.h/2, d.h/2, html.EscapeString(yname))
	}
}

func tick(v float64) string {
	if math.Abs(v) >= 100 || v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// bar draws from x0 to x1 in the row that begins at y, rows counting down
// from the top.
func (d *drawing) bar(x0, x1, y, height float64, colour, name string) {
	row := float64(d.h-top-bottom) / d.ymax
	fmt.Fprintf(&d.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s">`, d.x(x0), top+y*row, max(0.3, d.x(x1)-d.x(x0)), height*row, colour)
	if name != "" {
		fmt.Fprintf(&d.b, `<title>%s</title>`, html.EscapeString(name))
	}
	d.b.WriteString("</rect>\n")
}

// label writes into a row.
func (d *drawing) label(text string, y float64) {
	row := float64(d.h-top-bottom) / d.ymax
	fmt.Fprintf(&d.b, `<text x="%d" y="%.1f">%s</text>`+"\n", left+4, top+y*row, html.EscapeString(text))
}

// steps draws a line that holds each value until the next.
func (d *drawing) steps(points [][2]float64, colour, name string) {
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(&d.b, `<path fill="none" stroke="%s" d="M%.1f %.1f`, colour, d.x(points[0][0]), d.y(points[0][1]))
	for _, p := range points[1:] {
		fmt.Fprintf(&d.b, "H%.1fV%.1f", d.x(p[0]), d.y(p[1]))
	}
	d.b.WriteString("\"/>\n")
	if name != "" {
		d.keys++
		fmt.Fprintf(&d.b, `<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>`+"\n", d.w-right, 16+12*(d.keys-1), colour, html.EscapeString(name))
	}
}

func (d *drawing) bytes() []byte {
	d.b.WriteString("</svg>\n")
	return d.b.Bytes()
}

package main

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"image/color"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/vt"
)

// The measures of the picture, in pixels: a cell, its text's size and base line, and the margin
// around all cells.
const (
	cellWidth  = 8.0
	cellHeight = 18.0
	fontSize   = 13.3
	baseLine   = 13.5
	margin     = 18.0
)

// The default colours of text and background, and the sixteen that programs refer to by number.
const (
	ink   = "#d7dce2"
	paper = "#11151b"
)

var palette = [16]string{
	"#3b4048", "#f0716b", "#7fc678", "#e2b55a", "#6aa5f2", "#c792ea", "#56c2cf", "#d7dce2",
	"#7a828e", "#ff938d", "#9ddf95", "#f3cd7c", "#8fbefc", "#dab0f5", "#7fdbe5", "#ffffff",
}

// The bits of a cell's attributes, as in the terminal.
const (
	attrBold      = 1 << 0
	attrFaint     = 1 << 1
	attrItalic    = 1 << 2
	attrReverse   = 1 << 5
	attrConcealed = 1 << 6
)

// look is the appearance of a cell. No background means the paper.
type look struct {
	ink, ground         string
	bold, faint, italic bool
}

// cell is a character of the screen, and how many columns it takes: none after a wide one.
type cell struct {
	text  string
	width int
	look  look
}

// cells returns those of a screen, row by row.
func cells(screen *vt.Emulator) [][]cell {
	rows := make([][]cell, screen.Height())
	for y := range rows {
		for x := range screen.Width() {
			c := cell{text: " ", width: 1, look: look{ink: ink}}
			if at := screen.CellAt(x, y); at != nil {
				c.text, c.width = at.Content, at.Width
				c.look = look{
					ink: named(screen, at.Style.Fg, ink), ground: named(screen, at.Style.Bg, ""),
					bold: at.Style.Attrs&attrBold != 0, faint: at.Style.Attrs&attrFaint != 0, italic: at.Style.Attrs&attrItalic != 0,
				}
				if at.Style.Attrs&attrReverse != 0 {
					c.look.ink, c.look.ground = cmp.Or(c.look.ground, paper), c.look.ink
				}
				if at.Style.Attrs&attrConcealed != 0 || c.text == "" && c.width > 0 {
					c.text = " "
				}
			}
			rows[y] = append(rows[y], c)
		}
	}
	return rows
}

// named returns a colour in SVG: from the palette if it is one of the sixteen.
func named(screen *vt.Emulator, c color.Color, otherwise string) string {
	if c == nil {
		return otherwise
	}
	r, g, b, _ := c.RGBA()
	for i, mine := range palette {
		if pr, pg, pb, _ := screen.IndexedColor(i).RGBA(); pr == r && pg == g && pb == b {
			return mine
		}
	}
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}

// draw draws rows of cells, which are equally long. Text is aligned with the columns in any
// font, because each run of it has an explicit length; bars and lines are drawn as shapes,
// because they join in few fonts.
func draw(rows [][]cell, title string) []byte {
	width, height := 2*margin, 2*margin+cellHeight*float64(len(rows))
	if len(rows) > 0 {
		width += cellWidth * float64(len(rows[0]))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %[1]s %[2]s" role="img" aria-labelledby="title"`, px(width), px(height))
	fmt.Fprintf(&b, ` font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="%s" fill="%s" shape-rendering="crispEdges">`+"\n", px(fontSize), ink)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n", escaped(title))
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%s" height="%s" rx="10" fill="%s" stroke="#3b4048" shape-rendering="auto"/>`+"\n", px(width-1), px(height-1), paper)
	for y, row := range rows {
		top := margin + cellHeight*float64(y)
		for x := 0; x < len(row); {
			n := grounded(row[x:])
			if ground := row[x].look.ground; ground != "" {
				fmt.Fprintf(&b, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>`+"\n", px(left(x)), px(top), px(cellWidth*float64(n)), px(cellHeight), ground)
			}
			x += n
		}
		for x := 0; x < len(row); {
			n := alike(row[x:])
			drawRun(&b, row[x:x+n], x, top)
			x += n
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// grounded returns how many cells, from the first on, have its background.
func grounded(row []cell) int {
	n := 1
	for n < len(row) && row[n].look.ground == row[0].look.ground {
		n++
	}
	return n
}

// alike returns how many cells, from the first on, are drawn together: those that look like it
// and are of its kind. A wide one stands alone, with what it covers.
func alike(row []cell) int {
	n := max(1, row[0].width)
	if n > 1 {
		return min(n, len(row))
	}
	for n < len(row) && row[n].width == 1 && row[n].look == row[0].look && isShape(row[n]) == isShape(row[0]) {
		n++
	}
	return n
}

// drawRun draws cells that look alike, the first of which is in column x.
func drawRun(b *bytes.Buffer, run []cell, x int, top float64) {
	style := styled(run[0].look)
	if isShape(run[0]) {
		drawShapes(b, run, x, top, style)
		return
	}
	for i := 0; i < len(run); {
		words, n := phrase(run[i:])
		if strings.TrimSpace(words) != "" {
			fmt.Fprintf(b, `<text x="%s" y="%s" textLength="%s" lengthAdjust="spacingAndGlyphs"%s>%s</text>`+"\n", px(left(x+i)), px(top+baseLine), px(cellWidth*float64(n)), style, escaped(words))
		}
		i += n
	}
}

// phrase returns the text of the first cells, and how many they are: all up to two spaces,
// which some programs show as one, or to the end, or a space.
func phrase(run []cell) (words string, n int) {
	var b strings.Builder
	for i, c := range run {
		if c.text == " " && (i == 0 || i+1 == len(run) || run[i+1].text == " ") {
			return cmp.Or(b.String(), " "), max(i, 1)
		}
		if c.width > 0 {
			b.WriteString(c.text)
		}
	}
	return b.String(), len(run)
}

func styled(l look) string {
	var b strings.Builder
	if l.ink != ink {
		b.WriteString(` fill="` + l.ink + `"`)
	}
	if l.bold {
		b.WriteString(` font-weight="bold"`)
	}
	if l.italic {
		b.WriteString(` font-style="italic"`)
	}
	if l.faint {
		b.WriteString(` opacity="0.6"`)
	}
	return b.String()
}

// shape is the part of a cell that a character fills, from its left and its top, and how
// densely.
type shape struct{ x, y, w, h, dense float64 }

// shapeOf returns the shape of a character for bars, curves and lines.
func shapeOf(text string) (shape, bool) {
	r, size := utf8.DecodeRuneInString(text)
	switch {
	case size != len(text):
	case r >= '▁' && r <= '█':
		part := float64(r-'▁'+1) / 8
		return shape{0, 1 - part, 1, part, 1}, true
	case r >= '▉' && r <= '▏':
		return shape{0, 0, float64('▏'-r+1) / 8, 1, 1}, true
	case r >= '░' && r <= '▓':
		return shape{0, 0, 1, 1, 0.25 * float64(r-'░'+1)}, true
	case r == '─':
		return shape{0, 0.5, 1, 1 / cellHeight, 1}, true
	case r == '│':
		return shape{0.5, 0, 1 / cellWidth, 1, 1}, true
	}
	return shape{}, false
}

func isShape(c cell) bool {
	_, ok := shapeOf(c.text)
	return ok
}

// drawShapes draws a run of shapes: equal adjacent ones as one.
func drawShapes(b *bytes.Buffer, run []cell, x int, top float64, style string) {
	for i := 0; i < len(run); {
		s, _ := shapeOf(run[i].text)
		n := 1
		for s.w == 1 && i+n < len(run) && run[i+n].text == run[i].text {
			n++
		}
		fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%s"%s`, px(left(x+i)+s.x*cellWidth), px(top+s.y*cellHeight), px(s.w*cellWidth*float64(n)), px(s.h*cellHeight), style)
		if s.dense < 1 {
			fmt.Fprintf(b, ` fill-opacity="%s"`, px(s.dense))
		}
		b.WriteString("/>\n")
		i += n
	}
}

// left returns where a column begins.
func left(x int) float64 { return margin + cellWidth*float64(x) }

// px formats a length in pixels, to the hundredth.
func px(v float64) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder never fails
	return b.String()
}

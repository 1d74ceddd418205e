package screen

import (
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// column is one of a table. If there is not room for all, those with the highest rank
// are left out first; spare width goes to those that grow.
type column struct {
	head  string
	width int
	right bool
	grow  bool
	rank  int
}

// cell is one of a row: text, or what draws itself.
type cell struct {
	text  string
	style style
	draw  func(k ink, width int) string
}

// table is a list of rows, which are fetched one by one.
type table struct {
	cols  []column
	n     int
	key   func(i int) string
	cells func(i int) []cell
	empty string
}

func text(s string) cell             { return cell{text: s} }
func styled(st style, s string) cell { return cell{text: s, style: st} }

// layout says how wide each column is, 0 for those left out.
func layout(cols []column, width int) []int {
	out := make([]int, len(cols))
	total := -1
	for i, c := range cols {
		out[i] = c.width
		total += c.width + 1
	}
	for total > width {
		last := -1
		for i, c := range cols {
			if out[i] > 0 && c.rank > 0 && (last < 0 || c.rank >= cols[last].rank) {
				last = i
			}
		}
		if last < 0 {
			break
		}
		total -= out[last] + 1
		out[last] = 0
	}
	var grow []int
	for i, c := range cols {
		if c.grow && out[i] > 0 {
			grow = append(grow, i)
		}
	}
	for ; len(grow) > 0 && total < width; total++ {
		narrowest := slices.MinFunc(grow, func(a, b int) int { return out[a] - out[b] })
		out[narrowest]++
	}
	return out
}

// heads is the line above the rows.
func (t table) heads(k ink, widths []int) string {
	cells := make([]cell, len(t.cols))
	for i, c := range t.cols {
		cells[i].text = c.head
	}
	return k.paint(bold, t.line(ink{plain: true, ascii: k.ascii}, cells, widths))
}

func (t table) line(k ink, cells []cell, widths []int) string {
	var b strings.Builder
	first := true
	for i, c := range cells {
		w := widths[i]
		if w == 0 {
			continue
		}
		if !first {
			b.WriteByte(' ')
		}
		first = false
		if c.draw != nil {
			b.WriteString(c.draw(k, w))
			continue
		}
		b.WriteString(k.paint(c.style, k.fit(c.text, w, t.cols[i].right)))
	}
	return b.String()
}

// lines draws the heads and as many rows as fit, exactly height lines in total.
func (t table) lines(k ink, c *cursor, width, height int) []string {
	widths := layout(t.cols, width)
	out := []string{t.heads(k, widths)}
	if t.n == 0 {
		out = append(out, k.paint(dim, k.fit(t.empty, width, false)))
	}
	c.scroll(t.n, height-1)
	for i := c.top; i < t.n && len(out) < height; i++ {
		if i == c.row {
			line := t.line(ink{plain: true, ascii: k.ascii}, undecorated(t.cells(i)), widths)
			line += strings.Repeat(" ", max(0, width-console.TextWidth(line)))
			out = append(out, k.paint(reverse, line))
			continue
		}
		out = append(out, t.line(k, t.cells(i), widths))
	}
	return fill(out, height)
}

// undecorated are cells without styles, for a line with one style.
func undecorated(cells []cell) []cell {
	for i := range cells {
		cells[i].style = none
		if draw := cells[i].draw; draw != nil {
			cells[i].draw = func(k ink, width int) string { return escapes.ReplaceAllString(draw(k, width), "") }
		}
	}
	return cells
}

// fill cuts or pads lines to exactly height lines.
func fill(lines []string, height int) []string {
	for len(lines) < height {
		lines = append(lines, "")
	}
	return lines[:max(0, height)]
}

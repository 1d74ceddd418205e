package console

import (
	"strings"
	"unicode"

	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

// Column is one column of a table.
type Column struct {
	Head  string
	Right bool // numbers
	// Shrink marks the column that gives way when the terminal is narrow.
	Shrink bool
}

// Table prints rows under heads, two spaces apart. On a terminal lines are
// Cut to its width; elsewhere nothing is ever cut.
type Table struct {
	Cols   []Column
	Rows   [][]string
	NoHead bool
}

// Add appends a row; it has as many cells as there are columns.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// minShrunk is the width below which a column is not squeezed.
const minShrunk = 8

// Print writes the table to standard output.
func (t *Table) Print(e *Env) {
	widths := make([]int, len(t.Cols))
	for i, c := range t.Cols {
		widths[i] = TextWidth(c.Head)
	}
	for _, r := range t.Rows {
		for i := range r {
			r[i] = Escape(r[i])
			widths[i] = max(widths[i], TextWidth(r[i]))
		}
	}
	limit := 0
	if e.IsTerminal {
		limit = e.Width()
		t.squeeze(widths, limit)
	}
	heads := make([]string, len(t.Cols))
	for i, c := range t.Cols {
		heads[i] = c.Head
	}
	all := append([][]string{heads}, t.Rows...)
	if t.NoHead {
		all = t.Rows
	}
	for _, r := range all {
		e.Printf("%s\n", Cut(t.line(r, widths), limit))
	}
}

// squeeze takes from the shrinking columns what the terminal lacks.
func (t *Table) squeeze(widths []int, limit int) {
	if limit == 0 {
		return
	}
	over := 2*(len(widths)-1) - limit
	for _, w := range widths {
		over += w
	}
	for ; over > 0; over-- { // one column at a time from the widest
		widest := -1
		for i, c := range t.Cols {
			if c.Shrink && widths[i] > minShrunk && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func (t *Table) line(r []string, widths []int) string {
	var b strings.Builder
	for i, cell := range r {
		if i > 0 {
			b.WriteString("  ")
		}
		cell = Cut(cell, widths[i])
		pad := strings.Repeat(" ", max(0, widths[i]-TextWidth(cell)))
		if t.Cols[i].Right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Cut shortens s to width columns, ending in "…"; 0 is no limit.
func Cut(s string, width int) string {
	if width <= 0 || TextWidth(s) <= width {
		return s
	}
	w := 0
	for i, r := range s {
		if w+runeWidth(r) > width-1 {
			return s[:i] + "…"
		}
		w += runeWidth(r)
	}
	return s
}

// TextWidth is how many columns a terminal takes for s.
func TextWidth(s string) int {
	w := 0
	for _, r := range s {
		w += runeWidth(r)
	}
	return w
}

// runeWidth is how many columns a terminal takes for r: 0 for what combines, 2
// for the East Asian wide blocks and emoji, 1 for all else.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60,
		r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// Escape makes what could steer a terminal visible; see escape.Text.
func Escape(s string) string { return escape.Text(s) }

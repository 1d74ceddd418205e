package console

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

// Column is one column of a table.
type Column struct {
	Head  string
	Right bool // numbers
	// Shrink marks the column that is shortened when the terminal is narrow.
	Shrink bool
	// Drop says that an even narrower terminal omits the column: the one with the
	// highest number goes first, those with 0 never.
	Drop int
	// Paint colours a cell on terminals that show colours; nil means none.
	Paint func(cell string) Colour
}

// Colour is one of a terminal's own 16, by its SGR number in ECMA-48; 0 is none.
type Colour int

// Red is for failures, Green for what runs, Yellow for what waits or takes no jobs.
const (
	Red    Colour = 31
	Green  Colour = 32
	Yellow Colour = 33
)

// StateColour returns the colour of a job's state code.
func StateColour(code string) Colour {
	switch code {
	case "R", "CG", "CF":
		return Green
	case "PD", "QD", "UN":
		return Yellow
	case "F", "OOM", "TO", "NF", "DL":
		return Red
	}
	return 0
}

// HealthColour returns the colour of the state of a GPU or node.
func HealthColour(state string) Colour {
	switch state {
	case "ok", "ready":
		return Green
	case "-":
		return 0
	case "failed", "lost", "unreachable":
		return Red
	}
	return Yellow
}

// Colours reports whether standard output shows colours: it is a capable
// terminal, and the user has not set NO_COLOR (no-color.org).
func (e *Env) Colours() bool {
	term := e.Getenv("TERM")
	return e.IsTerminal && term != "" && term != "dumb" && e.Getenv("NO_COLOR") == ""
}

// Table prints rows under heads, two spaces apart. On a terminal lines are
// Cut to its width; elsewhere nothing is ever cut.
type Table struct {
	Cols   []Column
	Rows   [][]string
	NoHead bool
}

// Add appends a row, which has as many cells as there are columns.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// minShrunk is the width below which a column is not squeezed.
const minShrunk = 8

// Print writes the table to standard output.
func (t *Table) Print(e *Env) {
	widths := make([]int, len(t.Cols))
	for i, c := range t.Cols {
		widths[i] = TextWidth(c.Head)
	}
	colours := e.Colours()
	for _, r := range t.Rows {
		for i := range r {
			r[i] = Escape(r[i])
			widths[i] = max(widths[i], TextWidth(r[i]))
		}
	}
	limit := 0
	if e.IsTerminal {
		limit = e.Width()
		natural := slices.Clone(widths)
		for t.squeeze(widths, limit) && t.drop(&natural) {
			widths = slices.Clone(natural)
		}
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
		line := Cut(t.line(r, widths, nil), limit)
		if colours && TextWidth(t.line(r, widths, nil)) <= max(limit, TextWidth(line)) {
			line = t.line(r, widths, t.Cols)
		}
		e.Printf("%s\n", line)
	}
}

// drop removes the least important column and its width; it reports whether
// there was one to remove.
func (t *Table) drop(widths *[]int) bool {
	least := -1
	for i, c := range t.Cols {
		if c.Drop > 0 && (least < 0 || c.Drop >= t.Cols[least].Drop) {
			least = i
		}
	}
	if least < 0 {
		return false
	}
	*widths = slices.Delete(*widths, least, least+1)
	t.Cols = slices.Delete(slices.Clone(t.Cols), least, least+1)
	for i, r := range t.Rows {
		t.Rows[i] = slices.Delete(slices.Clone(r), least, least+1)
	}
	return true
}

// squeeze shortens the shrinking columns by what the terminal lacks; it
// reports whether that is not enough.
func (t *Table) squeeze(widths []int, limit int) bool {
	if limit == 0 {
		return false
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
			return true
		}
		widths[widest]--
	}
	return false
}

// line formats a row in the colours of cols, nil for none.
func (t *Table) line(r []string, widths []int, cols []Column) string {
	var b strings.Builder
	for i, cell := range r {
		if i > 0 {
			b.WriteString("  ")
		}
		cell = Cut(cell, widths[i])
		pad := strings.Repeat(" ", max(0, widths[i]-TextWidth(cell)))
		if cols != nil && cols[i].Paint != nil && cell != cols[i].Head {
			if c := cols[i].Paint(cell); c != 0 {
				cell = fmt.Sprintf("\x1b[%dm%s\x1b[0m", c, cell)
			}
		}
		if t.Cols[i].Right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Cut shortens s to width columns, ending in "…"; 0 means no limit.
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

// TextWidth returns how many columns a terminal needs for s.
func TextWidth(s string) int {
	w := 0
	for _, r := range s {
		w += runeWidth(r)
	}
	return w
}

// runeWidth returns how many columns a terminal needs for r: 0 for combining
// characters, 2 for the East Asian wide blocks and emoji, 1 for all others.
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

// Escape makes characters that could steer a terminal visible; see escape.Text.
func Escape(s string) string { return escape.Text(s) }

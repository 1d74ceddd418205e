package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// column is one column of a table.
type column struct {
	head  string
	right bool // numbers
	// shrink marks the column that gives way when the terminal is narrow.
	shrink bool
}

// table prints rows under heads, two spaces apart. On a terminal lines are
// cut to its width; elsewhere nothing is ever cut.
type table struct {
	cols   []column
	rows   [][]string
	noHead bool
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// minShrunk is the width below which a column is not squeezed.
const minShrunk = 8

func (t *table) print(e *Env) {
	widths := make([]int, len(t.cols))
	for i, c := range t.cols {
		widths[i] = textWidth(c.head)
	}
	for _, r := range t.rows {
		for i := range r {
			r[i] = escape(r[i])
			widths[i] = max(widths[i], textWidth(r[i]))
		}
	}
	limit := 0
	if e.IsTerminal {
		limit = e.Width()
		t.squeeze(widths, limit)
	}
	heads := make([]string, len(t.cols))
	for i, c := range t.cols {
		heads[i] = c.head
	}
	all := append([][]string{heads}, t.rows...)
	if t.noHead {
		all = t.rows
	}
	for _, r := range all {
		e.printf("%s\n", cut(t.line(r, widths), limit))
	}
}

// squeeze takes from the shrinking columns what the terminal lacks.
func (t *table) squeeze(widths []int, limit int) {
	if limit == 0 {
		return
	}
	over := 2*(len(widths)-1) - limit
	for _, w := range widths {
		over += w
	}
	for ; over > 0; over-- { // one column at a time from the widest
		widest := -1
		for i, c := range t.cols {
			if c.shrink && widths[i] > minShrunk && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func (t *table) line(r []string, widths []int) string {
	var b strings.Builder
	for i, cell := range r {
		if i > 0 {
			b.WriteString("  ")
		}
		cell = cut(cell, widths[i])
		pad := strings.Repeat(" ", max(0, widths[i]-textWidth(cell)))
		if t.cols[i].right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// cut shortens s to width columns, ending in "…"; 0 is no limit.
func cut(s string, width int) string {
	if width <= 0 || textWidth(s) <= width {
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

func textWidth(s string) int {
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

// escape makes what could steer a terminal visible: control characters,
// characters that change the direction of writing, and bytes that are not
// UTF-8.
func escape(s string) string {
	clean := true
	for _, r := range s {
		if r == utf8.RuneError || !shown(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case !shown(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case !shown(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// shown tells whether r may reach a terminal as it is. The zero-width joiner
// stays, since emoji are made with it.
func shown(r rune) bool {
	return r == '\u200d' || unicode.IsGraphic(r) && !unicode.Is(unicode.Cf, r)
}

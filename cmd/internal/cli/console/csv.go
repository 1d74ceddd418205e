package console

import (
	"encoding/csv"
	"io"
	"strings"
	"unicode/utf8"
)

// FormatCSV is comma-separated values, as in RFC 4180.
const FormatCSV Format = "csv"

// Cells says how the cells of comma-separated values are written.
type Cells uint8

// CellsGuarded shows control characters by their codes, and puts a ' before
// what a spreadsheet takes for a formula. CellsRaw changes nothing.
const (
	CellsGuarded Cells = iota
	CellsRaw
)

// CSV writes comma-separated values. Make it with NewCSV.
type CSV struct {
	w     *csv.Writer
	cells Cells
}

// NewCSV returns a writer of lines to w.
func NewCSV(w io.Writer, cells Cells) *CSV { return &CSV{csv.NewWriter(w), cells} }

// Write writes one line.
func (c *CSV) Write(line []string) error {
	out := make([]string, len(line))
	for i, cell := range line {
		if c.cells == CellsGuarded {
			cell = GuardCell(cell)
		}
		out[i] = cell
	}
	return c.w.Write(out)
}

// Flush writes any buffered data.
func (c *CSV) Flush() error {
	c.w.Flush()
	return c.w.Error()
}

// formulas are the first characters of cells that a spreadsheet computes, the
// wide forms of East Asian keyboards included. A tab or line end is escaped
// before.
const formulas = "=+-@＝＋－＠"

// GuardCell makes a text safe to print and to open in a spreadsheet.
func GuardCell(s string) string {
	s = Escape(s)
	if r, n := utf8.DecodeRuneInString(s); n > 0 && strings.ContainsRune(formulas, r) {
		return "'" + s
	}
	return s
}

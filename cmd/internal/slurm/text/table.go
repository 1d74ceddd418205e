package text

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Column is one field that a format may name.
type Column[T any] struct {
	Head  string
	Value func(*T) string
	// Whole columns are never cut, only padded, as Slurm does with numbers and times.
	Whole bool
}

// cell is one column in a layout, with the text that precedes it.
type cell[T any] struct {
	before string
	Column[T]
	width int // 0 is the text's own width; fits is that of the widest
	right bool
}

// fits makes a column as wide as its widest text, and in Slurm's own
// tables at least as its head; sinfo writes it as %#P.
const fits = -1

// Table is a parsed format.
type Table[T any] struct {
	cells []cell[T]
	after string
	fault string // the part that names no column
}

// Err reports the first part of a format for jobs, or for nodes, that names no column.
func (l *Table[T]) Err(of string) error {
	if l.fault == "" {
		return nil
	}
	return Message("Invalid " + of + " format specification" + l.fault)
}

// Shows reports whether a column has one of some heads.
func (l *Table[T]) Shows(heads ...string) bool {
	return slices.ContainsFunc(l.cells, func(c cell[T]) bool { return slices.Contains(heads, c.Head) })
}

// Put replaces the value of the columns with a head.
func (l *Table[T]) Put(head string, value func(*T) string) {
	for i := range l.cells {
		if l.cells[i].Head == head {
			l.cells[i].Value = value
		}
	}
}

// Letters returns columns by the letters of -o, given their names in -O.
func Letters[T any](names map[byte]string, columns map[string]Column[T]) map[byte]Column[T] {
	out := make(map[byte]Column[T], len(names))
	for c, name := range names {
		out[c] = columns[name]
	}
	return out
}

// ByLetter parses a format of -o: %[[.]size]letter among other text. A %
// sequence that names no column is a fault and stays as text.
func ByLetter[T any](format string, columns map[byte]Column[T]) Table[T] {
	var l Table[T]
	text := ""
	for i := 0; i < len(format); {
		if format[i] != '%' {
			text += format[i : i+1]
			i++
			continue
		}
		c := cell[T]{before: text}
		at := i + 1
		if at < len(format) && format[at] == '.' {
			c.right = true
			at++
		}
		if at < len(format) && format[at] == '#' {
			c.width = fits
			at++
		}
		from := at
		for at < len(format) && '0' <= format[at] && format[at] <= '9' {
			at++
		}
		if at > from {
			c.width = size(format[from:at])
		}
		switch {
		case at == len(format): // a lone % at the end means nothing
			i = at
		case format[at] == '%' && at == i+1:
			i = at + 1
		default:
			col, ok := columns[format[at]]
			if !ok {
				l.fault = cmp.Or(l.fault, fmt.Sprintf(": %c", format[at]))
				text += format[i : at+1]
				i = at + 1
				continue
			}
			c.Column = col
			l.cells = append(l.cells, c)
			text, i = "", at+1
		}
	}
	l.after = text
	return l
}

// defaultWidth is the width of a column of -O without a size.
const defaultWidth = 20

// ByName parses a format of -O: name[:[.][size][suffix]] separated by commas.
// Names may contain -, _ and capitals. A colon without a size leaves a column
// as wide as its text; the suffix, which is any text, follows it, also in the
// line of heads.
func ByName[T any](format string, columns map[string]Column[T]) Table[T] {
	var l Table[T]
	for _, field := range strings.Split(format, ",") {
		if field == "" {
			continue
		}
		name, spec, sized := strings.Cut(field, ":")
		c := cell[T]{width: defaultWidth, before: l.after}
		if rest, ok := strings.CutPrefix(spec, "."); ok {
			c.right, spec = true, rest
		}
		suffix := strings.TrimLeft(spec, "0123456789")
		if digits := spec[:len(spec)-len(suffix)]; digits != "" {
			c.width = size(digits)
		} else if sized {
			c.width = 0
		}
		col, ok := columns[plainName(name)]
		if !ok {
			l.fault = cmp.Or(l.fault, ": "+name)
			continue
		}
		c.Column, l.after = col, suffix
		l.cells = append(l.cells, c)
	}
	return l
}

// plainName returns a field's name as the tables hold it.
func plainName(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
}

// MaxWidth bounds the width of a column; larger ones are clamped to it.
const MaxWidth = 4096

func size(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n > MaxWidth {
		return MaxWidth
	}
	return n
}

// Heads returns the first line of a table.
func (l *Table[T]) Heads() string {
	var b []byte
	for i := range l.cells {
		c := &l.cells[i]
		b = c.appendTo(append(b, c.before...), c.Head, false)
	}
	return string(append(b, l.after...))
}

// Row returns the line of t.
func (l *Table[T]) Row(t *T) string { return string(l.AppendRow(nil, t)) }

// AppendRow appends the line of t to b.
func (l *Table[T]) AppendRow(b []byte, t *T) []byte {
	for i := range l.cells {
		c := &l.cells[i]
		b = c.appendTo(append(b, c.before...), c.Value(t), c.Whole)
	}
	return append(b, l.after...)
}

func (c *cell[T]) appendTo(b []byte, s string, whole bool) []byte {
	width := c.width
	if whole && width > 0 {
		width = max(width, len(s))
	}
	return appendPad(b, s, width, c.right)
}

// Fit sets the width of columns that are as wide as their text.
func (l *Table[T]) Fit(n int, at func(int) *T, least int) {
	for i := range l.cells {
		c := &l.cells[i]
		if c.width != fits {
			continue
		}
		c.width = max(least, len(c.Head))
		for k := range n {
			c.width = max(c.width, len(c.Value(at(k))))
		}
	}
}

// Keys returns the text of all columns except those left out, by which
// sinfo groups nodes.
func (l *Table[T]) Keys(t *T, leave ...string) string {
	var parts []string
	for i := range l.cells {
		if c := &l.cells[i]; !slices.Contains(leave, c.Head) {
			parts = append(parts, c.Value(t))
		}
	}
	return strings.Join(parts, "\x00")
}

// Pad cuts or pads text to a width; 0 leaves it as it is. Slurm counts bytes,
// Berth counts characters, so that no name is cut inside one.
func Pad(s string, width int, right bool) string { return string(appendPad(nil, s, width, right)) }

func appendPad(b []byte, s string, width int, right bool) []byte {
	if width <= 0 {
		return append(b, s...)
	}
	n := 0
	for i := range s {
		if n == width {
			return append(b, s[:i]...)
		}
		n++
	}
	if !right {
		b = append(b, s...)
	}
	for range width - n {
		b = append(b, ' ')
	}
	if right {
		b = append(b, s...)
	}
	return b
}

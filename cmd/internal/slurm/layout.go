package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// column is one field that a format may name.
type column[T any] struct {
	head  string
	value func(*T) string
	// whole is never cut, only filled: Slurm prints numbers and times so.
	whole bool
}

// cell is one column in a layout, with the text that stands before it.
type cell[T any] struct {
	before string
	column[T]
	width int // 0 is as wide as the text; fits is as wide as the widest
	right bool
}

// fits makes a column as wide as its widest text, at least as its head in
// Slurm's own tables; sinfo writes it as %#P.
const fits = -1

// layout is a format that was read.
type layout[T any] struct {
	cells  []cell[T]
	after  string
	faults []string
}

// byLetter reads a format of -o: %[[.]size]letter among other text. What
// follows a % that names no column is a fault and stays as text.
func byLetter[T any](format string, columns map[byte]column[T]) layout[T] {
	var l layout[T]
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
		case at == len(format): // a lone % at the end says nothing
			i = at
		case format[at] == '%' && at == i+1:
			i = at + 1
		default:
			col, ok := columns[format[at]]
			if !ok {
				l.faults = append(l.faults, fmt.Sprintf("Invalid job format specification: %c", format[at]))
				text += format[i : at+1]
				i = at + 1
				continue
			}
			c.column = col
			l.cells = append(l.cells, c)
			text, i = "", at+1
		}
	}
	l.after = text
	return l
}

// defaultWidth is that of a column of -O without one.
const defaultWidth = 20

// byName reads a format of -O: name[:[.][size][suffix]] separated by commas. Names may
// be written with -, _ and capitals. A colon without a size leaves a column as wide as
// its text; the suffix, which is any text, stands behind it, in the line of heads, too.
func byName[T any](format string, columns map[string]column[T]) layout[T] {
	var l layout[T]
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
			l.faults = append(l.faults, "Invalid job format specification: "+name)
			continue
		}
		c.column, l.after = col, suffix
		l.cells = append(l.cells, c)
	}
	return l
}

// plainName is a name of a field as the tables hold it.
func plainName(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
}

// maxWidth bounds a column; wider ones are taken as this.
const maxWidth = 4096

func size(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n > maxWidth {
		return maxWidth
	}
	return n
}

// heads is the first line of a table.
func (l *layout[T]) heads() string {
	return l.line(func(c *cell[T]) (string, bool) { return c.head, false })
}

func (l *layout[T]) row(t *T) string { return string(l.appendRow(nil, t)) }

// appendRow adds the line of t to b.
func (l *layout[T]) appendRow(b []byte, t *T) []byte {
	for i := range l.cells {
		c := &l.cells[i]
		b = append(b, c.before...)
		b = c.appendTo(b, c.value(t), c.whole)
	}
	return append(b, l.after...)
}

func (l *layout[T]) line(text func(*cell[T]) (s string, whole bool)) string {
	var b []byte
	for i := range l.cells {
		c := &l.cells[i]
		b = append(b, c.before...)
		s, whole := text(c)
		b = c.appendTo(b, s, whole)
	}
	return string(append(b, l.after...))
}

func (c *cell[T]) appendTo(b []byte, s string, whole bool) []byte {
	width := c.width
	if whole && width > 0 {
		width = max(width, len(s))
	}
	return appendPad(b, s, width, c.right)
}

// fit gives columns that are as wide as their text a width.
func (l *layout[T]) fit(n int, at func(int) *T, least int) {
	for i := range l.cells {
		c := &l.cells[i]
		if c.width != fits {
			continue
		}
		c.width = max(least, len(c.head))
		for k := range n {
			c.width = max(c.width, len(c.value(at(k))))
		}
	}
}

// keys is the text of all columns but those left out, by which sinfo puts
// nodes together.
func (l *layout[T]) keys(t *T, leave ...string) string {
	var parts []string
	for i := range l.cells {
		if c := &l.cells[i]; !slices.Contains(leave, c.head) {
			parts = append(parts, c.value(t))
		}
	}
	return strings.Join(parts, "\x00")
}

// pad cuts or fills text to a width; 0 leaves it as it is. Slurm counts bytes,
// we count characters, so that no name is cut within one.
func pad(s string, width int, right bool) string { return string(appendPad(nil, s, width, right)) }

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

package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// field is a column of sacct and sshare with its width, left-aligned if
// negative. A field without a value is empty, as Slurm leaves unknown ones.
type field[T any] struct {
	name  string
	width int
	value func(*T) string
}

// Layout is how sacct and sshare write their tables. NoHead is -n; Parsable
// ends each field with Delimiter and Parsable2 separates them by it, none
// cut. "" means a vertical bar.
type Layout struct {
	NoHead, Parsable, Parsable2 bool
	Delimiter                   string
}

// fieldsNamed returns the fields named in list, each with an optional %WIDTH
// or %-WIDTH; a prefix of a name is enough, and all means all. The error
// names an unknown field.
func fieldsNamed[T any](list string, all []field[T]) ([]field[T], error) {
	var out []field[T]
	for _, s := range strings.Split(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		name, width, sized := strings.Cut(s, "%")
		if strings.EqualFold(name, "all") {
			out = append(out, all...)
			continue
		}
		k := slices.IndexFunc(all, func(f field[T]) bool {
			return len(f.name) >= len(name) && strings.EqualFold(f.name[:len(name)], name)
		})
		if k < 0 || name == "" {
			return nil, text.Message(fmt.Sprintf("Invalid field requested: \"%s\"", name))
		}
		f := all[k]
		if n, err := strconv.Atoi(width); sized && err == nil && n != 0 && -text.MaxWidth <= n && n <= text.MaxWidth {
			f.width = n
		}
		out = append(out, f)
	}
	return out, nil
}

// fieldHeads writes the names of fields, cut in tables to their width without a mark.
func fieldHeads[T any](l *Layout, b *strings.Builder, fields []field[T]) {
	if l.NoHead {
		return
	}
	bars := l.Parsable || l.Parsable2
	fieldLine(l, b, fields, func(f *field[T]) string {
		if bars {
			return f.name
		}
		return f.name[:min(len(f.name), max(f.width, -f.width))]
	})
	if !bars {
		fieldLine(l, b, fields, func(f *field[T]) string { return strings.Repeat("-", max(f.width, -f.width)) })
	}
}

func fieldLine[T any](l *Layout, b *strings.Builder, fields []field[T], value func(*field[T]) string) {
	by := cmp.Or(l.Delimiter, "|")
	for i := range fields {
		f := &fields[i]
		s := value(f)
		switch {
		case l.Parsable2:
			if i > 0 {
				b.WriteString(by)
			}
			b.WriteString(s)
		case l.Parsable:
			b.WriteString(s + by)
		default:
			width := max(f.width, -f.width)
			if runes := []rune(s); len(runes) > width { // Slurm marks cut values
				s = string(runes[:width-1]) + "+"
			}
			b.WriteString(text.Pad(s, width, f.width > 0) + " ")
		}
	}
	b.WriteByte('\n')
}

// fieldNames lists fields in columns, as -e does.
func fieldNames[T any](all []field[T], each string) string {
	var b strings.Builder
	for i, f := range all {
		switch {
		case i == 0:
		case i%fieldColumns == 0:
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, each, f.name)
	}
	return b.String()
}

// fieldColumns is the number of columns in which -e lists fields.
const fieldColumns = 4

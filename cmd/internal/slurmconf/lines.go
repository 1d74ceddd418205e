package slurmconf

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// MaxFile bounds a file, in bytes. A site's are some kilobytes.
const MaxFile = 16 << 20

const (
	maxFiles = 64
	maxLine  = 1 << 20 // continued lines included
)

// Place is a line of a file, counted from 1.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// String is the place as messages begin.
func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// pair is one Key=Value of a line. Op is what stands before the =, such as +.
type pair struct {
	Key, Value string
	Op         byte
}

// line is one line with its continuations.
type line struct {
	At    Place
	Pairs []pair
	// Rest is text in it that is not Key=Value.
	Rest string
}

// is reports whether the line says key first, and returns its value.
func (l *line) is(key string) (string, bool) {
	if len(l.Pairs) > 0 && strings.EqualFold(l.Pairs[0].Key, key) {
		return l.Pairs[0].Value, true
	}
	return "", false
}

// reader reads files with their Include lines.
type reader struct {
	open    func(name string) ([]byte, error)
	cluster string // for %c
	files   int
	depth   int
	out     []line
	faults  []Entry
}

// ReadFile opens a file of the configuration by the name that a line or the
// caller gave. It bounds what it returns.
type ReadFile func(name string) ([]byte, error)

// errTooMany is the error for an Include that includes itself.
var errTooMany = errors.New("includes nest too deeply, or there are more than 64 files")

// file reads one file. The lines of included files take the place of their Include.
func (r *reader) file(name string) error {
	if r.files++; r.files > maxFiles || r.depth > 16 {
		return errTooMany
	}
	data, err := r.open(name)
	if err != nil {
		return err
	}
	if len(data) > MaxFile {
		return fmt.Errorf("%s: larger than %d MiB", name, MaxFile>>20)
	}
	r.depth++
	defer func() { r.depth-- }()
	for text, at := range joined(name, string(data)) {
		if target, ok := included(text); ok {
			if err := r.include(name, target, at); err != nil {
				return err
			}
			continue
		}
		l := line{At: at}
		l.Pairs, l.Rest = pairs(text)
		if len(l.Pairs) > 0 || l.Rest != "" {
			r.out = append(r.out, l)
		}
		if v, ok := l.is("clustername"); ok {
			r.cluster = v
		}
	}
	return nil
}

// include reads a file that a line names. One that cannot be read is a fault of
// that line; an endless chain is an error of the whole.
func (r *reader) include(from, target string, at Place) error {
	path := strings.ReplaceAll(target, "%c", r.cluster)
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(from), path)
	}
	err := r.file(path)
	if errors.Is(err, errTooMany) {
		return fmt.Errorf("%s: %w", at, err)
	}
	if err != nil {
		r.faults = append(r.faults, Entry{Place: at, Key: "Include", Value: target, Fate: Unread, Note: err.Error()})
	}
	return nil
}

// joined yields the lines of a file without comments, continued ones as one with
// the place of the first. As in Slurm, a comment ends the line, so a backslash in it
// continues nothing, and \# is not a comment.
func joined(name, data string) func(yield func(string, Place) bool) {
	return func(yield func(string, Place) bool) {
		var b strings.Builder
		first, n := 0, 0
		for raw := range strings.Lines(data) {
			n++
			first = cmp.Or(first, n)
			text, more := continued(withoutComment(strings.TrimRight(raw, "\r\n")))
			if b.Len()+len(text) <= maxLine {
				b.WriteString(text)
			}
			if more {
				continue
			}
			if !yield(b.String(), Place{name, first}) {
				return
			}
			b.Reset()
			first = 0
		}
		if first != 0 {
			yield(b.String(), Place{name, first})
		}
	}
}

func withoutComment(s string) string {
	if !strings.Contains(s, "#") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '#':
			b.WriteByte('#')
			i++
		case s[i] == '#':
			return b.String()
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// continued cuts the backslash from a line that continues: one with an odd number
// of them at its end, ignoring space.
func continued(s string) (string, bool) {
	end := strings.TrimRight(s, " \t\v\f")
	n := len(end) - len(strings.TrimRight(end, `\`))
	if n%2 == 0 {
		return s, false
	}
	return end[:len(end)-1], true
}

func included(text string) (string, bool) {
	f := strings.Fields(text)
	if len(f) == 2 && strings.EqualFold(f[0], "include") {
		return f[1], true
	}
	return "", false
}

func space(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func keyChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.'
}

// pairs cuts a line into Key=Value. Values in double quotes keep their spaces.
// What is left when no pair follows is returned as rest.
func pairs(s string) (out []pair, rest string) {
	i := 0
	skip := func() {
		for i < len(s) && space(s[i]) {
			i++
		}
	}
	for {
		skip()
		from := i
		for i < len(s) && keyChar(s[i]) {
			i++
		}
		p := pair{Key: s[from:i]}
		skip()
		if i < len(s) && strings.IndexByte("-*+/", s[i]) >= 0 {
			p.Op = s[i]
			i++
		}
		if p.Key == "" || i >= len(s) || s[i] != '=' {
			return out, strings.TrimSpace(s[from:])
		}
		i++
		skip()
		var ok bool
		if p.Value, i, ok = value(s, i); !ok {
			return out, strings.TrimSpace(s[from:])
		}
		out = append(out, p)
	}
}

// value reads a value at i: quoted, or up to the next space.
func value(s string, i int) (v string, end int, ok bool) {
	if i < len(s) && s[i] == '"' {
		n := strings.IndexByte(s[i+1:], '"')
		if n < 0 || i+n+2 < len(s) && !space(s[i+n+2]) {
			return "", i, false
		}
		return s[i+1 : i+1+n], i + n + 2, true
	}
	from := i
	for i < len(s) && !space(s[i]) {
		i++
	}
	return s[from:i], i, i > from
}

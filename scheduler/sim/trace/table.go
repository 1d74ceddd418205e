package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BadRow is a row that is not a job.
type BadRow struct {
	File string `json:"file"`
	// Row counts from 1, the head being row 1.
	Row int    `json:"row"`
	Err string `json:"error"`
}

// Report describes what was read.
type Report struct {
	Rows int `json:"rows"`
	Jobs int `json:"jobs"`
	// Skipped counts the rows that were not jobs; Bad names the first of them.
	Skipped int      `json:"skipped"`
	Bad     []BadRow `json:"bad,omitempty"`
}

// Skip counts a row that turns out not to be a job because of what is known only
// when all are read.
func (r *Report) Skip(file string, row int, why string) {
	r.Skipped++
	if len(r.Bad) < maxBad {
		r.Bad = append(r.Bad, BadRow{file, row, why})
	}
}

// maxBad bounds how many bad rows are remembered.
const maxBad = 100

// maxName bounds the length kept of a text in a row.
const maxName = 256

// table is a file with a head.
type table struct {
	file string
	csv  *csv.Reader
	cols map[string]int
	row  int
	rec  []string
	want int // fields of a row
}

// newTable reads the head. Fields are separated by bars if the head has any, as
// sacct -P writes them, otherwise by commas.
func newTable(file string, r io.Reader) (*table, error) {
	head, rest, err := firstLine(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t := &table{file: file, csv: csv.NewReader(rest), cols: map[string]int{}, row: 1}
	t.csv.ReuseRecord, t.csv.FieldsPerRecord = true, -1
	if strings.Contains(head, "|") {
		t.csv.Comma, t.csv.LazyQuotes = '|', true
	}
	names := csv.NewReader(strings.NewReader(head))
	names.Comma, names.LazyQuotes = t.csv.Comma, true
	cols, err := names.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: row 1: %w", file, err)
	}
	if len(cols) > maxColumns {
		return nil, fmt.Errorf("%s: row 1: %d columns, at most %d are read", file, len(cols), maxColumns)
	}
	t.want = len(cols)
	for i, c := range cols {
		c = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(c, "\ufeff")))
		if _, twice := t.cols[c]; !twice {
			t.cols[c] = i
		}
	}
	return t, nil
}

// firstLine splits r into its first line and the rest.
func firstLine(r io.Reader) (string, io.Reader, error) {
	var line []byte
	one := make([]byte, 4096)
	for {
		n, err := r.Read(one)
		line = append(line, one[:n]...)
		if i := strings.IndexByte(string(line), '\n'); i >= 0 {
			return strings.TrimRight(string(line[:i]), "\r"), io.MultiReader(strings.NewReader(string(line[i+1:])), r), nil
		}
		switch {
		case errors.Is(err, io.EOF) && len(line) > 0:
			return string(line), strings.NewReader(""), nil
		case errors.Is(err, io.EOF):
			return "", nil, errors.New("is empty")
		case err != nil:
			return "", nil, err
		}
	}
}

// has reports whether the head holds all names.
func (t *table) has(names ...string) bool {
	return !slices.ContainsFunc(names, func(n string) bool {
		_, ok := t.cols[n]
		return !ok
	})
}

// next reads a row; io.EOF ends the file. Other errors of one row are bad
// rows and leave the table readable, those of the file are fatal.
func (t *table) next() (bad error, fatal error) {
	t.row++
	rec, err := t.csv.Read()
	var parse *csv.ParseError
	switch {
	case err == nil && t.row > maxRows:
		return nil, fmt.Errorf("%s: more than %d rows", t.file, maxRows)
	case err == nil:
		t.rec = rec
		if len(rec) != t.want {
			return fmt.Errorf("has %d fields, the head has %d", len(rec), t.want), nil
		}
		return nil, nil
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case errors.As(err, &parse):
		return parse.Err, nil
	default:
		return nil, fmt.Errorf("%s: row %d: %w", t.file, t.row, err)
	}
}

// first returns the value of the first of names that the head has; ok is false if
// it has none.
func (t *table) first(names ...string) (val, name string, ok bool) {
	for _, n := range names {
		if i, in := t.cols[n]; in {
			if i < len(t.rec) {
				return strings.TrimSpace(t.rec[i]), n, true
			}
			return "", n, true
		}
	}
	return "", "", false
}

// text returns a bounded copy of a value, "" if there is none.
func (t *table) text(names ...string) string {
	v, _, _ := t.first(names...)
	if len(v) > maxName {
		v = v[:maxName]
	}
	return strings.ToValidUTF8(strings.Clone(v), "?")
}

// filled returns an error if a value that a job requires is empty.
func (t *table) filled(names ...string) error {
	if v, name, _ := t.first(names...); v == "" {
		return fmt.Errorf("%s: is empty", name)
	}
	return nil
}

// number reads a value; empty is 0.
func (t *table) number(names ...string) (float64, error) {
	v, name, _ := t.first(names...)
	if v == "" {
		return 0, nil
	}
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%s: %.40q is not a number", name, v)
	}
	return x, nil
}

// between reads a value and bounds it.
func (t *table) between(lo, hi float64, names ...string) (float64, error) {
	x, err := t.number(names...)
	if err != nil {
		return 0, err
	}
	if x < lo || x > hi {
		_, name, _ := t.first(names...)
		return 0, fmt.Errorf("%s: %g is outside %g to %g", name, x, lo, hi)
	}
	return x, nil
}

// maxSpan is the longest accepted time: a century.
const maxSpan = 100 * 365 * 24 * 3600

// span reads a time in units; negative ones are allowed down to a century.
func (t *table) span(unit time.Duration, names ...string) (time.Duration, error) {
	per := float64(time.Second) / float64(unit)
	x, err := t.between(-maxSpan*per, maxSpan*per, names...)
	if err != nil {
		return 0, err
	}
	return time.Duration(math.Round(x*float64(unit.Microseconds()))) * time.Microsecond, nil
}

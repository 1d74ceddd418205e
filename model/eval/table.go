package eval

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Bounds on input, so that a broken file costs bounded memory.
const (
	maxFileBytes = 256 << 20
	maxRows      = 1 << 20
	maxColumns   = 256
)

// table is one CSV file. Columns are found by name.
type table struct {
	file  string // base name without extensions
	names []string
	bases []string // names without their units
	units []string
	lines [][]string
}

// readTable reads a .csv or .csv.gz file.
func readTable(path string) (*table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var r io.Reader = bufio.NewReader(f)
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		r = z
	}
	name := filepath.Base(path)
	return parseTable(strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".csv"), r)
}

func parseTable(name string, r io.Reader) (*table, error) {
	limited := &io.LimitedReader{R: r, N: maxFileBytes}
	c := csv.NewReader(limited)
	c.FieldsPerRecord, c.LazyQuotes, c.TrimLeadingSpace = -1, true, true
	head, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("is empty: the first line must name the columns")
	} else if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if len(head) > maxColumns {
		return nil, fmt.Errorf("has %d columns, at most %d are read", len(head), maxColumns)
	}
	t := &table{file: name}
	for _, h := range head {
		full, base, unit := splitName(h)
		t.names, t.bases, t.units = append(t.names, full), append(t.bases, base), append(t.units, unit)
	}
	for {
		line, err := c.Read()
		switch {
		case errors.Is(err, io.EOF) && limited.N > 0:
			return t, nil
		case limited.N <= 0:
			return nil, fmt.Errorf("is larger than %d MiB", maxFileBytes>>20)
		case err != nil:
			return nil, fmt.Errorf("read: %w", err)
		}
		if len(t.lines) == maxRows {
			return nil, fmt.Errorf("has more than %d lines", maxRows)
		}
		t.lines = append(t.lines, line)
	}
}

// splitName splits "Peak memory (GB)" into "peak_memory_gb", "peak_memory" and
// "gb".
func splitName(h string) (full, base, unit string) {
	words := strings.FieldsFunc(strings.ToLower(strings.TrimPrefix(h, "\ufeff")), func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9')
	})
	full = strings.Join(words, "_")
	if n := len(words); n > 1 && knownUnit(words[n-1]) {
		return full, strings.Join(words[:n-1], "_"), words[n-1]
	}
	return full, full, ""
}

func knownUnit(s string) bool {
	_, mem := memUnits[s]
	_, time := timeUnits[s]
	return mem || time || s == "pct" || s == "percent"
}

// memUnits are in bytes, as data sets mean them: MB and GB as reported by memory
// tools are binary. decimalUnits has the other meaning.
var (
	memUnits     = map[string]float64{"bytes": 1, "kb": 1 << 10, "kib": 1 << 10, "mb": 1 << 20, "mib": 1 << 20, "gb": 1 << 30, "gib": 1 << 30}
	decimalUnits = map[string]float64{"kb": 1e3, "mb": 1e6, "gb": 1e9}
	timeUnits    = map[string]float64{
		"us": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1, "min": 60, "mins": 60, "minutes": 60, "h": 3600, "hours": 3600,
	}
)

// find returns the column of the first of names that the table has, or -1. A name
// with its unit takes precedence over the same name without.
func (t *table) find(names ...string) int {
	for _, n := range names {
		if i := slices.Index(t.names, n); i >= 0 {
			return i
		}
		if i := slices.Index(t.bases, n); i >= 0 {
			return i
		}
	}
	return -1
}

// has reports whether each group of names has a column.
func (t *table) has(groups ...[]string) error {
	for _, g := range groups {
		if t.find(g...) < 0 {
			return fmt.Errorf("has no column %s", strings.Join(g, " or "))
		}
	}
	return nil
}

// line is one line of a table.
type line struct {
	t     *table
	cells []string
}

func (l line) at(i int) string {
	if i < 0 || i >= len(l.cells) {
		return ""
	}
	return strings.TrimSpace(l.cells[i])
}

func (l line) text(names ...string) string { return l.at(l.t.find(names...)) }

// num returns a finite number of 0 or more; false if there is none.
func (l line) num(names ...string) (float64, bool) {
	v, _, ok := number(l.text(names...))
	return v, ok && v >= 0
}

// count is num as an integer within the range of Features.
func (l line) count(names ...string) int64 {
	v, _ := l.num(names...)
	return whole(v)
}

// flag reports whether a column says yes.
func (l line) flag(names ...string) bool {
	switch strings.ToLower(l.text(names...)) {
	case "1", "true", "yes", "y", "oom":
		return true
	}
	return false
}

// mib parses memory by the unit of the cell, else of the column, else by a guess:
// figures below 200 are GiB, larger ones MiB. decimal takes GB as 10^9.
func (l line) mib(decimal bool, names ...string) (float64, bool) {
	i := l.t.find(names...)
	v, unit, ok := number(l.at(i))
	if !ok || v <= 0 {
		return 0, false
	}
	if _, known := memUnits[unit]; !known {
		unit = l.t.units[i]
	}
	scale, known := memUnits[unit]
	if d, ok := decimalUnits[unit]; ok && decimal {
		scale = d
	}
	if !known {
		if scale = 1 << 20; v < 200 {
			scale = 1 << 30
		}
	}
	return v * scale / (1 << 20), true
}

// seconds parses a duration by the unit of the cell, else of the column, else in
// seconds.
func (l line) seconds(names ...string) (float64, bool) {
	i := l.t.find(names...)
	v, unit, ok := number(l.at(i))
	if !ok || v <= 0 {
		return 0, false
	}
	if _, known := timeUnits[unit]; !known {
		unit = l.t.units[i]
	}
	if scale, known := timeUnits[unit]; known {
		v *= scale
	}
	return v, true
}

// id is the same for equal lines in the same data set.
func (l line) id(dataset string) uint64 {
	h := fnv.New64a()
	for _, s := range append([]string{dataset}, l.cells...) {
		_, _ = io.WriteString(h, strings.TrimSpace(s))
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// number parses "1,572,864", "93.9 %", "16.69 GB" or "2.36 min": a finite number
// and the word after it, in lower case.
func number(s string) (v float64, unit string, ok bool) {
	s = strings.ReplaceAll(strings.TrimSpace(s), ",", "")
	end := strings.IndexFunc(s, func(r rune) bool {
		return !(r >= '0' && r <= '9' || strings.ContainsRune("+-.eE", r))
	})
	if end < 0 {
		end = len(s)
	}
	v, err := strconv.ParseFloat(s[:end], 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, "", false
	}
	return v, strings.ToLower(strings.TrimSpace(s[end:])), true
}

package console

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// Shape is which columns of a table are printed and which its rows are sorted
// by, as given by -o cols=… and --sort.
type Shape struct {
	// Narrow says that the wide table has other rows, so that the columns are
	// those of the plain one.
	Narrow bool

	cols []string
	sort string
}

// colsPrefix is the prefix of a format that selects columns.
const colsPrefix = "cols="

// AddShape registers -o as AddFormat does, with a choice of columns as well
// as the formats, and --sort. The columns are those of the command's widest
// table with one row per item.
func AddShape(cmd *cobra.Command, p *string, s *Shape, known ...Format) {
	AddFormat(cmd, p, known...)
	cmd.Flags().Lookup("output").Usage += ", or cols=A,B: these columns"
	cmd.Flags().StringVar(&s.sort, "sort", "", "sort the table by this `COLUMN`, or -COLUMN for descending order")
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if list, ok := strings.CutPrefix(*p, colsPrefix); ok {
			s.cols = strings.Split(list, ",")
			*p = string(FormatTable)
			if slices.Contains(known, FormatWide) && !s.Narrow {
				*p = string(FormatWide)
			}
		}
		if f := Format(*p); (len(s.cols) > 0 || s.sort != "") && f != FormatTable && f != FormatWide {
			return &UsageError{Cmd: cmd.CommandPath(), Err: Usagef("--sort: only for tables; -o %s keeps the API's order", ShortQuote(*p))}
		}
		return check(cmd, args)
	}
}

// Shows reports whether the column with this head is printed, if the table has it.
func (s *Shape) Shows(head string) bool {
	same := func(name string) bool { return strings.EqualFold(strings.TrimPrefix(name, "-"), head) }
	return len(s.cols) == 0 || slices.ContainsFunc(s.cols, same) || same(s.sort)
}

// Print prints a table in this shape.
func (s *Shape) Print(e *Env, t *Table) error {
	if name, last := strings.CutPrefix(s.sort, "-"); s.sort != "" {
		i, err := t.column("--sort", name)
		if err != nil {
			return err
		}
		slices.SortStableFunc(t.Rows, func(a, b []string) int {
			if last {
				a, b = b, a
			}
			return compareCells(a[i], b[i])
		})
	}
	if len(s.cols) > 0 {
		chosen := &Table{NoHead: t.NoHead}
		var from []int
		for _, name := range s.cols {
			i, err := t.column("-o "+colsPrefix+strings.Join(s.cols, ","), name)
			if err != nil {
				return err
			}
			from, chosen.Cols = append(from, i), append(chosen.Cols, t.Cols[i])
			chosen.Cols[len(chosen.Cols)-1].Drop = 0 // requested columns stay
		}
		for _, r := range t.Rows {
			row := make([]string, len(from))
			for k, i := range from {
				row[k] = r[i]
			}
			chosen.Add(row...)
		}
		t = chosen
	}
	t.Print(e)
	return nil
}

// column finds a column by its head, in any case; a part in brackets may be left out.
func (t *Table) column(flag, name string) (int, error) {
	var heads []string
	for i, c := range t.Cols {
		short, _, _ := strings.Cut(c.Head, "(")
		if strings.EqualFold(name, c.Head) || strings.EqualFold(name, short) {
			return i, nil
		}
		heads = append(heads, short)
	}
	return 0, Usagef("%s: no column %s; want some of %s%s", flag, ShortQuote(name), strings.Join(heads, ", "), DidYouMean(strings.ToUpper(name), heads))
}

// compareCells compares amounts as amounts, and ids and names with numbers in
// them by those numbers, and sorts unknown values last.
func compareCells(a, b string) int {
	if unknown := cmp.Compare(orderOfUnknown(a), orderOfUnknown(b)); unknown != 0 {
		return unknown
	}
	x, knownX := amount(a)
	y, knownY := amount(b)
	if knownX && knownY {
		return cmp.Compare(x, y)
	}
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da > 0 && db > 0 {
			na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if c := cmp.Or(cmp.Compare(len(na), len(nb)), cmp.Compare(na, nb)); c != 0 {
				return c
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func orderOfUnknown(s string) int {
	if s == "-" || s == "" {
		return 1
	}
	return 0
}

// digits returns how many digits s begins with.
func digits(s string) int {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return i
		}
	}
	return len(s)
}

// unitFactors are those of the units that follow numbers in tables.
var unitFactors = map[string]float64{"": 1, "%": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

// amount reads a number with a unit, or a time such as 1-02:03:04 or 0:58. Of
// two, as in "12.0/78.0G", the first counts.
func amount(s string) (float64, bool) {
	first, _, _ := strings.Cut(s, "/")
	if strings.Contains(first, ":") {
		return clockSeconds(first)
	}
	number := strings.TrimRight(first, "%BKMGTi ")
	unit := strings.TrimSpace(first[len(number):])
	if unit == "" {
		unit = strings.TrimSpace(s[len(strings.TrimRight(s, "%BKMGTi ")):])
	}
	factor, known := unitFactors[strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "i")]
	n, err := strconv.ParseFloat(number, 64)
	return n * factor, known && err == nil
}

// clockSeconds reads 1-02:03:04 or 0:58.
func clockSeconds(s string) (float64, bool) {
	days, clock, some := strings.Cut(s, "-")
	if !some {
		days, clock = "0", s
	}
	total, err := strconv.ParseFloat(days, 64)
	total *= 24 * 3600
	seconds := 0.0
	for part := range strings.SplitSeq(clock, ":") {
		n, perr := strconv.ParseFloat(part, 64)
		if perr != nil {
			err = perr
		}
		seconds = seconds*60 + n
	}
	return total + seconds, err == nil
}

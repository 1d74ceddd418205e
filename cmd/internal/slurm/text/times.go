package text

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Times is how times are written: Form is $SLURM_TIME_FORMAT, which is "",
// standard, relative, or a strftime format, and Now is what relative counts
// from.
type Times struct {
	Form string
	Now  time.Time
}

// Stamp formats a time in its own zone; none for the zero time.
func (f Times) Stamp(t time.Time, none string) string {
	switch {
	case t.IsZero() || f.Form == "" || f.Form == "standard":
		return Stamp(t, none)
	case f.Form == "relative":
		return strftime(t, f.relative(t))
	}
	return strftime(t, f.Form)
}

// relative formats a time of today, of days nearby, and others.
func (f Times) relative(t time.Time) string {
	day := func(t time.Time) int { return 1000*t.Year() + t.YearDay() }
	switch d := day(t) - day(f.Now.In(t.Location())); {
	case d == 0:
		return "%H:%M:%S"
	case d == -1:
		return "Ystday %H:%M"
	case d == 1:
		return "Tomorr %H:%M"
	case d < -365 || d > 365:
		return "%-d %b %Y"
	case d < -1 || d > 6:
		return "%-d %b %H:%M"
	}
	return "%a %H:%M"
}

// goForms maps strftime's conversions to Go layouts.
var goForms = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'm': "01", 'M': "04", 'p': "PM",
	'S': "05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'r': "03:04:05 PM", 'j': "002",
}

// strftime formats a time in a format of the C library's, in English; unknown
// conversions stay.
func strftime(t time.Time, form string) string {
	var b strings.Builder
	for i := 0; i < len(form); i++ {
		if form[i] != '%' || i+1 == len(form) {
			b.WriteByte(form[i])
			continue
		}
		i++
		bare := form[i] == '-' && i+1 < len(form) // a number without padding
		if bare {
			i++
		}
		switch c := form[i]; {
		case c == 's':
			b.WriteString(strconv.FormatInt(t.Unix(), 10))
		case c == '%':
			b.WriteByte('%')
		case c == 'n':
			b.WriteByte('\n')
		case c == 't':
			b.WriteByte('\t')
		case goForms[c] != "" && bare:
			text := cmp.Or(strings.TrimLeft(t.Format(goForms[c]), "0 "), "0")
			b.WriteString(text)
		case goForms[c] != "":
			b.WriteString(t.Format(goForms[c]))
		default:
			fmt.Fprintf(&b, "%%%c", c)
		}
	}
	return b.String()
}

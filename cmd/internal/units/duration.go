package units

import (
	"fmt"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

// ParseDuration reads a time limit in one of Slurm's -t forms (minutes,
// minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
// days-hours:minutes:seconds) or in Go's form with whole numbers (90s, 10m,
// 1h30m, 2d). The first field may be as large as the bounds allow; each later
// one must be less than one unit of the field before it.
func ParseDuration(s string) (time.Duration, error) {
	d, ok := parseSuffixed(s)
	if !ok {
		d, ok = parseSlurm(s)
	}
	switch {
	case !ok:
		return 0, fmt.Errorf("time %s: %s", escape.Quote(s), timeForms)
	case d < MinTime:
		return 0, fmt.Errorf("time %s: too short: %s", escape.Quote(s), timeForms)
	case d > MaxTime:
		return 0, fmt.Errorf("time %s: too long: %s", escape.Quote(s), timeForms)
	}
	return d, nil
}

// field is one number of a time: its unit, and how many make one of the unit
// before.
type field struct {
	unit time.Duration
	base int64
}

// parseSlurm recognizes the form by its dash and the number of colons.
func parseSlurm(s string) (time.Duration, bool) {
	var forms map[int][]field
	days, rest, dashed := strings.Cut(s, "-")
	if dashed {
		hours := []field{{time.Hour, 24}, {time.Minute, 60}, {time.Second, 60}}
		forms = map[int][]field{1: hours[:1], 2: hours[:2], 3: hours}
	} else {
		rest = s
		forms = map[int][]field{
			1: {{time.Minute, 0}},
			2: {{time.Minute, 0}, {time.Second, 60}},
			3: {{time.Hour, 0}, {time.Minute, 60}, {time.Second, 60}},
		}
	}
	parts := strings.Split(rest, ":")
	fields, ok := forms[len(parts)]
	if !ok {
		return 0, false
	}
	var total time.Duration
	if dashed && !add(&total, days, field{unit: day}) {
		return 0, false
	}
	for i, f := range fields {
		if !add(&total, parts[i], f) {
			return 0, false
		}
	}
	return total, true
}

// parseSuffixed reads numbers with d, h, m, s, each at most once and in this
// order.
func parseSuffixed(s string) (time.Duration, bool) {
	order := []struct {
		letter byte
		field
	}{{'d', field{day, 0}}, {'h', field{time.Hour, 24}}, {'m', field{time.Minute, 60}}, {'s', field{time.Second, 60}}}
	if s == "" || s[len(s)-1] <= '9' {
		return 0, false
	}
	var total time.Duration
	for next := 0; s != ""; {
		end := strings.IndexAny(s, "dhms")
		if end < 0 {
			return 0, false
		}
		at := next
		for at < len(order) && order[at].letter != s[end] {
			at++
		}
		if at == len(order) {
			return 0, false
		}
		f := order[at].field
		if next == 0 {
			f.base = 0 // the first number is unbounded
		}
		if !add(&total, s[:end], f) {
			return 0, false
		}
		next, s = at+1, s[end+1:]
	}
	return total, true
}

// add reads one number and adds it; leading zeros are fine, as in 01:05:09.
// It saturates far above MaxTime and far below overflow.
func add(total *time.Duration, digits string, f field) bool {
	n, ok := digitsOf(digits)
	if !ok || f.base != 0 && n >= f.base {
		return false
	}
	const huge = 100 * MaxTime
	*total += f.unit * time.Duration(min(n, int64(huge/f.unit)))
	return true
}

// FormatDuration writes [days-]hours:minutes:seconds, which ParseDuration
// reads back; fractions of a second are cut off.
func FormatDuration(d time.Duration) string {
	s := int64(d / time.Second)
	clock := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if days := s / 86400; days > 0 {
		return fmt.Sprintf("%d-%s", days, clock)
	}
	return clock
}

// HumanDuration writes the two largest units, for tables: 3d04h, 2h05m, 45s.
func HumanDuration(d time.Duration) string {
	s := int64(d / time.Second)
	switch {
	case s >= 86400:
		return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
	case s >= 3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	case s >= 60:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	default:
		return fmt.Sprintf("%ds", s)
	}
}

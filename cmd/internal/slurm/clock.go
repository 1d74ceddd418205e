package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// span is a duration as squeue writes it: 0:00, 59:56, 1:00:00, 2-00:00:00.
func span(d time.Duration) string {
	s := int64(max(0, d) / time.Second)
	days, h, m, sec := s/86400, s/3600%24, s/60%60, s%60
	switch {
	case days > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", days, h, m, sec)
	case h > 0:
		return fmt.Sprintf("%d:%02d:%02d", h, m, sec)
	}
	return fmt.Sprintf("%d:%02d", m, sec)
}

// long is a duration as scontrol and sacct write it: 00:00:04, 2-00:00:00.
func long(d time.Duration) string {
	s := int64(max(0, d) / time.Second)
	out := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if days := s / 86400; days > 0 {
		out = strconv.FormatInt(days, 10) + "-" + out
	}
	return out
}

// Clock is a duration as scontrol, sacct and sacctmgr write it.
func Clock(d time.Duration) string { return long(d) }

// stamp is a time as Slurm writes it, in the zone of t; none for the zero
// time.
func stamp(t time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return t.Format("2006-01-02T15:04:05")
}

// memory is MiB as Slurm writes them: 0, 500M, 1G, 1.50G, as its convert
// function does, which keeps two digits only where they say something.
func memory(mib int64) string {
	if mib == 0 {
		return "0"
	}
	unit, v := "M", float64(mib)
	for _, u := range []string{"G", "T", "P"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	if v == float64(int64(v)) {
		return strconv.FormatInt(int64(v), 10) + unit
	}
	return strconv.FormatFloat(v, 'f', 2, 64) + unit
}

// mib is MiB as Slurm writes them when it is not to convert them.
func mib(n int64) string {
	if n == 0 {
		return "0"
	}
	return strconv.FormatInt(n, 10) + "M"
}

// ParseTime reads a time as Slurm's options take it: now, now-2hours, today,
// midnight, noon, HH:MM[:SS], YYYY-MM-DD[THH:MM[:SS]], MM/DD/YY, MMDDYY. Times
// are in the zone of now.
func ParseTime(s string, now time.Time) (time.Time, bool) {
	y, m, d := now.Date()
	day := time.Date(y, m, d, 0, 0, 0, 0, now.Location())
	switch low := strings.ToLower(s); {
	case low == "today", low == "midnight":
		return day, true
	case low == "noon":
		return day.Add(12 * time.Hour), true
	case low == "tomorrow":
		return day.AddDate(0, 0, 1), true
	case strings.HasPrefix(low, "now"):
		return fromNow(low[3:], now)
	}
	for _, form := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02", "01/02/06", "01/02/06-15:04", "01/02/06-15:04:05", "010206"} {
		if t, err := time.ParseInLocation(form, s, now.Location()); err == nil {
			return t, true
		}
	}
	for _, form := range []string{"15:04:05", "15:04"} {
		if t, err := time.ParseInLocation(form, s, now.Location()); err == nil {
			return day.Add(t.Sub(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, t.Location()))), true
		}
	}
	return time.Time{}, false
}

// ParseDeadline reads a deadline as Slurm's options take it, which is a time
// as ParseTime reads it: a time of day that has passed is tomorrow's.
func ParseDeadline(s string, now time.Time) (time.Time, bool) {
	t, ok := ParseTime(s, now)
	if ok && !t.After(now) && !strings.ContainsAny(s, "T/-") && strings.Contains(s, ":") {
		t = t.AddDate(0, 0, 1)
	}
	return t, ok
}

// fromNow reads what stands behind now: "", +2hours, -30 (seconds).
func fromNow(s string, now time.Time) (time.Time, bool) {
	if s == "" {
		return now, true
	}
	sign := time.Duration(1)
	switch s[0] {
	case '-':
		sign = -1
	case '+':
	default:
		return now, false
	}
	digits := strings.TrimRight(s[1:], "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return now, false
	}
	unit := time.Second
	switch word := strings.TrimSuffix(s[1+len(digits):], "s"); word {
	case "", "second":
	case "minute":
		unit = time.Minute
	case "hour":
		unit = time.Hour
	case "day":
		unit = 24 * time.Hour
	case "week":
		unit = 7 * 24 * time.Hour
	default:
		return now, false
	}
	return now.Add(sign * time.Duration(n) * unit), true
}

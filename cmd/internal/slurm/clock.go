package slurm

import (
	"math"
	"strconv"
	"strings"
	"time"
)

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
	if n > int64(math.MaxInt64/unit) { // beyond any time that is told; it would be one of the past
		return now, false
	}
	return now.Add(sign * time.Duration(n) * unit), true
}

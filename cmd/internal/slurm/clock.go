package slurm

import (
	"strconv"
	"strings"
	"time"
)

// TimeForms describes what ParseNext accepts, for error messages.
const TimeForms = "now+2hours, +30m, 16:00, noon, teatime, tomorrow or 2026-03-14T18:00"

// clockWords are the named times of day, as in Slurm.
var clockWords = map[string]time.Duration{"midnight": 0, "noon": 12 * time.Hour, "fika": 15 * time.Hour, "teatime": 16 * time.Hour}

// dayForms and clockForms are the layouts of days and of times of day.
var (
	dayForms   = []string{"2006-01-02", "01/02/06", "010206"}
	clockForms = []string{"15:04:05", "15:04", "3:04:05pm", "3:04pm", "3pm"}
)

// ParseTime reads a time as Slurm's options take it: now, now-2hours, today,
// tomorrow, midnight, noon, fika (15:00), teatime (16:00), HH:MM[:SS][AM|PM],
// YYYY-MM-DD, MM/DD[/YY] or MMDDYY, a day followed by T or - and a time of
// day, or a time of day and a day separated by a space. Times are in the zone
// of now.
func ParseTime(s string, now time.Time) (time.Time, bool) {
	t, _, ok := parseTime(s, now)
	return t, ok
}

// ParseNext reads a future time: as ParseTime does, but a time of day, or a
// day without its year, that has passed means the next one. +30m is short for
// now+30m.
func ParseNext(s string, now time.Time) (time.Time, bool) {
	if strings.HasPrefix(s, "+") {
		s = "now" + s
	}
	t, again, ok := parseTime(s, now)
	if ok && again != none && !t.After(now) {
		if again == yearly {
			return t.AddDate(1, 0, 0), true
		}
		return t.AddDate(0, 0, 1), true
	}
	return t, ok
}

// every is the period at which a typed time recurs.
type every int

const (
	none every = iota
	daily
	yearly
)

func parseTime(s string, now time.Time) (t time.Time, again every, ok bool) {
	low := strings.ToLower(strings.TrimSpace(s))
	y, m, d := now.Date()
	day := time.Date(y, m, d, 0, 0, 0, 0, now.Location())
	if strings.HasPrefix(low, "now") {
		t, ok = fromNow(strings.ReplaceAll(low[3:], " ", ""), now)
		return t, none, ok
	}
	if at, ok := parseClock(low); ok {
		return on(day, at), daily, true
	}
	if day, again, ok := parseDay(low, now); ok {
		return day, again, true
	}
	for i := range len(low) { // a day and a time of day
		a, b := low[:i], low[min(i+1, len(low)):]
		switch low[i] {
		case 't', '-':
			if day, again, ok := parseDay(a, now); ok {
				if at, ok := parseClock(b); ok {
					return on(day, at), again, true
				}
			}
		case ' ':
			if at, ok := parseClock(a); ok {
				if day, again, ok := parseDay(b, now); ok {
					return on(day, at), again, true
				}
			}
		}
	}
	return time.Time{}, none, false
}

// on returns a time of a day by the wall clock, regardless of clock changes.
func on(day time.Time, at time.Duration) time.Time {
	y, m, d := day.Date()
	s := int(at / time.Second)
	return time.Date(y, m, d, s/3600, s/60%60, s%60, 0, day.Location())
}

// parseClock reads a time of day as the time since midnight.
func parseClock(s string) (time.Duration, bool) {
	if at, ok := clockWords[s]; ok {
		return at, true
	}
	for _, form := range clockForms {
		if t, err := time.Parse(form, s); err == nil {
			return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second, true
		}
	}
	return 0, false
}

// parseDay reads a day and returns its beginning.
func parseDay(s string, now time.Time) (time.Time, every, bool) {
	y, m, d := now.Date()
	switch s {
	case "today":
		return time.Date(y, m, d, 0, 0, 0, 0, now.Location()), none, true
	case "tomorrow":
		return time.Date(y, m, d+1, 0, 0, 0, 0, now.Location()), none, true
	}
	for _, form := range dayForms {
		if t, err := time.ParseInLocation(form, s, now.Location()); err == nil {
			return t, none, true
		}
	}
	if t, err := time.ParseInLocation("2006/01/02", strconv.Itoa(y)+"/"+s, now.Location()); err == nil {
		return t, yearly, true
	}
	return time.Time{}, none, false
}

// fromNow reads what follows now: "", +2hours, -30 (seconds).
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
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return now, false
	}
	unit := time.Second
	switch s[1+len(digits):] {
	case "", "s", "sec", "secs", "second", "seconds":
	case "m", "min", "mins", "minute", "minutes":
		unit = time.Minute
	case "h", "hr", "hrs", "hour", "hours":
		unit = time.Hour
	case "d", "day", "days":
		unit = 24 * time.Hour
	case "w", "week", "weeks":
		unit = 7 * 24 * time.Hour
	default:
		return now, false
	}
	if int64(n) > int64(maxSpan/unit) {
		return now, false
	}
	return now.Add(sign * time.Duration(n) * unit), true
}

// maxSpan bounds what is added to now: a hundred years.
const maxSpan = 100 * 365 * 24 * time.Hour

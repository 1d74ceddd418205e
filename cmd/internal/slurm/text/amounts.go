package text

import (
	"fmt"
	"strconv"
	"time"
)

// Span formats a duration as squeue does: 0:00, 59:56, 1:00:00, 2-00:00:00.
func Span(d time.Duration) string {
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

// Clock formats a duration as scontrol, sacct and sacctmgr do: 00:00:04, 2-00:00:00.
func Clock(d time.Duration) string {
	s := int64(max(0, d) / time.Second)
	out := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if days := s / 86400; days > 0 {
		out = strconv.FormatInt(days, 10) + "-" + out
	}
	return out
}

// Stamp formats a time as Slurm does, in the zone of t; none for the zero time.
func Stamp(t time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return t.Format("2006-01-02T15:04:05")
}

// Memory formats MiB as Slurm does: 0, 500M, 1G, 1.50G, like its convert
// function, which keeps two digits only where they are significant.
func Memory(mib int64) string {
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

// Mib formats MiB as Slurm does without conversion.
func Mib(n int64) string {
	if n == 0 {
		return "0"
	}
	return strconv.FormatInt(n, 10) + "M"
}

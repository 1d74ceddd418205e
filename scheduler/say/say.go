// Package say puts plans and explanations into words: amounts, times and counts.
package say

import (
	"fmt"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Cores prints thousandths of a core.
func Cores(milli int64) string {
	if milli == 1000 {
		return "1 core"
	}
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) + " cores"
}

// Percent prints thousandths of a GPU.
func Percent(milli int64) string {
	return strconv.FormatFloat(float64(milli)/10, 'f', -1, 64) + " %"
}

// Times prints thousandths of a factor.
func Times(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) }

// About prints a duration approximately, the way people say it.
func About(us int64) string {
	d := time.Duration(us) * time.Microsecond
	switch {
	case d < time.Minute:
		return fmt.Sprintf("~%d s", max(1, int64(d.Round(time.Second)/time.Second)))
	case d < 2*time.Hour:
		return fmt.Sprintf("~%d min", int64(d.Round(time.Minute)/time.Minute))
	case d < 72*time.Hour:
		return fmt.Sprintf("~%d h", int64(d.Round(time.Hour)/time.Hour))
	}
	return fmt.Sprintf("~%d days", int64(d.Round(24*time.Hour)/(24*time.Hour)))
}

// Jobs counts jobs.
func Jobs(n int) string {
	switch n {
	case 0:
		return "no jobs"
	case 1:
		return "1 job"
	}
	return strconv.Itoa(n) + " jobs"
}

// Ordinal returns the ordinal of n, as in 1st, 2nd, 3rd, 4th, 11th.
func Ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// GPUs counts GPUs.
func GPUs(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return strconv.Itoa(n) + " GPUs"
}

// TimeWords says how long j is expected to run on GPUs of gpuType, and the source
// of that.
func TimeWords(j *cluster.Job, gpuType string, us int64) string {
	e, _ := cluster.EstimateFor(j.Estimates, gpuType)
	limit := j.Spec.TimeLimit
	switch {
	case j.Spec.Service != nil && limit <= 0:
		return "runs until it is ended"
	case e.Duration > 0 && (limit <= 0 || e.Duration <= limit):
		return "predicted " + About(us)
	case e.Duration <= 0 && j.Spec.Duration > 0 && (limit <= 0 || j.Spec.Duration <= limit):
		return "expected " + About(us)
	case limit > 0:
		return "limited to " + About(us)
	}
	return "time unknown, " + About(us) + " assumed"
}

// Nodes counts nodes.
func Nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// Clock prints a time of day.
func Clock(t cluster.Time) string { return t.Std().UTC().Format("2006-01-02 15:04:05 MST") }

// FewSwitches says on how few switches a job still waits to start, and for how
// long; "" if any number will do.
func FewSwitches(j *cluster.Job, now cluster.Time) string {
	most, until := j.FewSwitches(now)
	switch most {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(", on one switch for another %s", About(int64(until-now)))
	}
	return fmt.Sprintf(", on at most %d switches for another %s", most, About(int64(until-now)))
}

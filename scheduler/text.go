package scheduler

import (
	"fmt"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// gib prints MiB as GiB with one decimal, and less than one in MiB.
func gib(mib int64) string {
	if mib < 1024 {
		return strconv.FormatInt(mib, 10) + " MiB"
	}
	return strconv.FormatFloat(float64(mib)/1024, 'f', 1, 64) + " GiB"
}

// cores prints thousandths of a core.
func cores(milli int64) string {
	if milli == 1000 {
		return "1 core"
	}
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) + " cores"
}

// percent prints thousandths of a GPU.
func percent(milli int64) string {
	return strconv.FormatFloat(float64(milli)/10, 'f', -1, 64) + " %"
}

// times prints thousandths of a factor.
func times(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) }

// about prints a span the way people say it; it is an estimate anyhow.
func about(us int64) string {
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

// jobs counts jobs.
func jobs(n int) string {
	switch n {
	case 0:
		return "no jobs"
	case 1:
		return "1 job"
	}
	return strconv.Itoa(n) + " jobs"
}

// ordinal is the place of the n-th, as in 1st, 2nd, 3rd, 4th, 11th.
func ordinal(n int) string {
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

// gpus counts GPUs.
func gpus(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return strconv.Itoa(n) + " GPUs"
}

// timeWords says how long j is expected to run on cards of gpuType, and who says so.
func timeWords(j *cluster.Job, gpuType string, us int64) string {
	e, _ := cluster.EstimateFor(j.Estimates, gpuType)
	limit := j.Spec.TimeLimit
	switch {
	case e.Duration > 0 && (limit <= 0 || e.Duration <= limit):
		return "predicted " + about(us)
	case e.Duration <= 0 && j.Spec.Duration > 0 && (limit <= 0 || j.Spec.Duration <= limit):
		return "expected " + about(us)
	case limit > 0:
		return "limited to " + about(us)
	}
	return "time unknown, " + about(us) + " assumed"
}

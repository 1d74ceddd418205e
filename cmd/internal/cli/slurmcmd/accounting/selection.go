package accounting

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// acctStates are the states that sacct knows, long and short.
var acctStates = map[string]string{
	"PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F", "TIMEOUT": "TO",
	"NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF", "DEADLINE": "DL", "OUT_OF_MEMORY": "OOM", "CONFIGURING": "CF",
	"COMPLETING": "CG", "REQUEUED": "RQ", "RESIZING": "RS", "REVOKED": "RV",
}

// stateFilter selects jobs by state. With time bounds it does so, as sacct
// does, by their state within those: one that has since ended was running.
type stateFilter struct {
	codes  []string
	w      window
	within bool
}

func newStateFilter(names string, w window, within bool) (stateFilter, error) {
	f := stateFilter{w: w, within: within}
	for _, name := range option.List(strings.ToUpper(names)) {
		code := acctStates[name]
		for _, short := range acctStates {
			if short == name {
				code = short
			}
		}
		if code == "" {
			return f, text.Message("unrecognized job state value '" + name + "'")
		}
		f.codes = append(f.codes, code)
	}
	return f, nil
}

func (f *stateFilter) wants(j *slurm.Job) bool {
	if len(f.codes) == 0 {
		return true
	}
	return slices.ContainsFunc(f.codes, func(code string) bool {
		switch {
		case !f.within:
			return j.Code == code
		case code == "R":
			return f.overlaps(j.Started, j.Ended)
		case code == "PD":
			until := j.Started
			if until.IsZero() {
				until = j.Ended
			}
			return f.overlaps(j.Eligible, until)
		case j.Ended.IsZero():
			return j.Code == code
		}
		return j.Code == code && (f.w.to.IsZero() || !j.Ended.After(f.w.to))
	})
}

// overlaps reports whether a period, which is still open if its end is zero,
// overlaps the window; what never began does not.
func (f *stateFilter) overlaps(from, to time.Time) bool {
	return !from.IsZero() && (f.w.to.IsZero() || !from.After(f.w.to)) && (to.IsZero() || !to.Before(f.w.from))
}

// span is a range of numbers; the zero span includes all.
type span struct{ least, most int64 }

func (s span) has(n int64) bool { return s == span{} || s.least <= n && n <= s.most }

// spanOf reads 2 and 2-4.
func spanOf(option, typed string) (s span, err error) {
	if typed == "" {
		return s, nil
	}
	from, to, ranged := strings.Cut(typed, "-")
	if !ranged {
		to = from
	}
	var errTo error
	s.least, err = strconv.ParseInt(from, 10, 32)
	s.most, errTo = strconv.ParseInt(to, 10, 32)
	if err != nil || errTo != nil || s.least < 0 || s.most < s.least {
		return s, text.Message("Invalid range for " + option + ": " + console.Escape(typed) + "; write 2 or 2-4")
	}
	return s, nil
}

// ranges reads -i, -I, -k and -K.
func (o *acctOptions) ranges() (out [3]span, err error) {
	if out[0], err = spanOf("--nnodes", o.counts); err != nil {
		return out, err
	}
	if out[1], err = spanOf("--ncpus", o.cpus); err != nil || o.least == "" && o.most == "" {
		return out, err
	}
	if o.least == "" {
		return out, text.Message("Can't use -K without -k")
	}
	least, _, err := sbatch.ParseTime(o.least)
	if err != nil {
		return out, fmt.Errorf("--timelimit-min: %w", err)
	}
	most := least
	if o.most != "" {
		if most, _, err = sbatch.ParseTime(o.most); err != nil {
			return out, fmt.Errorf("--timelimit-max: %w", err)
		}
	}
	out[2] = span{int64(least / time.Second), int64(most / time.Second)}
	return out, nil
}

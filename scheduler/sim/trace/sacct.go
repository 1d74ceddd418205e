package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim"
)

// slurmTime is how sacct writes times; it names no zone.
const slurmTime = "2006-01-02T15:04:05"

// readSacct reads `sacct -P` with JobID, Submit, Start and End among its
// fields, and better also AllocTRES or ReqTRES, User, Account, Partition and
// State. Steps, and jobs that never ran or still do, are left out.
func readSacct(t *table, _ *Options) (sim.Job, error) {
	j := sim.Job{ID: t.text("jobid"), User: t.text("user", "uid"), Group: t.text("account", "partition")}
	if strings.Contains(j.ID, ".") {
		return j, fmt.Errorf("a step of a job: %w", errSkip)
	}
	if st := t.text("state"); st == "PENDING" || st == "RUNNING" || st == "SUSPENDED" {
		return j, fmt.Errorf("state %s: %w", st, errSkip)
	}
	var at [3]time.Time
	for i, name := range []string{"submit", "start", "end"} {
		v := t.text(name)
		if v == "" || v == "Unknown" || v == "None" {
			return j, fmt.Errorf("%s is %q: %w", name, v, errSkip)
		}
		x, err := time.Parse(slurmTime, v)
		if err != nil {
			return j, fmt.Errorf("%s: %.40q is no time of the form %s", name, v, slurmTime)
		}
		at[i] = x
	}
	if y := at[0].Year(); y < 1980 || y > 2200 {
		return j, fmt.Errorf("submit: year %d is outside 1980 to 2200", y)
	}
	j.Submit, j.Duration = at[0].Sub(slurmEpoch()), at[2].Sub(at[1])
	tres := t.text("alloctres")
	if tres == "" {
		tres = t.text("reqtres")
	}
	if err := readTRES(tres, &j); err != nil {
		return j, err
	}
	return j, nil
}

// slurmEpoch makes times of submit spans.
func slurmEpoch() time.Time { return time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC) }

// readTRES reads "billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G".
func readTRES(s string, j *sim.Job) error {
	for part := range strings.SplitSeq(s, ",") {
		key, val, ok := strings.Cut(part, "=")
		if !ok {
			continue
		}
		switch {
		case key == "cpu":
			n, err := strconv.ParseInt(val, 10, 32)
			if err != nil || n < 0 {
				return fmt.Errorf("alloctres: cpu=%.20q is no number of cores", val)
			}
			j.CPUMilli = n * 1000
		case key == "mem":
			n, err := slurmMiB(val)
			if err != nil {
				return err
			}
			j.HostMemMiB = n
		case key == "gres/gpu":
			n, err := strconv.ParseInt(val, 10, 32)
			if err != nil || n < 0 || n > 1<<16 {
				return fmt.Errorf("alloctres: gres/gpu=%.20q is no number of GPUs", val)
			}
			j.GPUs = int(n)
		case strings.HasPrefix(key, "gres/gpu:"):
			j.Types = []string{strings.Clone(strings.TrimPrefix(key, "gres/gpu:"))}
		}
	}
	return nil
}

// slurmMiB reads "64G", "512M", "1.5T"; without a unit it is MiB.
func slurmMiB(s string) (int64, error) {
	unit := 1.0
	if s != "" {
		switch s[len(s)-1] {
		case 'K':
			unit = 1.0 / 1024
		case 'G':
			unit = 1024
		case 'T':
			unit = 1 << 20
		}
	}
	x, err := strconv.ParseFloat(strings.TrimRight(s, "KMGT"), 64)
	if err != nil || !(x >= 0 && x*unit < 1<<40) {
		return 0, fmt.Errorf("alloctres: mem=%.20q is no amount of memory", s)
	}
	return int64(x * unit), nil
}

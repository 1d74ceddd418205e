package trace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// slurmTime is sacct's time format; it has no zone.
const slurmTime = "2006-01-02T15:04:05"

// readSacct reads `sacct -P` with JobID, Submit, and Start and End or Elapsed
// among its fields, and better also AllocTRES or ReqTRES, User, Account,
// Partition and State. Steps, and jobs that never ran or still do, are left out.
func readSacct(t *table, _ *Options) (workload.Job, error) {
	j := workload.Job{ID: t.text("jobid"), User: t.text("user", "uid"), Group: t.text("account", "partition")}
	if strings.Contains(j.ID, ".") {
		return j, fmt.Errorf("a step of a job: %w", errSkip)
	}
	if st := t.text("state"); st == "PENDING" || st == "RUNNING" || st == "SUSPENDED" || st == "REQUEUED" || st == "RESIZING" {
		return j, fmt.Errorf("state %s: %w", st, errSkip)
	}
	submit, ok, err := slurmMoment(t, "submit")
	if err != nil || !ok {
		return j, errors.Join(err, notRun("submit", ok))
	}
	if y := submit.Year(); y < 1980 || y > 2200 {
		return j, fmt.Errorf("submit: year %d is outside 1980 to 2200", y)
	}
	j.Submit = submit.Sub(slurmEpoch())
	if j.Duration, err = slurmRun(t); err != nil {
		return j, err
	}
	if _, err := slurmSpan(t.text("timelimit")); err != nil {
		return j, fmt.Errorf("timelimit: %w", err)
	}
	return j, slurmResources(t, &j)
}

func notRun(name string, ok bool) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s is unknown: %w", name, errSkip)
}

// slurmMoment reads a time; false if Slurm does not know it.
func slurmMoment(t *table, name string) (time.Time, bool, error) {
	v := t.text(name)
	if v == "" || v == "Unknown" || v == "None" {
		return time.Time{}, false, nil
	}
	x, err := time.Parse(slurmTime, v)
	if err != nil {
		return x, false, fmt.Errorf("%s: %.40q is no time of the form %s", name, v, slurmTime)
	}
	return x, true, nil
}

// slurmRun returns how long a job ran: from start to end, or by Elapsed.
func slurmRun(t *table) (time.Duration, error) {
	if t.has("start", "end") {
		start, began, err := slurmMoment(t, "start")
		end, ended, err2 := slurmMoment(t, "end")
		if err := errors.Join(err, err2); err != nil {
			return 0, err
		}
		if began && ended {
			return end.Sub(start), nil
		}
		return 0, notRun("start or end", false)
	}
	if t.has("elapsedraw") {
		return t.span(time.Second, "elapsedraw")
	}
	d, err := slurmSpan(t.text("elapsed"))
	if err != nil {
		return 0, fmt.Errorf("elapsed: %w", err)
	}
	return d, nil
}

// slurmSpan reads "1-02:03:04", "02:03:04", "03:04" or minutes; UNLIMITED and
// Partition_Limit are 0, for none.
func slurmSpan(s string) (time.Duration, error) {
	switch strings.ToUpper(s) {
	case "", "UNLIMITED", "PARTITION_LIMIT", "INFINITE", "INVALID":
		return 0, nil
	}
	rest, days := s, 0
	d, after, dated := strings.Cut(s, "-")
	if dated {
		n, err := strconv.Atoi(d)
		if err != nil || n < 0 || n > 36500 {
			return 0, fmt.Errorf("%.40q is no span of the form 1-02:03:04", s)
		}
		days, rest = n, after
	}
	parts := strings.Split(rest, ":")
	if len(parts) == 1 && !dated {
		parts = []string{"0", parts[0], "0"} // minutes
	}
	if len(parts) == 2 && !dated {
		parts = append([]string{"0"}, parts...)
	}
	total := 0
	for i, p := range parts {
		p, _, _ = strings.Cut(p, ".") // fractions of a second
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > 10_000_000 || i > 2 {
			return 0, fmt.Errorf("%.40q is no span of the form 1-02:03:04", s)
		}
		total += n * []int{3600, 60, 1}[i]
	}
	return time.Duration(days)*24*time.Hour + time.Duration(total)*time.Second, nil
}

// slurmResources reads what a job was given, otherwise what it asked for.
func slurmResources(t *table, j *workload.Job) error {
	tres := t.text("alloctres")
	if tres == "" {
		tres = t.text("reqtres")
	}
	if err := readTRES(tres, j); err != nil {
		return err
	}
	if j.GPUs == 0 {
		if err := readGres(t.text("allocgres", "reqgres", "allocgpus"), j); err != nil {
			return err
		}
	}
	if j.CPUMilli == 0 {
		n, err := t.between(0, 1<<31, "alloccpus", "ncpus", "reqcpus")
		if err != nil {
			return err
		}
		j.CPUMilli = int64(n) * 1000
	}
	return nil
}

// readGres reads "gpu:a100:2", "gpu:2", or a number, as older versions write
// them for each job.
func readGres(s string, j *workload.Job) error {
	for part := range strings.SplitSeq(s, ",") {
		f := strings.Split(part, ":")
		if len(f) == 1 && f[0] != "" && f[0][0] >= '0' && f[0][0] <= '9' {
			f = []string{"gpu", f[0]}
		}
		if f[0] != "gpu" && f[0] != "gres/gpu" {
			continue
		}
		n := 1
		if last := f[len(f)-1]; len(f) > 1 {
			x, err := strconv.Atoi(last)
			if err != nil || x < 0 || x > 1<<16 {
				return fmt.Errorf("allocgres: %.40q is no number of GPUs", part)
			}
			n = x
		}
		if len(f) == 3 {
			j.Types = []string{strings.Clone(f[1])}
		}
		j.GPUs += n
	}
	return nil
}

// slurmEpoch returns the origin of submit times.
func slurmEpoch() time.Time { return time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC) }

// readTRES reads "billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G".
func readTRES(s string, j *workload.Job) error {
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

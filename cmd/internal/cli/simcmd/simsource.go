package simcmd

import (
	"context"
	"fmt"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// simSource is where the jobs of a simulation come from.
type simSource struct {
	w   *workload.Workload
	rep trace.Report
	// fleet is the cluster of a capture, nil for traces; why says so.
	fleet *workload.Fleet
	why   string
	// actual is what really happened to the jobs, if known.
	actual *actualView
}

// key returns the part that determines which jobs are read, so that settings
// of a sweep that differ in something else read them once.
func (o *simWorld) key() simWorld {
	return simWorld{
		trace: o.trace, mix: o.mix, capture: o.capture, last: o.last, colocation: o.colocation, strict: o.strict, since: o.since, until: o.until, maxJobs: o.maxJobs,
	}
}

// source reads the jobs from the source that the flags select.
func (o *simWorld) source(ctx context.Context, e *console.Env, c *client.Client, have map[simWorld]*simSource) (*simSource, error) {
	switch {
	case o.trace == "" && o.capture == "" && o.last == "":
		return nil, console.Usagef("--trace is missing; name a file or folder with a trace, or give --capture or --last")
	case o.trace != "" && (o.capture != "" || o.last != ""):
		return nil, console.Usagef("--trace: cannot be combined with --capture or --last")
	}
	if s, ok := have[o.key()]; ok {
		return s, nil
	}
	var s *simSource
	var err error
	switch {
	case o.capture != "":
		s, err = o.fromCapture()
	case o.last != "":
		s, err = o.fromLast(ctx, e, c)
	default:
		s, err = o.fromTrace(e)
	}
	if err != nil {
		return nil, err
	}
	have[o.key()] = s
	return s, nil
}

// fromTrace reads a trace and reports on standard error what was left out.
func (o *simWorld) fromTrace(e *console.Env) (*simSource, error) {
	opt := trace.Options{Mix: o.mix, Strict: o.strict, Since: o.since, Until: o.until, MaxJobs: o.maxJobs}
	if o.colocation != "" {
		steps, err := trace.LoadSteps(o.colocation)
		if err != nil {
			return nil, fmt.Errorf("--colocation: %w", err)
		}
		opt.StepsPerSecond = steps
	}
	w, rep, err := trace.Load(o.trace, opt)
	if err != nil {
		return nil, notFoundIfMissing(fmt.Errorf("--trace: %w", err))
	}
	if rep.Skipped > 0 {
		e.Warnf("%d of %d rows gave no job; the first: %s row %d: %s", rep.Skipped, rep.Rows, rep.Bad[0].File, rep.Bad[0].Row, rep.Bad[0].Err)
	}
	return &simSource{w: w, rep: rep}, nil
}

// within drops the jobs that are wider than the cluster, and reports them by
// row; strict makes the first an error.
func (s *simSource) within(e *console.Env, f *workload.Fleet, strict bool) (*simSource, error) {
	widest, cut := f.Holds(), 0
	out := *s
	for i := range s.w.Jobs {
		j := &s.w.Jobs[i]
		if j.GPUs <= widest {
			continue
		}
		why := fmt.Sprintf("job %s: wants %d GPUs, but the cluster gives a job at most %d", j.ID, j.GPUs, widest)
		if strict {
			return nil, fmt.Errorf("%s: row %d: %s", s.w.Name, j.Row, why)
		}
		if cut++; cut == 1 {
			e.Warnf("row %d: %s; left out", j.Row, why)
		}
		out.rep.Skip(s.w.Name, j.Row, why)
	}
	if cut == 0 {
		return s, nil
	}
	w := *s.w
	w.Jobs = nil
	for _, j := range s.w.Jobs {
		if j.GPUs <= widest {
			w.Jobs = append(w.Jobs, j)
		}
	}
	out.w = &w
	out.rep.Jobs = len(w.Jobs)
	if len(w.Jobs) == 0 {
		return nil, fmt.Errorf("no job fits into the cluster: all %d want more than %d GPUs", cut, widest)
	}
	return &out, nil
}

package jobcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// againAfter is how soon a wait looks again when news and listing disagree,
// as they do for a moment while an array changes.
const againAfter = time.Second

// maxBlamed is how many failed tasks of one array are named.
const maxBlamed = 10

// waiter waits for jobs and whole arrays.
type waiter struct {
	env *console.Env
	c   *client.Client
	// jobs are the awaited jobs; with any, one of them is enough.
	jobs client.JobRefs
	any  bool

	// entries are the jobs, and the tasks of arrays that are listed as one, by
	// id; those of arrays also by array, and the open ones among these.
	entries map[uint64]*apiv1.Job
	tasks   map[uint64][]uint64
	open    map[uint64]map[uint64]struct{}
	// line shows their status on a terminal.
	line *console.Progress
}

// run waits until all, or one, have ended. A limit of 0 means none.
func (w *waiter) run(ctx context.Context, limit time.Duration) error {
	w.line = console.NewProgress(w.env)
	defer w.line.Clear()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errWaitTimeout)
		defer cancel()
	}
	for first := true; ; first = false {
		if err := w.list(ctx, first); err != nil {
			return w.failed(err, limit)
		}
		if !w.enough() {
			w.show(ctx)
			err := w.c.WatchBrief(ctx, w.jobs.IDs(), func(news []*apiv1.Job) bool {
				over := w.see(news)
				if !over && len(news) > 0 {
					w.show(ctx)
				}
				return over
			})
			if err != nil {
				return w.failed(err, limit)
			}
		}
		w.line.Clear()
		ended, err := w.ended(ctx)
		switch {
		case err != nil:
			return w.failed(err, limit)
		case w.any && len(ended) > 0:
			w.env.Printf("%s\n", ended[0])
			return w.verdict(ended[:1])
		case len(ended) == len(w.jobs):
			return w.verdict(ended)
		}
		if !wait.Sleep(ctx, againAfter) {
			return w.failed(context.Cause(ctx), limit)
		}
	}
}

// list rereads everything.
func (w *waiter) list(ctx context.Context, first bool) error {
	req := &apiv1.ListJobsRequest{Ids: w.jobs.IDs(), Finished: true, Brief: true}
	jobs, err := client.ListJobs(ctx, w.c, req)
	if err != nil {
		return err
	}
	if first {
		if err := w.jobs.Missing(jobs); err != nil {
			return err
		}
	}
	w.entries, w.tasks, w.open = map[uint64]*apiv1.Job{}, map[uint64][]uint64{}, map[uint64]map[uint64]struct{}{}
	w.see(jobs)
	return nil
}

// see takes in news and reports whether to look closer.
func (w *waiter) see(news []*apiv1.Job) bool {
	for _, j := range news {
		id, array := j.GetId(), j.GetArrayJobId()
		_, known := w.entries[id]
		w.entries[id] = j
		if array == 0 {
			continue
		}
		if !known {
			w.tasks[array] = append(w.tasks[array], id)
		}
		if w.open[array] == nil {
			w.open[array] = map[uint64]struct{}{}
		}
		if console.Terminal(j.GetState()) {
			delete(w.open[array], id)
		} else {
			w.open[array][id] = struct{}{}
		}
	}
	return w.enough()
}

// enough reports whether the awaited end seems to have come.
func (w *waiter) enough() bool {
	if w.any {
		return slices.ContainsFunc(w.jobs, w.seemsOver)
	}
	return !slices.ContainsFunc(w.jobs, func(r client.JobRef) bool { return !w.seemsOver(r) })
}

// all reports whether a job is an array that is awaited as a whole.
func (w *waiter) all(r client.JobRef) bool { return r.Array == 0 && len(w.tasks[r.ID]) > 0 }

// seemsOver reports whether a known job or a whole array has ended. For the
// own id of a task that is listed with others it may report true too early,
// never too late.
func (w *waiter) seemsOver(r client.JobRef) bool {
	if w.all(r) {
		return len(w.open[r.ID]) == 0
	}
	return console.Terminal(w.entry(r).GetState())
}

// entry returns what is known of a job that is no array: by itself, or with
// others, preferably those that have ended.
func (w *waiter) entry(r client.JobRef) (found *apiv1.Job) {
	if j := w.entries[r.ID]; j != nil && j.GetArrayCount() < 2 {
		return j
	}
	for _, j := range w.entries {
		if r.Of(j) && (found == nil || console.Terminal(j.GetState())) {
			found = j
		}
	}
	return found
}

// ended returns the jobs that have certainly ended, in the order given. Their
// last tasks are known then, too.
func (w *waiter) ended(ctx context.Context) (out client.JobRefs, err error) {
	for _, r := range w.jobs {
		if !w.seemsOver(r) {
			continue
		}
		over, err := w.surelyOver(ctx, r)
		if err != nil {
			return nil, err
		}
		if over {
			out = append(out, r)
		}
	}
	return out, nil
}

func (w *waiter) surelyOver(ctx context.Context, r client.JobRef) (bool, error) {
	whole := w.all(r)
	if !whole && (r.Array != 0 || w.entry(r).GetArrayCount() < 2) {
		return true, nil
	}
	j, err := w.c.GetJob(ctx, r.ID)
	if err != nil {
		return false, err
	}
	if !whole {
		w.entries[r.ID] = j
		return console.Terminal(j.GetState()), nil
	}
	a := j.GetArray()
	if a.GetEnded() < a.GetSize() {
		return false, nil
	}
	if w.counted(r.ID) < a.GetSize() { // tasks changed while they were listed
		if err := w.list(ctx, false); err != nil {
			return false, err
		}
	}
	if w.counted(r.ID) < a.GetSize() {
		req := &apiv1.ListHistoryRequest{Filter: &apiv1.HistoryFilter{Ids: []uint64{r.ID}}}
		_, err = client.ListHistory(ctx, w.c, req, func(jobs []*apiv1.Job) error {
			w.see(slices.DeleteFunc(jobs, func(j *apiv1.Job) bool { return w.entries[j.GetId()] != nil }))
			return nil
		})
	}
	return true, err
}

// counted returns how many tasks of an array are known here.
func (w *waiter) counted(array uint64) (n uint32) {
	for _, id := range w.tasks[array] {
		n += max(1, w.entries[id].GetArrayCount())
	}
	return n
}

// verdict names the jobs that did not exit with 0, and returns the exit code
// of the first of them; an array's is the highest of its tasks.
func (w *waiter) verdict(jobs client.JobRefs) error {
	code := 0
	for _, r := range jobs {
		worst := 0
		if w.all(r) {
			worst = w.blameArray(r.ID, w.tasks[r.ID])
		} else {
			j := w.entry(r)
			worst = jobExitCode(j)
			w.blame(r.String(), j)
		}
		code = cmp.Or(code, worst)
	}
	if code != 0 {
		return &console.ExitError{Code: code}
	}
	return nil
}

func (w *waiter) blameArray(array uint64, tasks []uint64) (worst int) {
	bad, said := uint32(0), 0
	slices.Sort(tasks)
	for _, id := range tasks {
		j := w.entries[id]
		n := jobExitCode(j)
		if n == 0 {
			continue
		}
		worst, bad = max(worst, n), bad+max(1, j.GetArrayCount())
		if said++; said <= maxBlamed {
			w.blame(client.JobLabel(j), j)
		}
	}
	if said > maxBlamed {
		w.env.Warnf("array %d: %d tasks failed; showing the first; all: berth history %d", array, bad, array)
	}
	return worst
}

func (w *waiter) blame(name string, j *apiv1.Job) {
	if jobExitCode(j) == 0 {
		return
	}
	x := exitText(j.ExitCode, j.GetSignal())
	if x != "" {
		x = ", " + x
	}
	w.env.Warnf("job %s: %s%s%s", name, j.GetState(), x, console.Escape(endReason(j)))
}

// failed says, when the time was up, which jobs have not ended.
func (w *waiter) failed(err error, limit time.Duration) error {
	w.line.Clear()
	if !errors.Is(err, errWaitTimeout) {
		w.left(err)
		return err
	}
	var open client.JobRefs
	for _, r := range w.jobs {
		if !w.seemsOver(r) {
			open = append(open, r)
		}
	}
	return &cluster.Error{Code: cluster.CodeUnknown, Msg: fmt.Sprintf("not ended after %s: %s\nContinue with: berth wait %s", limit, open, open)}
}

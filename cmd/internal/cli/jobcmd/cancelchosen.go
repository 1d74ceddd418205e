package jobcmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// cancelOptions select jobs to end.
type cancelOptions struct {
	me, all, yes              bool
	names, states, partitions string
}

func (o *cancelOptions) chooses() bool {
	return o.me || o.all || o.names != "" || o.states != "" || o.partitions != ""
}

// request returns the listing of the selected jobs: those of me, unless all are meant.
func (o *cancelOptions) request(me string) (*apiv1.ListJobsRequest, error) {
	if o.me && o.all {
		return nil, console.Usagef("--me and --all: give only one of them")
	}
	req := &apiv1.ListJobsRequest{Names: words(o.names), Partitions: words(o.partitions)}
	if !o.all {
		if me == "" {
			return nil, console.Usagef("your user name is not known; name the jobs")
		}
		req.Users = []string{me}
	}
	var err error
	if req.States, err = parseStates(o.states); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(req.States, console.Terminal); i >= 0 {
		return nil, console.Usagef("--state %s: such jobs have already ended", req.States[i])
	}
	return req, nil
}

// words splits at commas and drops empty words.
func words(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(s string) bool { return s == "" })
}

// mostLines is how many jobs are reported one by one.
const mostLines = 20

// cancelChosen ends the jobs that o selects. Jobs of other users come first,
// so that a user who may not end them ends none.
func cancelChosen(ctx context.Context, e *console.Env, c *client.Client, o *cancelOptions) error {
	me := e.User()
	req, err := o.request(me)
	if err != nil {
		return err
	}
	jobs, err := client.ListBrief(ctx, c, req)
	if err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(j *apiv1.Job) bool { return console.Terminal(j.GetState()) })
	if len(jobs) == 0 {
		e.Warnf("no matching job is waiting or running; nothing was done")
		return nil
	}
	var own, others []*apiv1.Job
	for _, j := range jobs {
		if j.GetUser() == me || strconv.FormatUint(uint64(j.GetUid()), 10) == me {
			own = append(own, j)
		} else {
			others = append(others, j)
		}
	}
	if o.all {
		question := fmt.Sprintf("Cancel %s, of which %d belong to others?", console.Plural(countOf(jobs), "job", "jobs"), countOf(others))
		if err := console.Confirm(e, o.yes, question); err != nil {
			return err
		}
	}
	t := tally{each: len(jobs) <= mostLines}
	if err = t.end(ctx, e, c, others); err == nil {
		err = t.end(ctx, e, c, own)
	}
	if !t.each && t.ended > 0 {
		e.Printf("%s cancelled\n", console.Plural(t.ended, "job", "jobs"))
	}
	switch {
	case err != nil:
		return console.UnknownChange(err, "Repeating this is safe.")
	case t.code != console.ExitDone:
		return &console.ExitError{Code: t.code}
	}
	return nil
}

// countOf counts tasks that are listed as one individually.
func countOf(jobs []*apiv1.Job) int {
	n := 0
	for _, j := range jobs {
		n += int(max(1, j.GetArrayCount()))
	}
	return n
}

// tally counts what became of the selected jobs.
type tally struct {
	each  bool // report each job, not only those that were not ended
	ended int
	code  int
}

// end ends jobs, some of which stand for several tasks of an array. It stops
// if none may be ended.
func (t *tally) end(ctx context.Context, e *console.Env, c *client.Client, jobs []*apiv1.Job) error {
	ids, tasks := client.Named(jobs)
	return console.Batches(ids, tasks, func(ids []uint64, tasks []console.TaskRef) error {
		results, err := cancelBatch(ctx, e, c, ids, tasks)
		if err != nil {
			return err
		}
		denied := 0
		var tell []*apiv1.CancelResult
		for _, r := range results {
			switch r.GetOutcome() {
			case apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED:
				t.ended += int(max(1, r.GetCount()))
				if !t.each {
					continue
				}
			case apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED:
				denied++
			}
			tell = append(tell, r)
		}
		if denied > 0 && denied == len(results) && t.ended == 0 {
			return cluster.Errorf(cluster.CodeDenied, "only administrators may cancel the jobs of others; nothing was done. berth cancel --me cancels all of yours")
		}
		t.code = worse(t.code, printCancelled(e, tell))
		return nil
	})
}

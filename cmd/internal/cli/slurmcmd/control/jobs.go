package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// slurmFault returns scontrol 22.05's words for a failure.
func slurmFault(r *apiv1.ControlResult) string {
	switch r.GetFault() {
	case "NOT_FOUND":
		return "Invalid job id specified"
	case "DENIED":
		return "Access/permission denied"
	}
	switch {
	case strings.Contains(r.GetMessage(), "waits already"):
		return "Job is pending execution"
	case strings.Contains(r.GetMessage(), "has ended"):
		return "Job has already finished"
	}
	return r.GetMessage()
}

// scontrolActions are scontrol's words for actions on jobs.
var scontrolActions = map[string]apiv1.JobAction{
	"hold": apiv1.JobAction_JOB_ACTION_HOLD, "uhold": apiv1.JobAction_JOB_ACTION_HOLD, "holdu": apiv1.JobAction_JOB_ACTION_HOLD,
	"release": apiv1.JobAction_JOB_ACTION_RELEASE, "requeue": apiv1.JobAction_JOB_ACTION_REQUEUE, "requeuehold": apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD,
}

// jobsAndTasks reads what scancel and scontrol accept as jobs: ids, and tasks
// of arrays in any of Slurm's forms. A step is refused: it is not a job, and
// its job is not meant.
func jobsAndTasks(s string) ([]uint64, []console.TaskRef, error) {
	if strings.Contains(s, ".") {
		return nil, nil, fmt.Errorf("%s: a step cannot be chosen", s)
	}
	return console.ParseJobs([]string{s})
}

// runScontrolJobs acts on jobs as scontrol does: silently, with one line per failure.
func runScontrolJobs(ctx context.Context, e *console.Env, c *client.Client, word string, args []string) error {
	faults, err := controlJobs(ctx, e, c, word, args)
	if err != nil || len(faults) == 0 {
		return err
	}
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.line)
		if word != "requeue" && word != "requeuehold" {
			lines = append(lines, "slurm_suspend error: "+f.words)
		}
	}
	return option.Bare(strings.Join(lines, "\n"))
}

// jobFault is a failed action on a job: Slurm's words alone, and with the job.
type jobFault struct{ words, line string }

// controlJobs performs the action, and returns the failures.
func controlJobs(ctx context.Context, e *console.Env, c *client.Client, word string, args []string) ([]jobFault, error) {
	if len(args) == 0 {
		return nil, option.Bare("too few arguments for keyword:" + word)
	}
	req := &apiv1.ControlJobsRequest{Action: scontrolActions[word], AsUser: word == "uhold" || word == "holdu"}
	var tasks []console.TaskRef
	for _, a := range args {
		ids, of, err := jobsAndTasks(strings.TrimPrefix(strings.ToLower(a), "jobid="))
		if err != nil {
			return nil, option.Bare(fmt.Sprintf("Invalid job id specified for job %s\nslurm_suspend error: Invalid job id specified", a))
		}
		req.Ids, tasks = append(req.Ids, ids...), append(tasks, of...)
	}
	if n := len(req.Ids) + len(tasks); n > console.MaxIDs {
		return nil, option.Bare(fmt.Sprintf("%d jobs and lists of tasks, at most %d at once", n, console.MaxIDs))
	}
	req.Tasks = client.ArrayTasks(tasks)
	results, err := client.Control(ctx, e, c, req)
	if err != nil {
		return nil, console.UnknownChange(err, "Repeating this is safe.")
	}
	var faults []jobFault
	for _, r := range results {
		if r.GetFault() != "" {
			fault := slurmFault(r)
			line := fmt.Sprintf("%s for job %s", fault, console.JobOrTasks(r.GetId(), r.GetTasks()))
			if strings.Contains(r.GetMessage(), "submit it again") { // Slurm would rerun it
				line += "\nscontrol: error: " + r.GetMessage()
			}
			faults = append(faults, jobFault{fault, line})
		}
	}
	return faults, nil
}

var errNoAction = errors.New("name a command: show, hold, uhold, release, requeue, requeuehold, top, wait_job, update, create, delete, ping, version")

// showSlurmJobs is scontrol show job.
func showSlurmJobs(ctx context.Context, e *console.Env, c *client.Client, r *recordOptions, args []string) error {
	ids, tasks, err := terms.ParseJobs(strings.Join(args, ","))
	if err != nil {
		return option.Bare("scontrol_print_job error: Invalid job id specified")
	}
	asked := terms.IDs(ids, tasks)
	got, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Ids: asked, Finished: true})
	switch {
	case err != nil:
		return err
	case len(got) == 0 && len(asked) > 0:
		return terms.ErrJob
	case r.json:
		v := terms.ViewFrom(e)
		jobs := make([]slurm.Job, len(got))
		for i, j := range got {
			jobs[i] = terms.Job(v, j)
		}
		if jobs, err = terms.OnlyTasks(jobs, ids, tasks); err != nil {
			return err
		}
		if err := terms.ExpectStarts(ctx, e, c, jobs, terms.FewStarts); err != nil {
			return err
		}
		return terms.PrintJobs(e, jobs)
	case len(got) == 0:
		e.Printf("No jobs in the system\n")
		return nil
	}
	jobs, v := make([]slurm.Job, 0, len(got)), terms.ViewFrom(e)
	for _, j := range got {
		if len(tasks) == 1 && len(ids) == 0 && j.GetArrayCount() > 1 {
			if n, err := strconv.ParseUint(tasks[0].Tasks, 10, 32); err == nil { // its files are named after it
				s := terms.Job(v, &apiv1.Job{Id: j.GetId(), ArrayJobId: j.GetArrayJobId(), ArrayTaskId: new(uint32(n)), Spec: j.GetSpec(), Name: j.GetName(), User: j.GetUser()})
				whole := terms.Job(v, j)
				whole.Stdin, whole.Stdout, whole.Stderr = s.Stdin, s.Stdout, s.Stderr
				jobs = append(jobs, whole)
				continue
			}
		}
		jobs = append(jobs, terms.Job(v, j))
	}
	if jobs, err = terms.OnlyTasks(jobs, ids, tasks); err != nil {
		return err
	}
	if len(jobs) == 0 {
		return option.Bare(fmt.Sprintf("Job %s not found", tasks[0]))
	}
	jobs = terms.Folded(jobs)
	if err := terms.ExpectStarts(ctx, e, c, jobs, terms.FewStarts); err != nil {
		return err
	}
	return terms.PrintRecords(e.Out, &r.Record, jobs, len(asked) > 0)
}

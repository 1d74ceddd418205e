package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// mostStepBack is the most jobs that scontrol top moves back: each is a
// separate change.
const mostStepBack = 200

// forJob returns scontrol's message for a failed action on a job.
func forJob(fault string, id uint64) option.Bare {
	return option.Bare(fmt.Sprintf("%s for job %d", fault, id))
}

// runScontrolTop moves jobs before all others of the same user, partition,
// account and QOS: those ahead of them move back behind. So no other user's
// job moves, and users may do it.
func runScontrolTop(ctx context.Context, e *console.Env, c *client.Client, args []string) error {
	if len(args) == 0 {
		return option.Bare("too few arguments for keyword:top")
	}
	ids, err := option.JobNumbers(strings.Join(args, ","), "Invalid job id specified for job %s")
	if err != nil {
		return option.Bare(err.Error())
	}
	for _, id := range slices.Backward(ids) { // the first named ends up first
		if err := top(ctx, e, c, id); err != nil {
			return err
		}
	}
	return nil
}

func top(ctx context.Context, e *console.Env, c *client.Client, id uint64) error {
	job, err := oneJob(ctx, c, id)
	if err != nil {
		return err
	}
	if job == nil {
		return forJob("Invalid job id specified", id)
	}
	switch s := terms.Job(terms.ViewFrom(e), job); {
	case s.ArrayID != 0:
		return option.Bare(fmt.Sprintf("Requested operation is presently disabled for job %d\nit is a job array, whose tasks keep their places; lower the priority of other jobs with scontrol update jobid=… nice=N", id))
	case s.Code != "PD":
		return forJob("Job is no longer pending execution", id)
	case terms.IsHeld(s.Reason):
		return forJob("Job is in held state, pending scheduler release", id)
	}
	others, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Users: []string{job.GetUser()}, States: terms.States([]string{"PENDING"}), Brief: true})
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, func(o *apiv1.Job) bool {
		return o.GetId() == job.GetId() || o.GetArrayJobId() != 0 || o.GetUid() != job.GetUid() || o.GetPartition() != job.GetPartition() || o.GetAccount() != job.GetAccount() || o.GetQos() != job.GetQos()
	})
	if len(others) >= client.MostForecasts {
		return option.Bare(fmt.Sprintf("Requested operation is presently disabled for job %d\n%d other jobs of the user wait, at most %d are compared; lower the priority of some with scontrol update jobid=… nice=N", id, len(others), client.MostForecasts-1))
	}
	return stepBack(ctx, e, c, job, others)
}

// stepBack raises the nice value of those of others that are ahead of job, by
// the number of places that they are ahead, plus one.
func stepBack(ctx context.Context, e *console.Env, c *client.Client, job *apiv1.Job, others []*apiv1.Job) error {
	ids := []uint64{job.GetId()}
	for _, o := range others {
		ids = append(ids, o.GetId())
	}
	places, err := client.Forecasts(ctx, c, ids)
	if err != nil {
		return err
	}
	at := func(j *apiv1.Job) int64 { return int64(places[j.GetId()].GetForecast().GetAhead()) }
	before := func(o *apiv1.Job) bool { // forecasts count alike within a queue
		return at(o) < at(job) || at(o) == at(job) && o.GetId() < job.GetId()
	}
	others = slices.DeleteFunc(others, func(o *apiv1.Job) bool { return places[o.GetId()] == nil || !before(o) })
	if n := len(others); n > mostStepBack {
		return option.Bare(fmt.Sprintf("Requested operation is presently disabled for job %d\n%d jobs of the user are ahead of it, at most %d are lowered at once; use scontrol update jobid=… nice=N by hand", job.GetId(), n, mostStepBack))
	}
	slices.SortFunc(others, func(a, b *apiv1.Job) int { return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.GetId(), b.GetId())) })
	for i, o := range others {
		places := max(at(job)-at(o), int64(len(others)-i)) // at least one for each of them
		nice := int32(min(int64(o.GetNice())+places+1, cluster.MaxNice))
		if _, err := client.UpdateJob(ctx, c, &apiv1.UpdateJobRequest{Id: o.GetId(), Nice: &nice}); err != nil {
			return updateFault(err, o.GetId())
		}
	}
	return leaveQueues(ctx, e, c, others)
}

// leaveQueues returns jobs from the queue of a GPU, where their places are
// fixed, to the common order: they are held for a moment.
func leaveQueues(ctx context.Context, e *console.Env, c *client.Client, jobs []*apiv1.Job) error {
	var queued []uint64
	for _, j := range jobs {
		if j.GetState() == cluster.JobQueued.String() {
			queued = append(queued, j.GetId())
		}
	}
	if len(queued) == 0 {
		return nil
	}
	held, err := client.Control(ctx, e, c, &apiv1.ControlJobsRequest{Action: apiv1.JobAction_JOB_ACTION_HOLD, AsUser: true, Ids: queued})
	if err != nil {
		return console.UnknownChange(err, "Check with squeue whether any of them are held, and release those.")
	}
	queued = queued[:0]
	for _, r := range held {
		if r.GetFault() == "" { // one that has begun meanwhile, or has a promised deadline, is left alone
			queued = append(queued, r.GetId())
		}
	}
	if len(queued) == 0 {
		return nil
	}
	if _, err := client.Control(ctx, e, c, &apiv1.ControlJobsRequest{Action: apiv1.JobAction_JOB_ACTION_RELEASE, AsUser: true, Ids: queued}); err != nil {
		return fmt.Errorf("jobs %s may still be held; release them with scontrol release: %w", console.IDRanges(queued), err)
	}
	return nil
}

// oneJob returns a job, or the first of an array; nil if there is none.
func oneJob(ctx context.Context, c *client.Client, id uint64) (*apiv1.Job, error) {
	jobs, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Ids: []uint64{id}, Finished: true, Brief: true})
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	return jobs[max(0, slices.IndexFunc(jobs, func(j *apiv1.Job) bool { return j.GetId() == id }))], nil
}

// runScontrolWait returns once a job has its nodes, and fails if it ends without any.
func runScontrolWait(ctx context.Context, e *console.Env, c *client.Client, args []string) error {
	switch len(args) {
	case 0:
		return option.Bare("too few arguments for keyword:wait_job")
	case 1:
	default:
		return option.Bare("too many arguments for keyword:wait_job")
	}
	id, err := option.JobNumber(args[0])
	if err != nil {
		return option.Bare("Invalid job id specified for job " + args[0])
	}
	job, err := oneJob(ctx, c, id)
	if err != nil {
		return err
	}
	if job == nil {
		return slurmNote(fmt.Sprintf("Problem running job %d", id))
	}
	begun := func() bool {
		return job.GetState() == cluster.JobRunning.String() || job.GetState() == cluster.JobCompleting.String() || console.Terminal(job.GetState())
	}
	if !begun() {
		err := c.WatchJobs(ctx, []uint64{job.GetId()}, func(news []*apiv1.Job) bool {
			for _, j := range news {
				if j.GetId() == job.GetId() {
					job = j
				}
			}
			return begun()
		})
		if err != nil {
			return err
		}
	}
	if console.Terminal(job.GetState()) {
		return slurmNote(fmt.Sprintf("Job %d no longer running", id))
	}
	fmt.Fprintf(e.Stderr, "scontrol: Nodes are ready for job %d\n", id)
	return nil
}

// slurmNote returns a message that scontrol does not call an error, although it fails.
func slurmNote(text string) option.Bare { return option.Bare("scontrol: " + text) }

// runScontrolConfig shows the part of Slurm's configuration that has a
// counterpart here.
func runScontrolConfig(ctx context.Context, e *console.Env, c *client.Client) error {
	st, err := terms.Status(ctx, c)
	if err != nil {
		return err
	}
	members := slices.SortedFunc(slices.Values(st.GetMembers()), leadersFirst)
	conf := []slurm.Setting{
		{Key: "AccountingStorageTRES", Value: "cpu,mem,node,billing,gres/gpu"}, {Key: "AccountingStorageType", Value: "accounting_storage/berth"},
		{Key: "AuthType", Value: "auth/berth"}, {Key: "ClusterName", Value: option.ClusterName}, {Key: "GresTypes", Value: "gpu"}, {Key: "JobRequeue", Value: "0"},
		{Key: "MaxArraySize", Value: fmt.Sprint(cluster.MaxTaskID + 1)}, {Key: "MinJobAge", Value: "300 sec"}, {Key: "PreemptMode", Value: "REQUEUE"},
		{Key: "PreemptType", Value: "preempt/qos"}, {Key: "SchedulerParameters", Value: "policy=" + console.Escape(st.GetPolicy())},
		// Scripts wait this long before they ask again, or give up on a job that is
		// not listed.
		{Key: "SchedulerTimeSlice", Value: "30 sec"}, {Key: "SchedulerType", Value: "sched/berth"}, {Key: "SelectType", Value: "select/berth"},
	}
	for i, m := range members {
		conf = append(conf, slurm.Setting{Key: fmt.Sprintf("SlurmctldHost[%d]", i), Value: console.Escape(m.GetId()) + "(" + console.Escape(m.GetAddress()) + ")"})
	}
	conf = append(conf, slurm.Setting{Key: "SLURM_VERSION", Value: slurm.Version})
	if err := slurm.Config(e.Out, conf, e.Now()); err != nil {
		return err
	}
	e.Printf("\n")
	printPing(e, members)
	return nil
}

package slurmcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const squeueExamples = "  berth squeue --me -h -o '%i %T %R'\n  ln -s /usr/bin/berth /usr/local/bin/squeue && squeue -t PD --start"

// squeueOptions are the options of squeue.
type squeueOptions struct {
	print                                                                                  slurm.Squeue
	jobs, users, names, parts, nodes, states, accounts, qos, reservations, licenses, every string
	me, json, array, arrayUnique                                                           bool
}

// NewSqueueCmd returns the command squeue.
func NewSqueueCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o squeueOptions
	return option.Command(e, "squeue [OPTIONS…]", "List jobs, like Slurm's squeue", squeueExamples, o.flags, func(ctx context.Context, args []string) error {
		tasks, err := o.choose(ctx, e, c)
		if err != nil {
			return err
		}
		if o.json {
			return squeueJSON(ctx, e, c, &o.print, tasks)
		}
		return option.Repeat(ctx, e, o.every, !o.print.NoHead && !o.print.Long, func() error {
			return runSqueue(ctx, e, c, &o.print, tasks, o.array || o.arrayUnique)
		})
	})
}

func (o *squeueOptions) flags(fs *pflag.FlagSet) {
	q := &o.print
	fs.StringVarP(&q.Format, "format", "o", "", "columns, such as '%.18i %.8j %R'")
	fs.StringVarP(&q.Fields, "Format", "O", "", "columns by name, such as JobID:10,State")
	fs.BoolVarP(&q.Long, "long", "l", false, "a longer table")
	fs.BoolVar(&q.Start, "start", false, "show when waiting jobs are expected to start")
	fs.BoolVarP(&q.NoHead, "noheader", "h", false, "omit the header line")
	fs.BoolVar(&q.NoConvert, "noconvert", false, "print memory in MiB")
	fs.StringVarP(&q.Sort, "sort", "S", "", "letters of -o, each with + or -")
	fs.StringVarP(&o.every, "iterate", "i", "", "repeat every so many seconds")
	fs.StringVarP(&o.jobs, "jobs", "j", "", "only these jobs")
	fs.StringVarP(&o.users, "user", "u", "", "only jobs of these users")
	fs.StringVarP(&o.accounts, "account", "A", "", "only jobs of these accounts")
	fs.StringVarP(&o.names, "name", "n", "", "only jobs of these names")
	fs.StringVarP(&o.parts, "partition", "p", "", "only jobs of these partitions")
	fs.StringVarP(&o.qos, "qos", "q", "", "only jobs of these qualities of service")
	fs.StringVarP(&o.reservations, "reservation", "R", "", "only jobs in these reservations")
	fs.StringVarP(&o.licenses, "licenses", "L", "", "only jobs with these licenses; none has any")
	fs.StringVarP(&o.nodes, "nodelist", "w", "", "only jobs on these nodes")
	fs.StringVarP(&o.states, "states", "t", "", "only jobs in these states; all for any")
	fs.BoolVar(&o.me, "me", false, "only your own jobs")
	fs.BoolVarP(&o.array, "array", "r", false, "one line per array task")
	fs.BoolVar(&o.arrayUnique, "array-unique", false, "the same")
	fs.BoolVar(&o.json, "json", false, "print JSON, as Slurm does")
	option.Mark(fs, "jobs", option.MarkAlone)
	option.Ignore(fs, option.NothingHides, "all,a", "hide")
	option.Ignore(fs, "a job waits in one partition", "priority,P")
	option.Ignore(fs, "there is no more detail", "verbose,v")
	option.Clusters(fs)
	option.Headed(fs)
	option.OfClusters(fs, "federation", "local", "sibling")
	option.Refuse(fs, "steps", "s", true, "steps are not listed: they belong to the srun that runs them; see berth show JOB")
	option.Mark(fs, "steps", option.MarkAlone)
	option.Refuse(fs, "yaml", "", false, "for YAML use berth queue -o yaml")
	option.Variables(fs, "SQUEUE_ACCOUNT=account", "SQUEUE_ARRAY=array", "SQUEUE_ARRAY_UNIQUE=array-unique", "SQUEUE_LICENSES=licenses", "SQUEUE_NAMES=name",
		"SQUEUE_PARTITION=partition", "SQUEUE_QOS=qos", "SQUEUE_SORT=sort", "SQUEUE_STATES=states", "SQUEUE_USERS=user",
		"SQUEUE_FORMAT=format", "SQUEUE_FORMAT2=Format")
	option.Mark(fs, "format", option.MarkUnless, "Format", "long")
	option.Mark(fs, "Format", option.MarkUnless, "format", "long")
}

// choose reads the options that select jobs; it returns the named tasks of arrays.
func (o *squeueOptions) choose(ctx context.Context, e *console.Env, c *client.Client) (tasks []console.TaskRef, err error) {
	q := &o.print
	if q.Jobs, tasks, err = terms.ParseJobs(o.jobs); err != nil {
		return nil, text.Message(err.Error())
	}
	q.Users, q.Names, q.Partitions = option.List(o.users), option.List(o.names), option.List(o.parts)
	q.Accounts, q.QOS, q.Reservations = option.List(o.accounts), option.List(o.qos), option.List(o.reservations)
	q.States, q.Nothing = option.List(strings.ToUpper(o.states)), o.licenses != ""
	if o.me {
		q.Users = append(q.Users, e.User())
	}
	if q.Nodes, err = slurm.Unfold(o.nodes); err != nil {
		return nil, text.Message(fmt.Sprintf("Invalid node name %v", err))
	}
	return tasks, knownNodes(ctx, c, q.Nodes)
}

// knownNodes refuses nodes that do not exist, as squeue does.
func knownNodes(ctx context.Context, c *client.Client, names []string) error {
	if len(names) == 0 {
		return nil
	}
	nodes, err := client.GetNodes(ctx, c, nil)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(nodes, func(n *apiv1.Node) bool { return n.GetId() == name }) {
			return text.Message("Invalid node name " + console.Escape(name))
		}
	}
	return nil
}

// knownStates refuses states that Slurm does not know.
func knownStates(q *slurm.Squeue) error {
	for _, s := range q.States {
		if s != "ALL" && !knownToSlurm(s) {
			return text.Message("Invalid job state specified: " + s + console.DidYouMean(s, knownStatesOfSlurm()))
		}
	}
	return nil
}

// queued returns the selected jobs, as far as ids and the coordinator select;
// full requests complete jobs.
func queued(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue, tasks []console.TaskRef, full bool) ([]slurm.Job, error) {
	if err := knownStates(q); err != nil {
		return nil, err
	}
	jobs, err := terms.ListJobs(ctx, e, c, squeueRequest(q, tasks), full)
	if err != nil {
		return nil, err
	}
	gone := func(j slurm.Job) bool { return len(q.States) == 0 && j.Gone(e.Now()) }
	if len(q.Jobs)+len(tasks) == 1 && !slices.ContainsFunc(jobs, func(j slurm.Job) bool { return !gone(j) }) {
		return nil, terms.ErrJob // scripts use this to wait for a job
	}
	return terms.OnlyTasks(jobs, q.Jobs, tasks)
}

func runSqueue(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue, tasks []console.TaskRef, each bool) error {
	jobs, err := queued(ctx, e, c, q, tasks, q.ShowsFiles() || len(q.Reservations) > 0)
	if err != nil {
		return err
	}
	if each {
		if jobs, err = terms.Unfolded(jobs); err != nil {
			return err
		}
	} else {
		jobs = terms.Folded(jobs)
	}
	if err := expectStarts(ctx, e, c, q, jobs); err != nil {
		return err
	}
	slurm.Masters(jobs)
	if u := e.Accounts.Unknown(q.Users); u != "" && len(jobs) == 0 {
		e.Warnf("error: Invalid user: %s", console.Escape(u)) // users of other machines are found by their jobs
	}
	return q.Print(e.Out, jobs, e.Now())
}

// expectStarts sets when jobs start, as far as the table shows it.
func expectStarts(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue, jobs []slurm.Job) error {
	switch {
	case q.Start:
		return terms.ExpectStarts(ctx, e, c, jobs, client.MostForecasts)
	case q.ShowsStarts():
		return terms.ExpectStarts(ctx, e, c, jobs, terms.FewStarts)
	}
	return nil
}

// squeueRequest leaves as much of the selection to the coordinator as it supports.
func squeueRequest(q *slurm.Squeue, tasks []console.TaskRef) *apiv1.ListJobsRequest {
	ids := terms.IDs(q.Jobs, tasks)
	req := &apiv1.ListJobsRequest{Ids: ids, Finished: len(q.States) > 0 || len(ids) > 0}
	if len(ids)+len(q.Users)+len(q.Names)+len(q.Partitions)+len(q.Nodes)+len(q.Accounts) > mostFiltered {
		return req
	}
	req.Users, req.Names, req.Nodes = q.Users, q.Names, q.Nodes
	if !slices.Contains(q.Partitions, terms.NoPartition) {
		req.Partitions = q.Partitions
	}
	if len(ids) == 0 && !slices.Contains(q.States, "ALL") {
		req.States = terms.States(q.States)
	}
	return req
}

// mostFiltered is how many items of a selection any coordinator accepts.
const mostFiltered = 900

func knownToSlurm(state string) bool {
	_, err := cluster.ParseJobState(state)
	return err == nil || slices.Contains(statesOfSlurm, state)
}

// statesOfSlurm are those that no job of Berth's is ever in.
var statesOfSlurm = []string{"CONFIGURING", "SUSPENDED", "S", "STOPPED", "ST", "BOOT_FAIL", "BF", "REQUEUED", "RQ", "SPECIAL_EXIT", "SE",
	"RESV_DEL_HOLD", "RD", "REQUEUE_FED", "RF", "REQUEUE_HOLD", "RH", "RESIZING", "RS", "REVOKED", "RV", "SIGNALING", "SI", "STAGE_OUT", "SO"}

func knownStatesOfSlurm() []string {
	out := []string{"ALL"}
	for s := cluster.JobPending; s <= cluster.JobDeadline; s++ {
		out = append(out, s.String())
	}
	return append(out, statesOfSlurm...)
}

// squeueJSON is squeue --json: the jobs that the other options select.
func squeueJSON(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue, tasks []console.TaskRef) error {
	jobs, err := queued(ctx, e, c, q, tasks, true)
	if err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(j slurm.Job) bool { return !q.Wants(&j) })
	if err := terms.ExpectStarts(ctx, e, c, jobs, terms.FewStarts); err != nil {
		return err
	}
	return terms.PrintJobs(e, jobs)
}

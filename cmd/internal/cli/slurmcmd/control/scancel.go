package control

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const scancelExamples = "  berth scancel 12 14\n  ln -s /usr/bin/berth /usr/local/bin/scancel && scancel --me -t PENDING"

// NewScancelCmd returns the command scancel.
func NewScancelCmd(e *console.Env, c *client.Client) *cobra.Command {
	var q slurm.Squeue
	var users, names, parts, states, nodes, accounts, qos, reservations, wckey, sig string
	var me, quiet, verbose, batch, full, interactive bool
	return option.Command(e, "scancel [OPTIONS…] [JOB…]", "Cancel jobs, like Slurm's scancel", scancelExamples, func(fs *pflag.FlagSet) {
		fs.StringVarP(&users, "user", "u", "", "jobs of this user")
		fs.BoolVar(&me, "me", false, "your own jobs")
		fs.StringVarP(&names, "name", "n", "", "jobs of this name")
		fs.StringVar(&names, "jobname", "", "the same")
		fs.StringVarP(&parts, "partition", "p", "", "jobs of this partition")
		fs.StringVarP(&states, "state", "t", "", "jobs in this state: PENDING, RUNNING")
		fs.StringVarP(&nodes, "nodelist", "w", "", "jobs on these nodes")
		fs.StringVarP(&sig, "signal", "s", "", "send this signal to running jobs; TERM and KILL end them")
		fs.BoolVarP(&quiet, "quiet", "Q", false, "do not report jobs that do not exist")
		fs.BoolVarP(&verbose, "verbose", "v", false, "report which jobs are cancelled")
		fs.BoolVarP(&batch, "batch", "b", false, "with --signal, signal only the shell of the script")
		fs.BoolVarP(&full, "full", "f", false, "with --signal, signal that shell, too")
		fs.BoolVarP(&interactive, "interactive", "i", false, "ask before each job")
		fs.StringVarP(&accounts, "account", "A", "", "jobs of this account")
		fs.StringVarP(&qos, "qos", "q", "", "jobs of this quality of service")
		fs.StringVarP(&reservations, "reservation", "R", "", "jobs in this reservation")
		fs.StringVar(&wckey, "wckey", "", "jobs with this key; none has one")
		option.Ignore(fs, "jobs are always ended by the coordinators", "ctld")
		option.Ignore(fs, "burst buffers are not managed", "hurry,H")
		option.Clusters(fs)
		option.Refuse(fs, "sibling", "", true, option.OneCluster)
		option.Variables(fs, "SCANCEL_ACCOUNT=account", "SCANCEL_BATCH=batch", "SCANCEL_FULL=full", "SCANCEL_INTERACTIVE=interactive", "SCANCEL_NAME=name",
			"SCANCEL_PARTITION=partition", "SCANCEL_QOS=qos", "SCANCEL_STATE=state", "SCANCEL_USER=user", "SCANCEL_VERBOSE=verbose", "SCANCEL_WCKEY=wckey")
	}, func(ctx context.Context, args []string) error {
		send, err := toSend(sig, batch, full)
		if err != nil {
			return err
		}
		q.Users, q.Names, q.Partitions, q.States = option.List(users), option.List(names), option.List(parts), option.List(strings.ToUpper(states))
		q.Accounts, q.QOS, q.Reservations, q.Nothing = option.List(accounts), option.List(qos), option.List(reservations), wckey != ""
		if me {
			q.Users = append(q.Users, e.User())
		}
		if q.Nodes, err = slurm.Unfold(nodes); err != nil {
			return text.Message(fmt.Sprintf("Invalid node name %v", err))
		}
		if len(args) == 0 && !choosesJobs(&q) {
			return text.Message("No job identification provided")
		}
		var tasks []console.TaskRef
		for _, a := range args {
			ids, of, err := jobsAndTasks(a)
			if err != nil {
				return text.Message("Invalid job id " + a)
			}
			q.Jobs, tasks = append(q.Jobs, ids...), append(tasks, of...)
		}
		return onJobs(ctx, e, c, &q, &ending{send: send, args: args, tasks: tasks, quiet: quiet, verbose: verbose, ask: interactive})
	})
}

// ending is what scancel does to jobs, and how much it prints.
type ending struct {
	// send is the signal, nil to cancel them.
	send *apiv1.AttachSignal
	// args are the words that named jobs, tasks the tasks of arrays among them.
	args                []string
	tasks               []console.TaskRef
	quiet, verbose, ask bool
}

// onJobs signals, or cancels, what scancel's arguments and options select.
func onJobs(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue, w *ending) error {
	ids, tasks, args, chooses := q.Jobs, w.tasks, w.args, choosesJobs(q)
	if w.send != nil && len(q.States) == 0 {
		q.States = []string{"RUNNING"}
	}
	if chooses && len(tasks) > 0 {
		return fmt.Errorf("%s: array tasks cannot be combined with options that select jobs", tasks[0])
	}
	if chooses {
		var err error
		if ids, tasks, err = chosen(ctx, e, c, q); err != nil {
			return err
		}
	}
	if w.ask {
		var err error
		if ids, tasks, err = confirmed(ctx, e, c, ids, tasks); err != nil {
			return err
		}
	}
	if w.send != nil {
		if chooses || w.ask {
			args = texts(ids)
			for _, t := range tasks {
				args = append(args, t.String())
			}
		}
		return signalJobs(ctx, e, c, args, w.send, w.verbose)
	}
	return endJobs(ctx, e, c, ids, tasks, w.quiet, w.verbose)
}

// confirmed asks for confirmation of each job, and of tasks of an array that
// were named together.
func confirmed(ctx context.Context, e *console.Env, c *client.Client, ids []uint64, tasks []console.TaskRef) (yes []uint64, of []console.TaskRef, err error) {
	if len(ids)+len(tasks) == 0 {
		return nil, nil, nil
	}
	jobs, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Ids: terms.IDs(ids, tasks), Finished: true, Brief: true})
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(e.Stdin)
	meant := func(label string, id uint64) bool {
		name, part := "", ""
		if k := slices.IndexFunc(jobs, func(j *apiv1.Job) bool { return j.GetId() == id || j.GetArrayJobId() == id }); k >= 0 {
			name, part = console.Escape(jobs[k].GetName()), cmp.Or(jobs[k].GetPartition(), terms.NoPartition)
		}
		for {
			fmt.Fprintf(e.Stderr, "Cancel job_id=%s name=%s partition=%s [y/n]? ", label, name, part)
			line, err := in.ReadString('\n')
			switch strings.ToLower(strings.TrimSpace(line)) {
			case "y", "yes":
				return true
			case "n", "no":
				return false
			}
			if err != nil { // no user to ask
				return false
			}
		}
	}
	for _, id := range ids {
		if meant(strconv.FormatUint(id, 10), id) {
			yes = append(yes, id)
		}
	}
	for _, t := range tasks {
		if meant(t.String(), t.Array) {
			of = append(of, t)
		}
	}
	return yes, of, nil
}

// choosesJobs reports whether options select jobs, in addition to ids.
func choosesJobs(q *slurm.Squeue) bool {
	return q.Nothing || len(q.Users)+len(q.Names)+len(q.Partitions)+len(q.States)+len(q.Nodes)+len(q.Accounts)+len(q.QOS)+len(q.Reservations) > 0
}

// toSend returns the signal of scancel --signal, nil to cancel jobs.
func toSend(name string, batch, full bool) (*apiv1.AttachSignal, error) {
	switch strings.TrimPrefix(strings.ToUpper(name), "SIG") {
	case "", "TERM", "KILL", "15", "9":
		return nil, nil
	}
	sig, err := client.ParseSignal(name)
	if err != nil {
		return nil, text.Message("Unknown job signal: " + name)
	}
	return &apiv1.AttachSignal{Number: uint32(sig), First: batch && !full, All: full}, nil
}

// signalJobs sends a signal to running jobs, once to each. One that cannot be
// signalled is an error of the command, but the others are still signalled.
func signalJobs(ctx context.Context, e *console.Env, c *client.Client, jobs []string, what *apiv1.AttachSignal, verbose bool) error {
	var faults []error
	for _, arg := range jobs {
		job, err := client.OneJob(ctx, c, arg)
		if err == nil {
			err = c.Signal(ctx, job, what)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			faults = append(faults, text.Message(fmt.Sprintf("Kill job error on job id %s: %v", arg, err)))
		case verbose:
			fmt.Fprintf(e.Stderr, "scancel: Signal %d to job %s\n", what.GetNumber(), arg)
		}
	}
	return errors.Join(faults...)
}

func texts(ids []uint64) []string {
	var out []string
	for _, id := range ids {
		out = append(out, strconv.FormatUint(id, 10))
	}
	return out
}

// chosen returns the jobs, and tasks of arrays, that have not ended and that
// the options select.
func chosen(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue) (ids []uint64, tasks []console.TaskRef, err error) {
	got, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Ids: q.Jobs, Brief: len(q.Reservations) == 0})
	if err != nil {
		return nil, nil, err
	}
	got = slices.DeleteFunc(got, func(j *apiv1.Job) bool {
		s := terms.Job(terms.ViewFrom(e), j)
		return !q.Wants(&s)
	})
	if u := e.Accounts.Unknown(q.Users); u != "" && len(got) == 0 {
		return nil, nil, text.Message("Invalid user name: " + console.Escape(u))
	}
	ids, tasks = client.Named(got)
	return ids, tasks, nil
}

// endJobs cancels any number of jobs and tasks of arrays. One that does not
// exist, or that the caller may not end, is an error of the command, but the
// others are still cancelled.
func endJobs(ctx context.Context, e *console.Env, c *client.Client, ids []uint64, tasks []console.TaskRef, quiet, verbose bool) error {
	var faults []error
	var reqs []*apiv1.CancelJobsRequest
	for part := range slices.Chunk(ids, 1000) {
		reqs = append(reqs, &apiv1.CancelJobsRequest{RequestId: e.RequestID(), Ids: part})
	}
	for part := range slices.Chunk(tasks, 1000) {
		reqs = append(reqs, &apiv1.CancelJobsRequest{RequestId: e.RequestID(), Tasks: client.ArrayTasks(part)})
	}
	for _, req := range reqs {
		resp, err := client.CancelJobs.Ask(ctx, c, client.Changes, req)
		if err != nil {
			return console.UnknownChange(err, "Repeating this is safe.")
		}
		for _, r := range resp.GetResults() {
			name := console.JobOrTasks(r.GetId(), r.GetTasks())
			switch r.GetOutcome() {
			case apiv1.CancelOutcome_CANCEL_OUTCOME_CANCELLED:
				if verbose {
					fmt.Fprintf(e.Stderr, "scancel: Terminating job %s\n", name)
				}
			case apiv1.CancelOutcome_CANCEL_OUTCOME_NOT_FOUND:
				if !quiet {
					faults = append(faults, text.Message(fmt.Sprintf("Kill job error on job id %s: Invalid job id specified", name)))
				}
			case apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED:
				faults = append(faults, text.Message(fmt.Sprintf("Kill job error on job id %s: Access/permission denied", name)))
			case apiv1.CancelOutcome_CANCEL_OUTCOME_ALREADY_FINISHED:
				if verbose {
					e.Warnf("Kill job error on job id %s: Job/step already completing or completed", name)
				}
			}
		}
	}
	return errors.Join(faults...)
}

package enter

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

type logsOptions struct {
	follow, stderr, path, local bool
	// tail is a number of lines, -1 for all; offset is in bytes.
	tail, offset int64
}

// NewLogsCmd returns the command logs.
func NewLogsCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs [JOB|ARRAY_TASK]",
		Short: "Print a job's output",
		Long: "Print a job's output file. The agent on the job's node reads it as the job's user and sends it through\n" +
			"the coordinators; on that node itself it is read directly. --follow continues until the job has ended,\n" +
			"across changes of leader and the job's further attempts. If the node cannot be reached and a file\n" +
			"of that name exists here, that one is shown, with a note. Without an id, shows your latest job.",
		Example: "  berth logs 12\n  berth logs -f 12\n  berth logs --tail 20 30_7\n  berth logs --since-offset 4096 12",
		Args:    console.MaybeOneArg("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			args, err := client.OrLatestTask(cmd.Context(), e, c, args)
			if err != nil {
				return err
			}
			err = runLogs(cmd.Context(), e, c, o, args[0])
			var intr *console.Interruption
			if o.follow && e.StderrTerminal && errors.As(context.Cause(cmd.Context()), &intr) {
				e.Warnf("only the reading was ended; continue with: berth logs -f %s", console.Escape(args[0]))
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.follow, "follow", "f", false, "continue until the job has ended")
	fs.BoolVarP(&o.stderr, "stderr", "e", false, "print the standard error file instead")
	fs.BoolVar(&o.path, "path", false, "print only the file's name")
	fs.BoolVar(&o.local, "local", false, "read the file on this machine, whichever node the job ran on")
	fs.Int64VarP(&o.tail, "tail", "n", -1, "start with the last N lines; 0 for new output only")
	fs.Int64Var(&o.offset, "since-offset", 0, "start at this byte of the file")
	return cmd
}

func (o *logsOptions) check() error {
	switch {
	case o.tail < -1:
		return console.Usagef("--tail %d: must be 0 or more lines", o.tail)
	case o.offset < 0:
		return console.Usagef("--since-offset %d: must be 0 or more bytes", o.offset)
	case o.tail >= 0 && o.offset > 0:
		return console.Usagef("--tail and --since-offset: give only one of them")
	}
	return nil
}

func runLogs(ctx context.Context, e *console.Env, c *client.Client, o logsOptions, arg string) error {
	job, err := client.OneJob(ctx, c, arg)
	if err != nil {
		return err
	}
	if job.GetSpec() == nil || len(job.GetSpec().GetDir()) == 0 {
		return cluster.Errorf(cluster.CodeDenied, "job %s: only its owner and administrators may see its output", client.JobLabel(job))
	}
	if job.GetNode() == "" || console.Pulling(job) {
		if job, err = awaitStart(ctx, e, c, o, job); err != nil {
			return err
		}
	}
	pattern := string(job.GetSpec().GetStdout())
	if o.stderr && len(job.GetSpec().GetStderr()) > 0 {
		pattern = string(job.GetSpec().GetStderr())
	}
	name, err := view.OutputPath(job, pattern)
	if err != nil {
		return err
	}
	if o.path {
		e.Printf("%s\n", name)
		return nil
	}
	l := &logReader{env: e, c: c, o: o, job: job, name: name}
	defer l.close()
	if !o.local && l.elsewhere() {
		return l.remote(ctx)
	}
	return l.here(ctx)
}

// awaitStart returns the job once it has a node and its image is pulled;
// without --follow it says why there is nothing to read.
func awaitStart(ctx context.Context, e *console.Env, c *client.Client, o logsOptions, job *apiv1.Job) (*apiv1.Job, error) {
	if console.Terminal(job.GetState()) {
		return nil, cluster.Errorf(cluster.CodeConflict, "job %s never started (%s), so it wrote nothing", client.JobLabel(job), job.GetState())
	}
	if !o.follow {
		return nil, cluster.Errorf(cluster.CodeConflict, "job %s has not started (%s); berth why %[1]s explains it, berth logs -f waits for it",
			client.JobLabel(job), job.GetState())
	}
	e.Warnf("job %s has not started (%s); waiting", client.JobLabel(job), job.GetState())
	line := console.NewProgress(e)
	err := c.WatchJobs(ctx, []uint64{job.GetId()}, func(news []*apiv1.Job) bool {
		for _, j := range news {
			switch {
			case !client.RefTo(job).Of(j):
			case console.Pulling(j):
				line.Say(j.GetState() + "; " + console.ReasonText(j.GetReason(), j.GetReasonDetail()))
			case j.GetNode() != "" || console.Terminal(j.GetState()):
				return true
			default:
				line.Say(client.Waits(ctx, e, c, j))
			}
		}
		return false
	})
	line.Clear()
	if err != nil {
		return nil, err
	}
	if job, err = client.Again(ctx, c, job); err != nil {
		return nil, err
	}
	if job.GetNode() == "" && console.Terminal(job.GetState()) {
		o.follow = false
		return awaitStart(ctx, e, c, o, job)
	}
	return job, nil
}

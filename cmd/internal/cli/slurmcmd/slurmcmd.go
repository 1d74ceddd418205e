package slurmcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// slurmCommand is one of Slurm's commands: its own options, messages and exit
// codes, whether it is called through a link or as a verb.
func slurmCommand(e *console.Env, use, short, example string, flags func(*pflag.FlagSet), run func(context.Context, []string) error) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	help := fs.Bool("help", false, "show this text")
	about := fs.BoolP("version", "V", false, "show the version")
	flags(fs)
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Prog = name
			if err := fs.Parse(args); err != nil {
				return asSlurm(e, bare(fmt.Sprintf("%s: %s\nTry \"%s --help\" for more information", name, optionFault(err), name)))
			}
			switch {
			case *help:
				e.Printf("Usage: %s\n\n%s.\n\n%s\nExamples:\n%s\n", use, short, fs.FlagUsages(), example)
				return nil
			case *about:
				e.Printf("berth %s, with the options of slurm 22.05\n", console.Version().Version)
				return nil
			}
			return asSlurm(e, unreached(name, run(cmd.Context(), fs.Args())))
		},
	}
	cmd.Flags().AddFlagSet(fs)
	return cmd
}

// optionFault says what getopt would of an option that cannot be read.
func optionFault(err error) string {
	if n, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if short := n.GetSpecifiedShortnames(); short != "" {
			return fmt.Sprintf("invalid option -- '%s'", n.GetSpecifiedName())
		}
		return fmt.Sprintf("unrecognized option '--%s'", n.GetSpecifiedName())
	}
	return err.Error()
}

// bare is an error that Slurm prints without the name of the command.
type bare string

func (b bare) Error() string { return string(b) }

// loads is what the commands that only look say first when nobody answers.
var loads = map[string]string{"squeue": "slurm_load_jobs error", "scancel": "scancel: error", "sinfo": "slurm_load_partitions", "scontrol": "scontrol: error"}

// unreached is an error in Slurm's words, if it is that no coordinator answers.
func unreached(name string, err error) error {
	ce, ok := errors.AsType[*cluster.Error](err)
	if first := loads[name]; ok && ce.Code == cluster.CodeUnavailable && first != "" {
		return bare(first + ": " + sbatch.InSlurmWords(ce))
	}
	return err
}

// coded is one with an exit code of its own.
type coded struct {
	code int
	msg  string
}

func (c coded) Error() string { return c.msg }

// asSlurm gives failures the exit code of Slurm's commands, which is 1.
func asSlurm(e *console.Env, err error) error {
	var exit *console.ExitError
	var b bare
	var own coded
	switch {
	case errors.As(err, &own):
		fmt.Fprintln(e.Stderr, own.msg)
		return &console.ExitError{Code: own.code}
	case errors.As(err, &b):
		fmt.Fprintln(e.Stderr, string(b))
		return &console.ExitError{Code: console.ExitFailed}
	case err == nil, errors.Is(err, console.ErrQuiet):
		return err
	case errors.As(err, &exit):
		return &console.ExitError{Code: console.ExitFailed, Err: exit.Err}
	}
	return &console.ExitError{Code: console.ExitFailed, Err: err}
}

const squeueExamples = "  berth squeue --me -h -o '%i %T %R'\n  ln -s /usr/bin/berth /usr/local/bin/squeue && squeue -t PD --start"

// NewSqueueCmd returns the command squeue.
func NewSqueueCmd(e *console.Env, c *client.Client) *cobra.Command {
	var q slurm.Squeue
	var jobs, users, names, parts, nodes, states string
	var me, all, json, array bool
	return slurmCommand(e, "squeue [OPTIONS…]", "List jobs as Slurm's squeue does", squeueExamples, func(fs *pflag.FlagSet) {
		fs.StringVarP(&q.Format, "format", "o", "", "columns, such as '%.18i %.8j %R'")
		fs.StringVarP(&q.Fields, "Format", "O", "", "columns by name, such as JobID:10,State")
		fs.BoolVarP(&q.Long, "long", "l", false, "a longer table")
		fs.BoolVar(&q.Start, "start", false, "when those that wait are expected to start")
		fs.BoolVarP(&q.NoHead, "noheader", "h", false, "leave out the heads of the columns")
		fs.StringVarP(&q.Sort, "sort", "S", "", "letters of -o, each with + or -")
		fs.StringVarP(&jobs, "jobs", "j", "", "only these jobs")
		fs.StringVarP(&users, "user", "u", "", "only jobs of these users")
		fs.StringVarP(&names, "name", "n", "", "only jobs of these names")
		fs.StringVarP(&parts, "partition", "p", "", "only jobs of these partitions")
		fs.StringVarP(&nodes, "nodelist", "w", "", "only jobs on these nodes")
		fs.StringVarP(&states, "states", "t", "", "only jobs in these states; all for any")
		fs.BoolVar(&me, "me", false, "only jobs of mine")
		fs.BoolVarP(&all, "all", "a", false, "taken for Slurm's sake")
		fs.BoolVarP(&array, "array", "r", false, "a line for each task of an array")
		fs.BoolVar(&json, "json", false, "print JSON, with Berth's own fields")
		lookOf(fs, "jobs", "")
	}, func(ctx context.Context, args []string) error {
		var err error
		var tasks []console.TaskRef
		if q.Jobs, tasks, err = jobsAndTasksOf(jobs); err != nil {
			return slurm.Message(err.Error())
		}
		q.Users, q.Names, q.Partitions = listOf(users), listOf(names), listOf(parts)
		q.States = listOf(strings.ToUpper(states))
		if me {
			q.Users = append(q.Users, e.User())
		}
		if q.Nodes, err = slurm.Unfold(nodes); err != nil {
			return slurm.Message(fmt.Sprintf("Invalid node name %v", err))
		}
		if json {
			return squeueJSON(ctx, e, c, &q, tasks)
		}
		return runSqueue(ctx, e, c, &q, tasks, array || e.Getenv("SQUEUE_ARRAY") != "")
	})
}

// lookOf makes an option that may stand without a value.
func lookOf(fs *pflag.FlagSet, name, value string) { fs.Lookup(name).NoOptDefVal = value }

// knownStates refuses states that Slurm does not know.
func knownStates(q *slurm.Squeue) error {
	for _, s := range q.States {
		if s != "ALL" && !knownToSlurm(s) {
			return slurm.Message("Invalid job state specified: " + s)
		}
	}
	return nil
}

func runSqueue(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue, tasks []console.TaskRef, each bool) error {
	if err := knownStates(q); err != nil {
		return err
	}
	jobs, err := listSlurm(ctx, e, c, squeueRequest(q, tasks), q.ShowsFiles())
	if err != nil {
		return err
	}
	if len(q.Jobs)+len(tasks) == 1 && len(jobs) == 0 {
		return errSlurmJob
	}
	if jobs, err = onlyTasks(jobs, q.Jobs, tasks); err != nil {
		return err
	}
	if each {
		if jobs, err = unfolded(jobs); err != nil {
			return err
		}
	}
	if q.Start {
		if err := expectStarts(ctx, e, c, jobs); err != nil {
			return err
		}
	}
	slurm.Masters(jobs)
	return q.Print(e.Out, jobs, e.Now())
}

// squeueRequest leaves as much of the choice to the coordinator as it knows of.
func squeueRequest(q *slurm.Squeue, tasks []console.TaskRef) *apiv1.ListJobsRequest {
	ids := idsOf(q.Jobs, tasks)
	req := &apiv1.ListJobsRequest{Ids: ids, Finished: len(q.States) > 0 || len(ids) > 0}
	if len(ids)+len(q.Users)+len(q.Names)+len(q.Partitions)+len(q.Nodes) > mostFiltered {
		return req
	}
	req.Users, req.Names, req.Nodes = q.Users, q.Names, q.Nodes
	if !slices.Contains(q.Partitions, noPartition) {
		req.Partitions = q.Partitions
	}
	if len(ids) == 0 && !slices.Contains(q.States, "ALL") {
		req.States = berthStates(q.States)
	}
	return req
}

// mostFiltered is how much a coordinator takes of a choice at least.
const mostFiltered = 900

// berthStates are all that Slurm's states may be here; nothing for all.
func berthStates(states []string) (out []string) {
	for _, s := range states {
		switch st, err := cluster.ParseJobState(s); {
		case s == "CONFIGURING":
			out = append(out, cluster.JobStarting.String())
		case err != nil:
		case st == cluster.JobPending:
			out = append(out, st.String(), cluster.JobQueued.String())
		case st == cluster.JobRunning:
			out = append(out, st.String(), cluster.JobUnreachable.String())
		default:
			out = append(out, st.String())
		}
	}
	return out
}

// errSlurmJob is what Slurm's commands say of a job that is not there.
const errSlurmJob = bare("slurm_load_jobs error: Invalid job id specified")

func knownToSlurm(state string) bool {
	_, err := cluster.ParseJobState(state)
	return err == nil || slices.Contains([]string{"CONFIGURING", "SUSPENDED", "S", "STOPPED", "ST", "BOOT_FAIL", "BF", "REQUEUED", "RQ", "SPECIAL_EXIT", "SE"}, state)
}

func listOf(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// jobNumbers reads ids; those of arrays and steps count as that of the job.
func jobNumbers(list, fault string) ([]uint64, error) {
	var out []uint64
	for _, s := range listOf(list) {
		id, err := jobNumber(s)
		if err != nil {
			return nil, fmt.Errorf(fault, s)
		}
		out = append(out, id)
	}
	return out, nil
}

func jobNumber(s string) (uint64, error) {
	s, _, _ = strings.Cut(s, ".")
	s, _, _ = strings.Cut(s, "_")
	return strconv.ParseUint(s, 10, 63)
}

const sinfoExamples = "  berth sinfo -N -l\n  ln -s /usr/bin/berth /usr/local/bin/sinfo && sinfo -h -o '%N %G %C'"

// NewSinfoCmd returns the command sinfo.
func NewSinfoCmd(e *console.Env, c *client.Client) *cobra.Command {
	var s slurm.Sinfo
	var nodes, parts, states string
	var all, json bool
	return slurmCommand(e, "sinfo [OPTIONS…]", "List nodes as Slurm's sinfo does", sinfoExamples, func(fs *pflag.FlagSet) {
		fs.StringVarP(&s.Format, "format", "o", "", "columns, such as '%P %.5a %N'")
		fs.StringVarP(&s.Fields, "Format", "O", "", "columns by name, such as NodeList,Gres,GresUsed")
		fs.BoolVarP(&s.Each, "Node", "N", false, "a line for each node")
		fs.BoolVarP(&s.Long, "long", "l", false, "a longer table")
		fs.BoolVarP(&s.Summary, "summarize", "s", false, "a line for each partition")
		fs.BoolVarP(&s.Reasons, "list-reasons", "R", false, "why nodes are drained")
		fs.BoolVarP(&s.NoHead, "noheader", "h", false, "leave out the heads of the columns")
		fs.StringVarP(&nodes, "nodes", "n", "", "only these nodes")
		fs.StringVarP(&parts, "partition", "p", "", "only these partitions")
		fs.StringVarP(&states, "states", "t", "", "only nodes in these states")
		fs.BoolVarP(&all, "all", "a", false, "taken for Slurm's sake")
		fs.BoolVar(&json, "json", false, "print JSON, with Berth's own fields")
	}, func(ctx context.Context, args []string) error {
		var err error
		if s.Nodes, err = slurm.Unfold(nodes); err != nil {
			return slurm.Message(fmt.Sprintf("Invalid node name %v", err))
		}
		s.Partitions, s.States = listOf(parts), listOf(strings.ToLower(states))
		if json {
			return sinfoJSON(ctx, e, c, &s)
		}
		ps, ns, err := slurmCluster(ctx, e, c)
		if err != nil {
			return err
		}
		return s.Print(e.Out, ps, ns, e.Now())
	})
}

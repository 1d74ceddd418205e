package slurmcmd

import (
	"cmp"
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

const scancelExamples = "  berth scancel 12 14\n  ln -s /usr/bin/berth /usr/local/bin/scancel && scancel --me -t PENDING"

// NewScancelCmd returns the command scancel.
func NewScancelCmd(e *console.Env, c *client.Client) *cobra.Command {
	var q slurm.Squeue
	var users, names, parts, states, nodes, sig string
	var me, quiet, verbose, batch, full, interactive bool
	return slurmCommand(e, "scancel [OPTIONS…] [JOB…]", "End jobs as Slurm's scancel does", scancelExamples, func(fs *pflag.FlagSet) {
		fs.StringVarP(&users, "user", "u", "", "jobs of this user")
		fs.BoolVar(&me, "me", false, "jobs of mine")
		fs.StringVarP(&names, "name", "n", "", "jobs of this name")
		fs.StringVar(&names, "jobname", "", "the same")
		fs.StringVarP(&parts, "partition", "p", "", "jobs of this partition")
		fs.StringVarP(&states, "state", "t", "", "jobs in this state: PENDING, RUNNING")
		fs.StringVarP(&nodes, "nodelist", "w", "", "jobs on these nodes")
		fs.StringVarP(&sig, "signal", "s", "", "send this signal to running jobs; TERM and KILL end them")
		fs.BoolVarP(&quiet, "quiet", "Q", false, "say nothing of jobs that are not there")
		fs.BoolVarP(&verbose, "verbose", "v", false, "say which jobs are ended")
		fs.BoolVarP(&batch, "batch", "b", false, "with --signal: to the shell of the script alone")
		fs.BoolVarP(&full, "full", "f", false, "with --signal: to that shell, too")
		fs.BoolVarP(&interactive, "interactive", "i", false, "refused: name the jobs")
	}, func(ctx context.Context, args []string) error {
		if interactive {
			return errors.New("--interactive: name the jobs that are to end")
		}
		send, err := toSend(sig, batch, full)
		if err != nil {
			return err
		}
		q.Users, q.Names, q.Partitions, q.States = listOf(users), listOf(names), listOf(parts), listOf(strings.ToUpper(states))
		if me {
			q.Users = append(q.Users, e.User())
		}
		if q.Nodes, err = slurm.Unfold(nodes); err != nil {
			return slurm.Message(fmt.Sprintf("Invalid node name %v", err))
		}
		if len(args) == 0 && !choosesJobs(&q) {
			return slurm.Message("No job identification provided")
		}
		var tasks []console.TaskRef
		for _, a := range args {
			ids, of, err := jobsAndTasks(a)
			if err != nil {
				return slurm.Message("Invalid job id " + a)
			}
			q.Jobs, tasks = append(q.Jobs, ids...), append(tasks, of...)
		}
		return onJobs(ctx, e, c, &q, send, args, tasks, quiet, verbose)
	})
}

// onJobs signals, or ends, what scancel's arguments and options name.
func onJobs(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue, send *apiv1.AttachSignal, args []string, tasks []console.TaskRef, quiet, verbose bool) error {
	ids, chooses := q.Jobs, choosesJobs(q)
	if send != nil && len(q.States) == 0 {
		q.States = []string{"RUNNING"}
	}
	if chooses && len(tasks) > 0 {
		return fmt.Errorf("%s: name tasks of arrays without options that choose jobs", tasks[0])
	}
	if chooses {
		var err error
		if ids, tasks, err = chosen(ctx, e, c, q); err != nil {
			return err
		}
	}
	if send != nil && chooses {
		args = texts(ids)
	}
	if send != nil {
		return signalJobs(ctx, e, c, args, send, verbose)
	}
	return endJobs(ctx, e, c, ids, tasks, quiet, verbose)
}

// choosesJobs reports whether options choose jobs, besides ids.
func choosesJobs(q *slurm.Squeue) bool {
	return len(q.Users)+len(q.Names)+len(q.Partitions)+len(q.States)+len(q.Nodes) > 0
}

// toSend is what scancel --signal asks for, nil where it is to end jobs.
func toSend(text string, batch, full bool) (*apiv1.AttachSignal, error) {
	switch strings.TrimPrefix(strings.ToUpper(text), "SIG") {
	case "", "TERM", "KILL", "15", "9":
		return nil, nil
	}
	sig, err := client.ParseSignal(text)
	if err != nil {
		return nil, slurm.Message("Unknown job signal: " + text)
	}
	return &apiv1.AttachSignal{Number: uint32(sig), First: batch && !full, All: full}, nil
}

// signalJobs sends a signal to running jobs, to each once. One that cannot be
// signalled is an error of the command, but not for the others.
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
			faults = append(faults, slurm.Message(fmt.Sprintf("Kill job error on job id %s: %v", arg, err)))
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

// chosen are the jobs, and tasks of arrays, that have not ended and that the
// options name.
func chosen(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue) (ids []uint64, tasks []console.TaskRef, err error) {
	got, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Ids: q.Jobs, Brief: true})
	if err != nil {
		return nil, nil, err
	}
	for _, j := range got {
		switch s := slurmJob(viewFrom(e), j); {
		case !q.Wants(&s):
		case s.Folds(): // its id is that of the last task
			tasks = append(tasks, console.TaskRef{Array: s.ArrayID, Tasks: tasksOf(j)})
		default:
			ids = append(ids, s.ID)
		}
	}
	return ids, tasks, nil
}

// endJobs cancels any number of jobs and tasks of arrays. One that is not there, or that the caller
// may not end, is an error of the command, but not for the other jobs.
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
		var resp *apiv1.CancelJobsResponse
		err := c.Jobs(ctx, client.Changes, func(ctx context.Context, s apiv1.JobServiceClient) (err error) {
			resp, err = s.CancelJobs(ctx, req)
			return err
		})
		if err != nil {
			return console.UnknownChange(err, "Cancelling again is safe.")
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
					faults = append(faults, slurm.Message(fmt.Sprintf("Kill job error on job id %s: Invalid job id specified", name)))
				}
			case apiv1.CancelOutcome_CANCEL_OUTCOME_DENIED:
				faults = append(faults, slurm.Message(fmt.Sprintf("Kill job error on job id %s: Access/permission denied", name)))
			case apiv1.CancelOutcome_CANCEL_OUTCOME_ALREADY_FINISHED:
				if verbose {
					e.Warnf("Kill job error on job id %s: Job/step already completing or completed", name)
				}
			}
		}
	}
	return errors.Join(faults...)
}

const scontrolExamples = "  berth scontrol show job 12\n  berth scontrol update nodename=gpu3 state=drain reason=\"Xid 79\"\n  ln -s /usr/bin/berth /usr/local/bin/scontrol && scontrol show hostnames 'gpu[01-04]'"

// NewScontrolCmd returns the command scontrol.
func NewScontrolCmd(e *console.Env, c *client.Client) *cobra.Command {
	var r recordOptions
	var all bool
	return slurmCommand(e, "scontrol [OPTIONS…] COMMAND…", "Show and change things as Slurm's scontrol does", scontrolExamples, func(fs *pflag.FlagSet) {
		fs.BoolVarP(&r.OneLine, "oneliner", "o", false, "a line for each record")
		fs.BoolVarP(&r.Detail, "details", "d", false, "more of each job")
		fs.BoolVarP(&all, "all", "a", false, "taken for Slurm's sake")
		fs.BoolVar(&r.json, "json", false, "show jobs and nodes as JSON, with Berth's own fields")
	}, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return errNoAction
		}
		rest := args[1:]
		switch strings.ToLower(args[0]) {
		case "show":
			return runScontrolShow(ctx, e, c, &r, rest)
		case "hold", "uhold", "holdu", "release", "requeue", "requeuehold":
			return runScontrolJobs(ctx, e, c, strings.ToLower(args[0]), rest)
		case "update":
			return runScontrolChange(ctx, e, c, rest)
		case "create":
			return runScontrolReserve(ctx, e, c, rest, true)
		case "delete":
			return runScontrolDelete(ctx, c, rest)
		case "ping":
			return runScontrolPing(ctx, e, c)
		case "top":
			return runScontrolTop(ctx, e, c, rest)
		case "wait_job":
			return runScontrolWait(ctx, e, c, rest)
		case "version":
			e.Printf("berth %s, with the options of slurm 22.05\n", console.Version().Version)
			return nil
		}
		return bare("invalid keyword: " + args[0])
	})
}

// recordOptions are how scontrol shows things.
type recordOptions struct {
	slurm.Record
	json bool
}

func runScontrolShow(ctx context.Context, e *console.Env, c *client.Client, r *recordOptions, args []string) error {
	if len(args) == 0 {
		return errors.New("name what to show: job, node, partition, reservation, config, hostnames, hostlist")
	}
	what, rest := strings.ToLower(args[0]), args[1:]
	if r.json && !strings.HasPrefix(what, "job") && !strings.HasPrefix(what, "node") {
		return errors.New("--json is of show job and show node")
	}
	what, value, has := strings.Cut(what, "=")
	if has {
		rest = append([]string{value}, rest...)
	}
	switch what {
	case "job", "jobs", "jobid":
		return showSlurmJobs(ctx, e, c, r, rest)
	case "node", "nodes", "nodename":
		return showSlurmNodes(ctx, e, c, r, rest)
	case "partition", "partitions", "partitionname":
		return showSlurmPartitions(ctx, e, c, r, rest)
	case "reservation", "reservations", "reservationname":
		return showSlurmReservations(ctx, e, c, r, rest)
	case "config":
		return runScontrolConfig(ctx, e, c)
	case "hostnames", "hostname":
		list := cmp.Or(strings.Join(rest, ","), e.Getenv("SLURM_JOB_NODELIST"))
		if list == "" {
			return errors.New("host list is empty")
		}
		names, err := slurm.Unfold(list)
		if err != nil {
			return slurm.Message(fmt.Sprintf("Invalid hostlist: %v", err))
		}
		e.Printf("%s\n", strings.Join(names, "\n"))
		return nil
	case "hostlist", "hostlistsorted":
		if len(rest) == 0 {
			return errors.New("host list is empty")
		}
		e.Printf("%s\n", slurm.Fold(listOf(rest[0])))
		return nil
	}
	return bare("invalid entity:" + what + " for keyword:show ")
}

func showSlurmNodes(ctx context.Context, e *console.Env, c *client.Client, r *recordOptions, args []string) error {
	_, nodes, err := slurmCluster(ctx, e, c)
	if err != nil {
		return err
	}
	want, err := slurm.Unfold(strings.Join(args, ","))
	if err != nil {
		return slurm.Message(fmt.Sprintf("Invalid node name %v", err))
	}
	for _, name := range want {
		if !slices.ContainsFunc(nodes, func(n slurm.Node) bool { return n.Name == name }) {
			return bare("Node " + name + " not found")
		}
	}
	if r.json {
		return sinfoJSON(ctx, e, c, &slurm.Sinfo{Nodes: want})
	}
	for i := range nodes {
		if len(want) > 0 && !slices.Contains(want, nodes[i].Name) {
			continue
		}
		if err := r.Node(e.Out, &nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

func showSlurmPartitions(ctx context.Context, e *console.Env, c *client.Client, r *recordOptions, args []string) error {
	parts, nodes, err := slurmCluster(ctx, e, c)
	if err != nil {
		return err
	}
	found := false
	for i := range parts {
		if len(args) > 0 && !slices.Contains(args, parts[i].Name) {
			continue
		}
		found = true
		if err := r.Partition(e.Out, &parts[i], nodes); err != nil {
			return err
		}
	}
	if !found && len(args) > 0 {
		return bare("Partition " + args[0] + " not found")
	}
	return nil
}

// runScontrolUpdate drains and resumes nodes.
func runScontrolUpdate(ctx context.Context, c *client.Client, args []string) error {
	set := map[string]string{}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		if key = strings.ToLower(key); !ok || !slices.Contains([]string{"nodename", "state", "reason"}, key) {
			return bare("Update of this parameter is not supported: " + a + "\nRequest aborted")
		}
		set[key] = value
	}
	names, err := slurm.Unfold(set["nodename"])
	if err != nil || len(names) == 0 {
		return bare("No valid entity in update command\nInput line must include \"NodeName\"")
	}
	drain := false
	switch state := strings.ToUpper(set["state"]); {
	case (state == "DRAIN" || state == "DOWN") && set["reason"] == "":
		return bare("You must specify a reason when DOWNING or DRAINING a node. Request denied")
	case state == "DRAIN", state == "DOWN":
		drain = true
	case state != "RESUME" && state != "UNDRAIN" && state != "IDLE":
		return bare(fmt.Sprintf("Invalid input: state=%s\nRequest aborted\nValid states are: DRAIN, RESUME", set["state"]))
	}
	for _, name := range names {
		err := c.Cluster(ctx, client.Changes, func(ctx context.Context, s apiv1.ClusterServiceClient) error {
			var err error
			if drain {
				_, err = s.DrainNode(ctx, &apiv1.DrainNodeRequest{Id: name, Reason: set["reason"]})
			} else {
				_, err = s.ResumeNode(ctx, &apiv1.ResumeNodeRequest{Id: name})
			}
			return err
		})
		if err != nil {
			return nodeFault(err)
		}
	}
	return nil
}

// nodeFault is why a node could not be changed.
func nodeFault(err error) error {
	if ce, ok := errors.AsType[*cluster.Error](err); ok && (ce.Code == cluster.CodeUnavailable || ce.Code == cluster.CodeUnknown) {
		return err
	}
	return bare("slurm_update error: " + sbatch.InSlurmWords(err))
}

func getStatus(ctx context.Context, c *client.Client) (st *apiv1.GetStatusResponse, err error) {
	err = c.Cluster(ctx, client.Reads, func(ctx context.Context, s apiv1.ClusterServiceClient) (err error) {
		st, err = s.GetStatus(ctx, &apiv1.GetStatusRequest{})
		return err
	})
	return st, err
}

func runScontrolPing(ctx context.Context, e *console.Env, c *client.Client) error {
	st, err := getStatus(ctx, c)
	if err != nil {
		return err
	}
	printPing(e, slices.SortedFunc(slices.Values(st.GetMembers()), leadersFirst))
	return nil
}

// printPing says which coordinators answer, the leader first.
func printPing(e *console.Env, members []*apiv1.Member) {
	role := "primary"
	for _, m := range members {
		up := "DOWN"
		if m.GetReachable() {
			up = "UP"
		}
		e.Printf("Slurmctld(%s) at %s is %s\n", role, m.GetId(), up)
		role = "backup"
	}
}

func leadersFirst(a, b *apiv1.Member) int {
	switch {
	case a.GetLeader() && !b.GetLeader():
		return -1
	case b.GetLeader() && !a.GetLeader():
		return 1
	}
	return cmp.Compare(a.GetId(), b.GetId())
}

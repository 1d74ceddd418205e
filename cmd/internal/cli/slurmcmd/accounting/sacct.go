package accounting

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"

	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/openapi"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const sacctExamples = "  berth sacct -X -S now-1day\n  ln -s /usr/bin/berth /usr/local/bin/sacct && sacct -j 12 -P -o JobID,State,Elapsed"

// acctOptions are the options of sacct.
type acctOptions struct {
	print                                            slurm.Sacct
	jobs, users, accounts, names, states, parts, qos string
	nodes, cpus, counts, reasons, least, most        string
	from, to, unit                                   string
	allocations, allUsers, help, json                bool
}

// NewSacctCmd returns the command sacct.
func NewSacctCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o acctOptions
	return option.Command(e, "sacct [OPTIONS…]", "List jobs, including ended ones, like Slurm's sacct", sacctExamples, o.flags, func(ctx context.Context, args []string) error {
		if o.help {
			e.Printf("%s\n", slurm.HelpFormat())
			return nil
		}
		return runSacct(ctx, e, c, &o)
	})
}

func (o *acctOptions) flags(fs *pflag.FlagSet) {
	option.AddsUp(fs, &o.jobs, "jobs", "j", "only these jobs, arrays or tasks, as 12,17_3")
	option.AddsUp(fs, &o.users, "user", "u", "only jobs of these users")
	option.AddsUp(fs, &o.users, "uid", "", "the same")
	fs.BoolVarP(&o.allUsers, "allusers", "a", false, "jobs of all users")
	option.AddsUp(fs, &o.accounts, "accounts", "A", "only jobs of these accounts")
	option.AddsUp(fs, &o.names, "name", "", "only jobs of these names")
	option.AddsUp(fs, &o.states, "state", "s", "only jobs in these states")
	option.AddsUp(fs, &o.parts, "partition", "r", "only jobs of these partitions")
	option.AddsUp(fs, &o.qos, "qos", "q", "only jobs of these qualities of service")
	fs.StringVarP(&o.nodes, "nodelist", "N", "", "only jobs that ran on any of these nodes")
	fs.StringVarP(&o.from, "starttime", "S", "", "jobs that ended after this, or have not ended; midnight without -j")
	fs.StringVarP(&o.to, "endtime", "E", "", "jobs that were submitted before this")
	option.AddsUp(fs, &o.print.Format, "format", "o", "fields, each with %WIDTH")
	fs.BoolVarP(&o.print.NoHead, "noheader", "n", false, "omit the header line")
	fs.BoolVarP(&o.print.Parsable, "parsable", "p", false, "end fields with |")
	fs.BoolVarP(&o.print.Parsable2, "parsable2", "P", false, "separate fields with |")
	fs.StringVar(&o.print.Delimiter, "delimiter", "", "separator instead of |")
	fs.BoolVarP(&o.allocations, "allocations", "X", false, "jobs only, no steps")
	fs.BoolVarP(&o.print.Brief, "brief", "b", false, "JobID, State and ExitCode")
	fs.BoolVarP(&o.print.Long, "long", "l", false, "a long list of fields")
	option.Variables(fs, "SACCT_FORMAT=format")
	option.Mark(fs, "format", option.MarkUnless, "brief", "long")
	fs.BoolVarP(&o.help, "helpformat", "e", false, "list the fields")
	fs.StringVar(&o.unit, "units", "", "unit of amounts: K, M, G, T or P; by default the one that fits")
	fs.BoolVar(&o.json, "json", false, "print JSON, as Slurm does")
	fs.StringVarP(&o.reasons, "reason", "R", "", "only jobs that wait or ended for these reasons")
	fs.StringVarP(&o.counts, "nnodes", "i", "", "only jobs with this many nodes: 2, or 2-4")
	fs.StringVarP(&o.cpus, "ncpus", "I", "", "only jobs with this many cores: 2, or 2-4")
	fs.StringVarP(&o.least, "timelimit-min", "k", "", "only jobs with this time limit, or at least this with -K")
	fs.StringVarP(&o.most, "timelimit-max", "K", "", "with -k, and at most this time limit")
	o.takenFlags(fs)
}

// takenFlags adds options that are ignored or refused.
func (o *acctOptions) takenFlags(fs *pflag.FlagSet) {
	option.Ignore(fs, "a job is one line, however often it ran", "duplicates,D")
	option.Ignore(fs, "times are not truncated", "truncate,T")
	option.Ignore(fs, "amounts are not converted", "noconvert")
	option.Ignore(fs, "there is no more detail", "verbose,v")
	option.Ignore(fs, "users are those of the cluster", "use-local-uid")
	option.Clusters(fs)
	option.OfClusters(fs, "allclusters,L", "federation", "local")
	fs.String("whole-hetjob", "", "accepted for compatibility: there are no heterogeneous jobs")
	fs.Lookup("whole-hetjob").NoOptDefVal = "yes"
	option.Mark(fs, "whole-hetjob", option.MarkIgnored, "there are no heterogeneous jobs")
	option.Refuse(fs, "flags", "F", true, "which scheduler started a job is not recorded; berth why JOB says why it started when it did")
	option.Refuse(fs, "associations", "x", true, "associations have no numbers; select with --accounts and --user")
	option.Refuse(fs, "batch-script", "B", false, "scripts cannot be retrieved; keep them with the job's output")
	option.Refuse(fs, "env-vars", "", false, "environments cannot be retrieved; run env in the script")
	option.Refuse(fs, "completion", "c", false, "there is no completion log besides accounting; leave it out")
	option.Refuse(fs, "file", "f", true, "there is no completion log besides accounting; leave it out")
	option.Refuse(fs, "constraints", "C", true, "jobs cannot be selected by features; list them with -o JobID,Constraints")
	option.Refuse(fs, "gid", "g", true, "jobs cannot be selected by group; select with --user or --accounts")
	option.Refuse(fs, "group", "", true, "jobs cannot be selected by group; select with --user or --accounts")
	option.Refuse(fs, "wckeys", "W", true, "there are no workload keys; jobs are charged by account")
	option.Refuse(fs, "yaml", "", false, "YAML is not supported here; use --json, or berth history -o csv")
}

// window is the time that sacct covers.
type window struct{ from, to time.Time }

// acctJob is an argument of -j: a job, an array, or one task of it.
type acctJob struct {
	id   uint64
	task int64 // -1 for none
}

func (a acctJob) is(j *apiv1.Job) bool {
	if a.task >= 0 && j.GetArrayCount() > 1 { // one of several that are still one
		tasks, err := cluster.ParseTasks(j.GetArrayTasks())
		if err != nil || j.GetArrayJobId() != a.id {
			return false
		}
		_, is := tasks.Rank(uint32(a.task))
		return is
	}
	if a.task >= 0 {
		return j.GetArrayJobId() == a.id && j.ArrayTaskId != nil && int64(j.GetArrayTaskId()) == a.task
	}
	return j.GetId() == a.id || j.GetArrayJobId() == a.id
}

// acctJobs reads -j; steps count as their job.
func acctJobs(list string) ([]acctJob, error) {
	var out []acctJob
	for _, s := range option.List(list) {
		job, _, _ := strings.Cut(s, ".")
		id, task, isTask := strings.Cut(job, "_")
		a := acctJob{task: -1}
		var err error
		if a.id, err = strconv.ParseUint(id, 10, 63); err == nil && isTask {
			a.task, err = strconv.ParseInt(task, 10, 32)
		}
		if err != nil {
			return nil, text.Message("Bad job/step specified: " + s)
		}
		out = append(out, a)
	}
	return out, nil
}

func runSacct(ctx context.Context, e *console.Env, c *client.Client, o *acctOptions) error {
	named, err := acctJobs(o.jobs)
	if err != nil {
		return err
	}
	w, err := acctWindow(o.from, o.to, e.Now(), len(named) > 0)
	if err != nil {
		return err
	}
	p, err := o.printer(e)
	if err != nil {
		return err
	}
	req := &apiv1.ListHistoryRequest{Unfinished: true, OldestFirst: true, Filter: &apiv1.HistoryFilter{
		Users: option.List(o.users), Accounts: option.List(o.accounts), Names: option.List(o.names), EndedFrom: instantOf(w.from), SubmittedBefore: instantOf(w.to),
	}}
	for _, a := range named {
		req.Filter.Ids = append(req.Filter.Ids, a.id)
	}
	if o.users == "" && !o.allUsers && len(named) == 0 && e.User() != "0" {
		req.Filter.Users = []string{e.User()}
	}
	ranges, err := o.ranges()
	if err != nil {
		return err
	}
	pick := acctPick{ranges: ranges, reasons: option.List(o.reasons), named: named, q: slurm.Squeue{Partitions: option.List(o.parts), States: []string{"ALL"}}}
	if pick.states, err = newStateFilter(o.states, w, o.from != "" || o.to != ""); err != nil {
		return err
	}
	if pick.nodes, err = slurm.Unfold(o.nodes); err != nil {
		return text.Message("Invalid node list: " + o.nodes)
	}
	var jobs []*apiv1.Job
	v := terms.ViewFrom(e)
	gaps, err := client.ListHistory(ctx, c, req, func(page []*apiv1.Job) error {
		jobs = append(jobs, slices.DeleteFunc(page, func(j *apiv1.Job) bool { return !o.wants(&pick, j, v) })...)
		return nil
	})
	if err != nil {
		return err
	}
	if u := e.Accounts.Unknown(option.List(o.users)); u != "" && len(jobs) == 0 {
		return text.Message("Invalid user id: " + u) // users of other machines are found by their jobs
	}
	slices.SortFunc(jobs, func(a, b *apiv1.Job) int { return cmp.Compare(a.GetId(), b.GetId()) })
	for _, text := range gaps.Texts() {
		e.Warnf("%s", text)
	}
	if o.json {
		return sacctJSON(e, jobs, !o.allocations)
	}
	return p.Print(acctRows(v, jobs, o))
}

// acctPick is the part of the selection that the server does not support.
type acctPick struct {
	named  []acctJob
	q      slurm.Squeue
	states stateFilter
	nodes  []string
	// ranges are of nodes, cores and seconds of the time limit.
	ranges  [3]span
	reasons []string
}

// wants selects what the server cannot: by Slurm's names of states, by tasks,
// and among jobs that have not ended.
func (o *acctOptions) wants(pick *acctPick, j *apiv1.Job, v *terms.Viewer) bool {
	if len(pick.named) > 0 && !slices.ContainsFunc(pick.named, func(a acctJob) bool { return a.is(j) }) {
		return false
	}
	if qos := option.List(o.qos); len(qos) > 0 && !slices.Contains(qos, j.GetQos()) {
		return false
	}
	s := acctJobOf(v, j)
	return pick.states.wants(&s) && s.OnSome(pick.nodes) && pick.q.Wants(&s) && (len(pick.reasons) == 0 || slices.Contains(pick.reasons, s.Reason)) &&
		pick.ranges[0].has(int64(s.Nodes)) && pick.ranges[1].has(s.CPUs) && pick.ranges[2].has(int64(s.Limit/time.Second))
}

// printer checks the output options of sacct.
func (o *acctOptions) printer(e *console.Env) (*slurm.Printer, error) {
	if o.unit = strings.ToUpper(o.unit); o.unit != "" && !slurm.KnownUnit(o.unit) {
		return nil, text.Message("Invalid unit type '" + console.Escape(o.unit) + "'")
	}
	return o.print.Printer(e.Out)
}

// acctRows returns jobs in sacct's terms, each followed by its step if steps
// are wanted.
func acctRows(v *terms.Viewer, jobs []*apiv1.Job, o *acctOptions) (rows []slurm.Job) {
	for _, j := range jobs {
		row := acctRow(v, j)
		row.Unit = o.unit
		rows = append(rows, row)
		if step, begun := row.Batch(); begun && !o.allocations {
			rows = append(rows, step)
		}
	}
	return rows
}

// acctJobOf returns a job as the accounting has it: one that is about to run,
// or about to have ended, is running. Clients that wait for a job take any
// other state for its end.
func acctJobOf(v *terms.Viewer, j *apiv1.Job) slurm.Job {
	s := terms.Job(v, j)
	if s.Code == "CF" || s.Code == "CG" {
		s.State, s.Code = "RUNNING", "R"
	}
	return s
}

// acctRow returns a job in sacct's terms.
func acctRow(v *terms.Viewer, j *apiv1.Job) slurm.Job {
	s := acctJobOf(v, j)
	m := j.GetMeasured()
	if s.State == "CANCELLED" && j.GetReason() == "CancelledByUser" {
		s.State = "CANCELLED by " + strconv.FormatUint(uint64(j.GetUid()), 10)
	}
	if s.Array == "" && j.GetArrayJobId() != 0 {
		s.Array = arrayLabel(j)
	}
	s.MaxRSSMiB, s.GPUMemMiB, s.GPUUtilMilli = m.GetHostMemMib(), m.GetGpuMemMib(), m.GetGpuUtilMilli()
	s.CPUUsed = time.Duration(m.GetSeconds() * float64(m.GetCpuMilli()) * float64(time.Millisecond))
	p := m.GetProfile()
	s.EnergyJ, s.ReadBytes, s.WrittenBytes = p.GetEnergyJ(), p.GetReadBytes(), p.GetWrittenBytes()
	if !s.Started.IsZero() {
		s.Waited = max(0, s.Started.Sub(s.Eligible))
	}
	return s
}

// arrayLabel returns 12_3, or 12_[4-9] for tasks that are still one.
func arrayLabel(j *apiv1.Job) string {
	array := strconv.FormatUint(j.GetArrayJobId(), 10)
	if j.GetArrayCount() > 1 {
		return array + "_[" + j.GetArrayTasks() + "]"
	}
	return array + "_" + strconv.FormatUint(uint64(j.GetArrayTaskId()), 10)
}

func instantOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// acctWindow reads -S and -E. Without named jobs the window begins at
// midnight, as with sacct.
func acctWindow(from, to string, now time.Time, named bool) (w window, err error) {
	if from == "" && !named {
		y, m, d := now.Date()
		w.from = time.Date(y, m, d, 0, 0, 0, 0, now.Location())
	}
	for _, x := range []struct {
		text string
		to   *time.Time
	}{{from, &w.from}, {to, &w.to}} {
		if x.text == "" {
			continue
		}
		t, ok := slurm.ParseTime(x.text, now)
		if !ok {
			return w, text.Message("Invalid time specification (pos=0): " + x.text)
		}
		*x.to = t
	}
	end := w.to
	if end.IsZero() {
		end = now
	}
	if w.from.After(end) {
		const form = "2006-01-02T15:04:05"
		return w, text.Message("Start time (" + w.from.Format(form) + ") requested is after end time (" + end.Format(form) + ").")
	}
	return w, nil
}

func sacctJSON(e *console.Env, jobs []*apiv1.Job, steps bool) error {
	v := terms.ViewFrom(e)
	rows := make([]slurm.Job, len(jobs))
	for i, j := range jobs {
		rows[i] = acctRow(v, j)
	}
	_, err := console.PrintList(e, console.FormatJSON, openapi.NewAcct(rows, steps))
	return err
}

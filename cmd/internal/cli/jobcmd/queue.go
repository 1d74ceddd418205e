package jobcmd

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// QueueOptions are the flags of queue.
type QueueOptions struct {
	User, State, Output string
	partition           string
	Me, all, watch      bool
	interval            time.Duration
	noHeader, start     bool
	each                bool // list each task of an array
	shape               console.Shape
}

// NewQueueCmd returns the command queue.
func NewQueueCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o QueueOptions
	cmd := &cobra.Command{
		Use:   "queue [flags] [JOB…]",
		Short: "List jobs",
		Long: "List jobs that have not ended; --all or --state includes others. States are PENDING (PD),\n" +
			"QUEUED (QD, in the queue of one GPU), STARTING (CF), RUNNING (R), COMPLETING (CG),\n" +
			"UNREACHABLE (UN) and, for ended jobs, COMPLETED (CD), FAILED (F), CANCELLED (CA),\n" +
			"TIMEOUT (TO), OUT_OF_MEMORY (OOM), NODE_FAIL (NF), PREEMPTED (PR), DEADLINE (DL).",
		Example: "  berth queue --me\n  berth queue --state PD,QD -o wide\n  berth queue -o json 12-20\n  berth queue --sort -TIME -o cols=jobid,time,share,predicted\n  berth queue --me -o name | xargs -r berth cancel",
		RunE: func(cmd *cobra.Command, args []string) error {
			return RunQueue(cmd.Context(), e, c, &o, args)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.User, "user", "u", "", "only jobs of these users, a comma-separated `LIST`")
	fs.BoolVar(&o.Me, "me", false, "only your own jobs")
	fs.StringVarP(&o.State, "state", "t", "", "only jobs in these states, a comma-separated `LIST` of names or codes")
	fs.StringVarP(&o.partition, "partition", "p", "", "only jobs of these partitions, a comma-separated `LIST`")
	fs.BoolVarP(&o.all, "all", "a", false, "include jobs that have ended")
	fs.BoolVar(&o.start, "start", false, "only waiting jobs, with their expected start")
	fs.BoolVarP(&o.watch, "watch", "w", false, "repeat the list until interrupted")
	fs.DurationVar(&o.interval, "interval", 2*time.Second, "how often --watch repeats, at least 1s")
	fs.BoolVarP(&o.each, "array", "r", false, "one line per running array task, even on a terminal")
	fs.BoolVar(&o.noHeader, "no-header", false, "omit the header line")
	console.AddShape(cmd, &o.Output, &o.shape, console.FormatTable, console.FormatWide, console.FormatJSON, console.FormatYAML, console.FormatName)
	return cmd
}

// RunQueue lists jobs as o specifies, once or until ctx ends.
func RunQueue(ctx context.Context, e *console.Env, c *client.Client, o *QueueOptions, args []string) error {
	refs, err := client.ParseJobRefs(ctx, c, args)
	if err != nil {
		return err
	}
	req, err := o.request(e, refs.IDs())
	if err != nil {
		return err
	}
	if !o.watch {
		defer console.Page(e)()
		return listOnce(ctx, e, c, o, req, refs)
	}
	if o.interval < time.Second {
		return console.Usagef("--interval %s: must be at least 1s", o.interval)
	}
	for first := true; ; first = false {
		if e.IsTerminal {
			e.Printf("\x1b[H\x1b[J")
		} else if !first {
			e.Printf("\n")
		}
		if err := onScreen(e, func() error { return listOnce(ctx, e, c, o, req, refs) }); err != nil {
			return err
		}
		if err := e.Flush(); err != nil {
			return err
		}
		if !wait.Sleep(ctx, o.interval) {
			return context.Cause(ctx)
		}
	}
}

// onScreen prints as much of list's output as the terminal shows, and how
// much more there is.
func onScreen(e *console.Env, list func() error) error {
	height := 0
	if e.IsTerminal && e.Height != nil {
		height = e.Height()
	}
	if height == 0 {
		return list()
	}
	var all bytes.Buffer
	to := e.Out
	e.Out = bufio.NewWriter(&all)
	err := list()
	_ = e.Out.Flush() // into memory
	e.Out = to
	lines := strings.SplitAfter(strings.TrimSuffix(all.String(), "\n"), "\n")
	if len(lines) < height {
		e.Printf("%s", all.String())
		return err
	}
	e.Printf("%sand %d more lines", strings.Join(lines[:height-1], ""), len(lines)-height+1)
	return err
}

func (o *QueueOptions) request(e *console.Env, ids []uint64) (req *apiv1.ListJobsRequest, err error) {
	f := console.Format(o.Output)
	req = &apiv1.ListJobsRequest{Ids: ids, Finished: o.all || len(ids) > 0, Brief: f == console.FormatTable || f == console.FormatName}
	for u := range strings.SplitSeq(o.User, ",") {
		if u != "" {
			req.Users = append(req.Users, u)
		}
	}
	for p := range strings.SplitSeq(o.partition, ",") {
		if p != "" {
			req.Partitions = append(req.Partitions, p)
		}
	}
	if o.Me {
		me := e.User()
		if me == "" {
			return nil, console.Usagef("--me: your user name is not known; give it with --user")
		}
		req.Users = append(req.Users, me)
	}
	req.States, err = parseStates(o.State)
	return req, err
}

// parseStates reads names and codes, in any case.
func parseStates(list string) ([]string, error) {
	var out []string
	for s := range strings.SplitSeq(list, ",") {
		if s == "" {
			continue
		}
		st, err := cluster.ParseJobState(strings.ToUpper(s))
		if err != nil {
			var known []string
			for k := cluster.JobPending; k <= cluster.JobDeadline; k++ {
				known = append(known, k.String())
			}
			return nil, console.Usagef("--state %s: want some of %s%s", console.ShortQuote(s), strings.Join(known, ", "), console.DidYouMean(s, known))
		}
		out = append(out, st.String())
	}
	return out, nil
}

func listOnce(ctx context.Context, e *console.Env, c *client.Client, o *QueueOptions, req *apiv1.ListJobsRequest, refs client.JobRefs) error {
	list := client.ListJobs
	if req.Brief {
		list = client.ListBrief
	}
	var jobs []*apiv1.Job
	var err error
	if console.Format(o.Output) == console.FormatJSON && !o.start {
		jobs, err = listJSON(ctx, e, c, req, refs)
	} else if jobs, err = list(ctx, c, req); err == nil {
		jobs = refs.Keep(jobs)
		if o.start {
			return printStarts(ctx, e, c, o, jobs)
		}
		err = printJobs(ctx, e, c, o, jobs, len(refs) > 0)
	}
	if err != nil {
		return err
	}
	if len(jobs) == 0 {
		e.WarnUnknown(req.Users)
	}
	if len(req.States) > 0 || len(req.Users) > 0 || len(req.Partitions) > 0 {
		return nil
	}
	return refs.Missing(jobs)
}

// fewStarts is how many waiting jobs are forecast in JSON of jobs that are
// not named: each is simulated, which took 5 ms where 10,000 waited. The rest
// have no forecast.
const fewStarts = 20

// listJSON prints jobs while later ones are still arriving, and returns those
// that refs names.
func listJSON(ctx context.Context, e *console.Env, c *client.Client, req *apiv1.ListJobsRequest, refs client.JobRefs) (named []*apiv1.Job, err error) {
	var list console.JSONList
	var views view.Jobs
	left := fewStarts
	if len(refs) > 0 {
		left = client.MostForecasts
	}
	for page, err := range client.JobPages(ctx, c, req) {
		if err != nil {
			return nil, err
		}
		page = refs.Keep(page)
		if left, err = client.Expect(ctx, c, page, left); err != nil {
			return nil, err
		}
		for _, j := range page {
			if err := list.Add(e, views.Job(j)); err != nil {
				return nil, err
			}
		}
		if len(refs) > 0 {
			named = append(named, page...)
		}
	}
	return named, list.Close(e)
}

func printJobs(ctx context.Context, e *console.Env, c *client.Client, o *QueueOptions, jobs []*apiv1.Job, named bool) error {
	f := console.Format(o.Output)
	switch f {
	case console.FormatYAML:
		if _, err := client.Expect(ctx, c, jobs, client.MostForecasts); err != nil {
			return err
		}
		views := make([]view.JobView, 0, len(jobs))
		for _, j := range jobs {
			views = append(views, view.Job(j))
		}
		_, err := console.PrintList(e, f, views)
		return err
	case console.FormatName:
		for _, j := range jobs {
			e.Printf("%s\n", client.JobLabel(j))
		}
		return nil
	}
	all := jobs
	if jobs = client.Folded(jobs); e.IsTerminal && !o.each && !named {
		jobs = client.FoldedRunning(jobs)
	}
	var starts map[uint64]*apiv1.JobForecast
	if f == console.FormatWide && o.shape.Shows("EST_START") {
		var err error
		if starts, err = client.Forecasts(ctx, c, waitingIDs(jobs)); err != nil {
			return err
		}
	}
	t := jobTable(e, f, jobs, starts)
	t.NoHead = o.noHeader
	if err := o.shape.Print(e, t); err != nil {
		return err
	}
	if e.IsTerminal && !o.noHeader && !named {
		e.Printf("%s\n", sums(all))
	}
	return nil
}

// sums counts the jobs of a listing, each task of an array separately.
func sums(jobs []*apiv1.Job) string {
	var run, wait, ended int
	cards := map[string]bool{}
	for _, j := range jobs {
		n := max(1, int(j.GetArrayCount()))
		switch {
		case console.Waiting(j.GetState()):
			wait += n
		case console.Terminal(j.GetState()):
			ended += n
		default:
			run += n
			for _, g := range j.GetGpus() {
				cards[g.GetUuid()] = true
			}
		}
	}
	text := fmt.Sprintf("%d running on %s, %d waiting", run, console.Plural(len(cards), "GPU", "GPUs"), wait)
	if ended > 0 {
		text += fmt.Sprintf(", %d ended", ended)
	}
	return text
}

func waitingIDs(jobs []*apiv1.Job) (ids []uint64) {
	for _, j := range jobs {
		if console.Waiting(j.GetState()) {
			ids = append(ids, j.GetId())
		}
	}
	return ids
}

// jobTable returns the table of jobs. EST_START of a waiting job, from
// starts, is the later end of the range that why prints, as in squeue
// --start.
func jobTable(e *console.Env, f console.Format, jobs []*apiv1.Job, starts map[uint64]*apiv1.JobForecast) *console.Table {
	t := &console.Table{Cols: []console.Column{{Head: "JOBID", Right: true}}}
	parted := slices.ContainsFunc(jobs, func(j *apiv1.Job) bool { return j.GetPartition() != "" })
	if parted {
		t.Cols = append(t.Cols, console.Column{Head: "PARTITION", Drop: 3})
	}
	t.Cols = append(t.Cols, console.Column{Head: "NAME", Shrink: true}, console.Column{Head: "USER", Drop: 2}, console.Column{Head: "ST", Paint: console.StateColour},
		console.Column{Head: "TIME", Right: true, Drop: 1}, console.Column{Head: "GPUS", Right: true, Drop: 4}, console.Column{Head: "GPU", Shrink: true, Drop: 5})
	if f == console.FormatWide {
		t.Cols = append(t.Cols, console.Column{Head: "SHARE", Drop: 7}, console.Column{Head: "PREDICTED", Drop: 8}, console.Column{Head: "SUBMITTED", Drop: 9}, console.Column{Head: "EST_START", Drop: 6})
	}
	t.Cols = append(t.Cols, console.Column{Head: "NODE(REASON)", Shrink: true})
	for _, j := range jobs {
		row := []string{jobLabel(j)}
		if parted {
			row = append(row, console.OrDash(j.GetPartition()))
		}
		row = append(row, j.GetName(), j.GetUser(), console.StateCode(j.GetState()),
			console.Elapsed(e, j), strconv.Itoa(int(j.GetGpusWanted())), cardsOf(j))
		if f == console.FormatWide {
			row = append(row, console.ShareText(j.GetGpus()), predictionText(j),
				console.OrDash(console.When(e, j.GetSubmitted())), console.OrDash(console.When(e, starts[j.GetId()].GetForecast().GetStartP90())))
		}
		w := console.Where(j)
		if f == console.FormatWide && j.GetReasonDetail() != "" && j.GetNode() == "" {
			w = "(" + console.ReasonText(j.GetReason(), j.GetReasonDetail()) + ")"
		}
		t.Add(append(row, w)...)
	}
	return t
}

package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

type queueOptions struct {
	user, state, output string
	partition           string
	me, all, watch      bool
	interval            time.Duration
	noHeader            bool
}

func newQueueCmd(e *Env, c *client) *cobra.Command {
	var o queueOptions
	cmd := &cobra.Command{
		Use:   "queue [flags] [JOB…]",
		Short: "List jobs",
		Long: "List jobs that have not ended; with --all or --state also others. States are PENDING (PD),\n" +
			"QUEUED (QD, in the queue of one GPU), STARTING (CF), RUNNING (R), COMPLETING (CG),\n" +
			"UNREACHABLE (UN) and, for jobs that ended, COMPLETED (CD), FAILED (F), CANCELLED (CA),\n" +
			"TIMEOUT (TO), OUT_OF_MEMORY (OOM), NODE_FAIL (NF), PREEMPTED (PR), DEADLINE (DL).",
		Example: "  berth queue --me\n  berth queue --state PD,QD -o wide\n  berth queue -o json 12-20\n  berth queue --me -o name | xargs -r berth cancel",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runQueue(cmd.Context(), e, c, &o, args)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.user, "user", "u", "", "only jobs of these users, a comma-separated `LIST`")
	fs.BoolVar(&o.me, "me", false, "only jobs of mine")
	fs.StringVarP(&o.state, "state", "t", "", "only jobs in these states, a comma-separated `LIST` of names or codes")
	fs.StringVarP(&o.partition, "partition", "p", "", "only jobs of these partitions, a comma-separated `LIST`")
	fs.BoolVarP(&o.all, "all", "a", false, "also jobs that have ended")
	fs.BoolVarP(&o.watch, "watch", "w", false, "list again and again until interrupted")
	fs.DurationVar(&o.interval, "interval", 2*time.Second, "how often --watch lists, at least 1s")
	fs.BoolVar(&o.noHeader, "no-header", false, "leave out the heads of the columns")
	addFormat(cmd, &o.output, formatTable, formatWide, formatJSON, formatYAML, formatName)
	return cmd
}

func runQueue(ctx context.Context, e *Env, c *client, o *queueOptions, args []string) error {
	req, err := o.request(e, args)
	if err != nil {
		return err
	}
	if !o.watch {
		return listOnce(ctx, e, c, o, req)
	}
	if o.interval < time.Second {
		return Usagef("--interval %s: must be at least 1s", o.interval)
	}
	for first := true; ; first = false {
		if e.IsTerminal {
			e.printf("\x1b[H\x1b[2J")
		} else if !first {
			e.printf("\n")
		}
		if err := listOnce(ctx, e, c, o, req); err != nil {
			return err
		}
		if err := e.flush(); err != nil {
			return err
		}
		if !sleep(ctx, o.interval) {
			return context.Cause(ctx)
		}
	}
}

func (o *queueOptions) request(e *Env, args []string) (*apiv1.ListJobsRequest, error) {
	ids, err := parseIDs(args)
	if err != nil {
		return nil, err
	}
	f := format(o.output)
	req := &apiv1.ListJobsRequest{Ids: ids, Finished: o.all || len(ids) > 0, Brief: f == formatTable || f == formatName}
	for u := range strings.SplitSeq(o.user, ",") {
		if u != "" {
			req.Users = append(req.Users, u)
		}
	}
	for p := range strings.SplitSeq(o.partition, ",") {
		if p != "" {
			req.Partitions = append(req.Partitions, p)
		}
	}
	if o.me {
		me := e.User()
		if me == "" {
			return nil, Usagef("--me: it is not known who you are; give your name with --user")
		}
		req.Users = append(req.Users, me)
	}
	req.States, err = parseStates(o.state)
	return req, err
}

// parseStates reads names and codes in any case.
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
			return nil, Usagef("--state %s: want some of %s%s", shortQuote(s), strings.Join(known, ", "), didYouMean(s, known))
		}
		out = append(out, st.String())
	}
	return out, nil
}

func listOnce(ctx context.Context, e *Env, c *client, o *queueOptions, req *apiv1.ListJobsRequest) error {
	jobs, err := listJobs(ctx, c, req)
	if err != nil {
		return err
	}
	if err := printJobs(e, o, jobs); err != nil {
		return err
	}
	return missing(req, jobs)
}

// missing says which of the ids asked for are not there.
func missing(req *apiv1.ListJobsRequest, jobs []*apiv1.Job) error {
	if len(req.States) > 0 || len(req.Users) > 0 || len(req.Partitions) > 0 {
		return nil
	}
	var gone []uint64
	for _, id := range req.Ids {
		if !slices.ContainsFunc(jobs, func(j *apiv1.Job) bool { return j.GetId() == id }) {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return cluster.Errorf(cluster.CodeNotFound, "no such job: %s", idRanges(gone))
}

func printJobs(e *Env, o *queueOptions, jobs []*apiv1.Job) error {
	views := make([]jobView, 0, len(jobs))
	f := format(o.output)
	if f == formatJSON || f == formatYAML {
		for _, j := range jobs {
			views = append(views, viewJob(j))
		}
		_, err := printList(e, f, views)
		return err
	}
	if f == formatName {
		for _, j := range jobs {
			e.printf("%d\n", j.GetId())
		}
		return nil
	}
	t := jobTable(e, f, jobs)
	t.noHead = o.noHeader
	t.print(e)
	return nil
}

func jobTable(e *Env, f format, jobs []*apiv1.Job) *table {
	t := &table{cols: []column{{head: "JOBID", right: true}}}
	parted := slices.ContainsFunc(jobs, func(j *apiv1.Job) bool { return j.GetPartition() != "" })
	if parted {
		t.cols = append(t.cols, column{head: "PARTITION"})
	}
	t.cols = append(t.cols, column{head: "NAME", shrink: true}, column{head: "USER"}, column{head: "ST"},
		column{head: "TIME", right: true}, column{head: "GPUS", right: true}, column{head: "GPU", shrink: true})
	if f == formatWide {
		t.cols = append(t.cols, column{head: "SHARE"}, column{head: "PREDICTED"}, column{head: "SUBMITTED"}, column{head: "EST_START"})
	}
	t.cols = append(t.cols, column{head: "NODE(REASON)", shrink: true})
	for _, j := range jobs {
		row := []string{strconv.FormatUint(j.GetId(), 10)}
		if parted {
			row = append(row, orDash(j.GetPartition()))
		}
		row = append(row, j.GetName(), j.GetUser(), stateCode(j.GetState()),
			elapsed(e, j), strconv.Itoa(int(j.GetGpusWanted())), cardsOf(j))
		if f == formatWide {
			row = append(row, shareText(j.GetGpus()), predictionText(j.GetPredicted()),
				orDash(when(e, j.GetSubmitted())), orDash(when(e, j.GetEstimatedStart())))
		}
		w := where(j)
		if f == formatWide && j.GetReasonDetail() != "" && j.GetNode() == "" {
			w = "(" + reasonText(j.GetReason(), j.GetReasonDetail()) + ")"
		}
		t.add(append(row, w)...)
	}
	return t
}

// predictionText is the short form: "11.2 GiB, 30%, 2h05m".
func predictionText(p *apiv1.Prediction) string {
	if p == nil || p.GetGpuMemMib() == 0 && p.GetSeconds() == 0 {
		return "-"
	}
	return fmt.Sprintf("%s, %s, %s", memOrDash(p.GetGpuMemMib()), percentOf(p.GetGpuUtilMilli()), secondsText(p.GetSeconds()))
}

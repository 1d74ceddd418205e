package acctcmd

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// defaultLimit is how many jobs a table shows when nothing bounds it.
const defaultLimit = 100

type historyOptions struct {
	filterFlags
	csvFlag
	output      string
	limit       int
	oldestFirst bool
	noHeader    bool
}

// NewHistoryCmd returns the command history.
func NewHistoryCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:   "history [flags] [JOB…]",
		Short: "List jobs that have ended",
		Long: "List jobs that have ended, newest first, for as long as the cluster keeps them (by default 90 days,\n" +
			"and at least the last million). Any coordinator answers. An unfiltered table stops after 100 jobs;\n" +
			"csv, json and jsonl (one JSON object per line) print them all.",
		Example: "  berth history --me --last 7d\n  berth history --state FAILED,OUT_OF_MEMORY --since today\n  berth history --oldest-first -o csv > jobs.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runHistory(cmd.Context(), e, c, &o, args, cmd.Flags().Changed("limit"))
		},
	}
	fs := cmd.Flags()
	o.filterFlags.add(fs)
	o.csvFlag.add(fs)
	fs.IntVarP(&o.limit, "limit", "l", 0, "print at most this many; 0 for all")
	fs.BoolVar(&o.oldestFirst, "oldest-first", false, "list the oldest first")
	fs.BoolVar(&o.noHeader, "no-header", false, "omit the header line")
	console.AddFormat(cmd, &o.output, console.FormatTable, console.FormatJSON, console.FormatJSONLines, console.FormatCSV, console.FormatName)
	return cmd
}

func runHistory(ctx context.Context, e *console.Env, c *client.Client, o *historyOptions, args []string, limited bool) error {
	q, refs, err := o.filter(ctx, e, c, args)
	if err != nil {
		return err
	}
	defer console.Page(e)()
	if o.limit < 0 {
		return console.Usagef("--limit %d: must be 0 (all) or more", o.limit)
	}
	f, limit, cut := console.Format(o.output), o.limit, false
	if f == console.FormatTable && !limited && !bounded(q) {
		limit, cut = defaultLimit+1, true
	}
	cells, err := o.cells(f)
	if err != nil {
		return err
	}
	w, err := newHistoryWriter(e, f, cells, o.noHeader)
	if err != nil {
		return err
	}
	n, more := 0, false
	req := &apiv1.ListHistoryRequest{Filter: q, Limit: uint32(min(limit, 1<<30)), OldestFirst: o.oldestFirst}
	gaps, err := client.ListHistory(ctx, c, req, func(jobs []*apiv1.Job) error {
		jobs = refs.Keep(jobs)
		if cut && n+len(jobs) > defaultLimit {
			jobs, more = jobs[:defaultLimit-n], true
		}
		n += len(jobs)
		if err := w.write(jobs); err != nil {
			return err
		}
		return e.Flush()
	})
	if err != nil {
		return err
	}
	if err := w.end(); err != nil {
		return err
	}
	if n == 0 {
		e.WarnUnknown(q.GetUsers())
	}
	if more {
		e.Warnf("showing the newest %d; --limit 0 shows all, --last 7d one week", defaultLimit)
	}
	warnGaps(e, gaps)
	return nil
}

// historyWriter prints jobs as they arrive.
type historyWriter interface {
	write([]*apiv1.Job) error
	end() error
}

func newHistoryWriter(e *console.Env, f console.Format, cells console.Cells, noHeader bool) (historyWriter, error) {
	switch f {
	case console.FormatJSON:
		return &jsonWriter{e: e}, nil
	case console.FormatJSONLines, console.FormatName:
		return &lineWriter{e, f}, nil
	case console.FormatCSV:
		w := &csvWriter{w: console.NewCSV(e.Out, cells)}
		if noHeader {
			return w, nil
		}
		return w, w.head()
	}
	return &tableWriter{e: e, noHeader: noHeader}, nil
}

type jsonWriter struct {
	e    *console.Env
	list console.JSONList
}

func (w *jsonWriter) write(jobs []*apiv1.Job) error {
	for _, j := range jobs {
		if err := w.list.Add(w.e, view.Job(j)); err != nil {
			return err
		}
	}
	return nil
}

func (w *jsonWriter) end() error {
	return w.list.Close(w.e)
}

type lineWriter struct {
	e *console.Env
	f console.Format
}

func (w *lineWriter) write(jobs []*apiv1.Job) error {
	for _, j := range jobs {
		if w.f == console.FormatName {
			w.e.Printf("%d\n", j.GetId())
			continue
		}
		if err := console.PrintJSONLine(w.e, view.Job(j)); err != nil {
			return err
		}
	}
	return nil
}

func (w *lineWriter) end() error { return nil }

// tableWriter collects all rows, since the widths depend on them.
type tableWriter struct {
	e        *console.Env
	noHeader bool
	jobs     []*apiv1.Job
}

func (w *tableWriter) write(jobs []*apiv1.Job) error {
	w.jobs = append(w.jobs, jobs...)
	return nil
}

func (w *tableWriter) end() error {
	has := func(get func(*apiv1.Job) string) bool {
		return slices.ContainsFunc(w.jobs, func(j *apiv1.Job) bool { return get(j) != "" })
	}
	parted, accounted := has((*apiv1.Job).GetPartition), has((*apiv1.Job).GetAccount)
	t := &console.Table{NoHead: w.noHeader, Cols: []console.Column{{Head: "JOBID", Right: true}}}
	if parted {
		t.Cols = append(t.Cols, console.Column{Head: "PARTITION", Drop: 8})
	}
	t.Cols = append(t.Cols, console.Column{Head: "NAME", Shrink: true}, console.Column{Head: "USER", Drop: 4})
	if accounted {
		t.Cols = append(t.Cols, console.Column{Head: "ACCOUNT", Drop: 9})
	}
	t.Cols = append(t.Cols, console.Column{Head: "ST", Paint: console.StateColour}, console.Column{Head: "EXIT", Right: true}, console.Column{Head: "ENDED", Drop: 3},
		console.Column{Head: "TIME", Right: true, Drop: 1}, console.Column{Head: "WAITED", Right: true, Drop: 10}, console.Column{Head: "GPUS", Right: true, Drop: 5},
		console.Column{Head: "TYPE", Shrink: true, Drop: 6}, console.Column{Head: "GPU%", Right: true, Drop: 7}, console.Column{Head: "GPU MEM", Right: true, Drop: 7},
		console.Column{Head: "NODE(REASON)", Shrink: true, Drop: 2})
	for _, j := range w.jobs {
		row := []string{client.JobLabel(j)}
		if parted {
			row = append(row, console.OrDash(j.GetPartition()))
		}
		row = append(row, j.GetName(), j.GetUser())
		if accounted {
			row = append(row, console.OrDash(j.GetAccount()))
		}
		m := j.GetMeasured()
		used := "-"
		if len(j.GetGpus()) > 0 && m.GetSeconds() > 0 {
			used = console.PercentOf(m.GetGpuUtilMilli())
		}
		t.Add(append(row, console.StateCode(j.GetState()), exitShort(j), console.When(w.e, j.GetEnded()), console.Elapsed(w.e, j), console.Clock(waited(j)),
			strconv.Itoa(gpuCount(j)), console.OrDash(gpuType(j)), used, console.MemOrDash(m.GetGpuMemMib()), console.Where(j))...)
	}
	t.Print(w.e)
	return nil
}

func exitShort(j *apiv1.Job) string {
	if j.ExitCode == nil {
		return "-"
	}
	return strconv.Itoa(int(j.GetExitCode())) + ":" + strconv.Itoa(int(j.GetSignal()))
}

// gpuCount returns how many GPUs it had on all nodes, or requested.
func gpuCount(j *apiv1.Job) int {
	n := 0
	if a := lastAttempt(j); a != nil && len(a.GetParts()) > 0 {
		for _, p := range a.GetParts() {
			if p.GetLeft() == nil {
				n += len(p.GetGpus())
			}
		}
		return n
	}
	if n = len(j.GetGpus()); n > 0 || j.GetNode() != "" {
		return n
	}
	return int(j.GetGpusWanted() * max(1, j.GetNodesWanted()))
}

func lastAttempt(j *apiv1.Job) *apiv1.Attempt {
	if n := len(j.GetAttempts()); n > 0 {
		return j.GetAttempts()[n-1]
	}
	return nil
}

func gpuType(j *apiv1.Job) string {
	if g := j.GetGpus(); len(g) > 0 {
		return g[0].GetType()
	}
	return j.GetSpec().GetGpuType()
}

// waited returns how long it waited for its first start, or until its end.
func waited(j *apiv1.Job) time.Duration {
	from, to := j.GetSubmitted().AsTime(), j.GetEnded()
	if b := j.GetSpec().GetBegin(); b != nil && b.AsTime().After(from) {
		from = b.AsTime()
	}
	for _, a := range j.GetAttempts() {
		if a.GetStarted() != nil {
			to = a.GetStarted()
			break
		}
	}
	if to == nil {
		return 0
	}
	return max(0, to.AsTime().Sub(from))
}

func elapsed(j *apiv1.Job, now time.Time) time.Duration {
	if j.GetStarted() == nil {
		return 0
	}
	if j.GetEnded() != nil {
		now = j.GetEnded().AsTime()
	}
	return max(0, now.Sub(j.GetStarted().AsTime()))
}

// csvWriter prints one line per job.
type csvWriter struct{ w *console.CSV }

// csvColumns are the columns of -o csv. Existing ones stay; new ones are appended.
var csvColumns = []struct {
	name  string
	value func(*apiv1.Job) string
}{
	{"job_id", func(j *apiv1.Job) string { return strconv.FormatUint(j.GetId(), 10) }},
	{"array_job_id", func(j *apiv1.Job) string { return count(j.GetArrayJobId()) }},
	{"array_tasks", arrayTasks},
	{"name", (*apiv1.Job).GetName},
	{"user", (*apiv1.Job).GetUser},
	{"uid", func(j *apiv1.Job) string { return strconv.FormatUint(uint64(j.GetUid()), 10) }},
	{"account", (*apiv1.Job).GetAccount},
	{"qos", (*apiv1.Job).GetQos},
	{"partition", (*apiv1.Job).GetPartition},
	{"state", (*apiv1.Job).GetState},
	{"reason", (*apiv1.Job).GetReason},
	{"exit_code", func(j *apiv1.Job) string {
		if j.ExitCode == nil {
			return ""
		}
		return strconv.Itoa(int(j.GetExitCode()))
	}},
	{"signal", func(j *apiv1.Job) string { return count(uint64(j.GetSignal())) }},
	{"submitted", func(j *apiv1.Job) string { return rfc3339(j.GetSubmitted()) }},
	{"started", func(j *apiv1.Job) string { return rfc3339(j.GetStarted()) }},
	{"ended", func(j *apiv1.Job) string { return rfc3339(j.GetEnded()) }},
	{"waited_seconds", func(j *apiv1.Job) string { return seconds(waited(j)) }},
	{"elapsed_seconds", func(j *apiv1.Job) string { return seconds(elapsed(j, time.Time{})) }},
	{"attempts", func(j *apiv1.Job) string { return strconv.Itoa(len(j.GetAttempts())) }},
	{"node_list", console.NodesOf},
	{"gpus", func(j *apiv1.Job) string { return strconv.Itoa(gpuCount(j)) }},
	{"gpu_type", gpuType},
	{"gpu_mem_mib", func(j *apiv1.Job) string { return count(uint64(max(0, shareOf(j).GetMemMib()))) }},
	{"gpu_share_milli", func(j *apiv1.Job) string { return count(uint64(max(0, shareOf(j).GetMilli()))) }},
	{"cpu_milli", func(j *apiv1.Job) string { return count(uint64(max(0, j.GetSpec().GetCpuMilli()))) }},
	{"mem_mib", func(j *apiv1.Job) string { return count(uint64(max(0, j.GetSpec().GetMemMib()))) }},
	{"gpu_mem_peak_mib", func(j *apiv1.Job) string { return count(uint64(max(0, j.GetMeasured().GetGpuMemMib()))) }},
	{"gpu_util_milli", func(j *apiv1.Job) string { return count(uint64(max(0, j.GetMeasured().GetGpuUtilMilli()))) }},
	{"cpu_used_milli", func(j *apiv1.Job) string { return count(uint64(max(0, j.GetMeasured().GetCpuMilli()))) }},
	{"mem_peak_mib", func(j *apiv1.Job) string { return count(uint64(max(0, j.GetMeasured().GetHostMemMib()))) }},
	{"energy_j", func(j *apiv1.Job) string { return count(uint64(max(0, j.GetMeasured().GetProfile().GetEnergyJ()))) }},
	{"node_count", func(j *apiv1.Job) string { return strconv.Itoa(int(max(1, j.GetNodesWanted()))) }},
}

func arrayTasks(j *apiv1.Job) string {
	switch {
	case j.GetArrayJobId() == 0:
		return ""
	case j.GetArrayCount() > 1:
		return j.GetArrayTasks()
	}
	return strconv.FormatUint(uint64(j.GetArrayTaskId()), 10)
}

func shareOf(j *apiv1.Job) *apiv1.Share {
	if g := j.GetGpus(); len(g) > 0 {
		return g[0].GetShare()
	}
	return nil
}

func (w *csvWriter) head() error {
	var row []string
	for _, c := range csvColumns {
		row = append(row, c.name)
	}
	return w.w.Write(row)
}

func (w *csvWriter) write(jobs []*apiv1.Job) error {
	row := make([]string, len(csvColumns))
	for _, j := range jobs {
		for i := range csvColumns {
			row[i] = csvColumns[i].value(j)
		}
		if err := w.w.Write(row); err != nil {
			return err
		}
	}
	return w.w.Flush()
}

func (w *csvWriter) end() error {
	return w.w.Flush()
}

func count(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func rfc3339(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format(time.RFC3339)
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

func ended(j *apiv1.Job) bool {
	st, err := cluster.ParseJobState(j.GetState())
	return err == nil && st.Terminal()
}

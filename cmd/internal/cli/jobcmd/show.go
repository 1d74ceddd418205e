package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewShowCmd returns the command show.
func NewShowCmd(e *console.Env, c *client.Client) *cobra.Command {
	var output string
	var plots bool
	cmd := &cobra.Command{
		Use:     "show [JOB…]",
		Short:   "Show jobs in full",
		Long:    "Show jobs in full; without an id, your latest job.",
		Example: "  berth show 12\n  berth show --plot 12\n  berth show --plot -o svg 12 > curves.svg\n  berth show -o json 12 | jq .state",
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := client.OrLatest(cmd.Context(), e, c, args)
			if err != nil {
				return err
			}
			f := console.Format(output)
			wanted, err := shown(args)
			if err := errors.Join(err, plotsIn(e, f, plots, len(wanted))); err != nil {
				return err
			}
			switch {
			case drawn(f):
				return drawElsewhere(e, cmd, f, args)
			case !plots:
				return runShow(cmd.Context(), e, c, f, args)
			}
			if err := runShow(cmd.Context(), e, c, f, args); err != nil {
				return err
			}
			return plotJobs(cmd.Context(), e, c, wanted)
		},
	}
	cmd.Flags().BoolVar(&plots, "plot", false, "also plot GPU usage, over at most the last week")
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName, formatSVG, formatPNG)
	return cmd
}

// oneShown is a job, or a task of an array.
type oneShown struct {
	id   uint64
	task *uint32
}

// shown reads ids, ranges of ids, and tasks such as 12_7.
func shown(args []string) ([]oneShown, error) {
	var out []oneShown
	for _, arg := range args {
		if strings.Contains(arg, "_") {
			id, task, err := console.ParseShown(arg)
			if err != nil {
				return nil, err
			}
			out = append(out, oneShown{id, task})
			continue
		}
		ids, err := console.ParseIDs([]string{arg})
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			out = append(out, oneShown{id: id})
		}
	}
	if len(out) > console.MaxIDs {
		return nil, console.Usagef("%d jobs, at most %d at once", len(out), console.MaxIDs)
	}
	return out, nil
}

// runShow prints every job that exists before it reports those that do
// not. A single job is printed as an object, several as a list.
func runShow(ctx context.Context, e *console.Env, c *client.Client, f console.Format, args []string) error {
	wanted, err := shown(args)
	if err != nil {
		return err
	}
	var jobs []*apiv1.Job
	var failed []error
	for _, w := range wanted {
		j, err := c.GetTask(ctx, w.id, w.task)
		var ce *cluster.Error
		switch {
		case errors.As(err, &ce) && (ce.Code == cluster.CodeNotFound || ce.Code == cluster.CodeDenied):
			failed = append(failed, err)
		case err != nil:
			return err
		default:
			jobs = append(jobs, j)
		}
	}
	var asked beside
	if f == console.FormatTable {
		asked.cards = client.CardsOf(ctx, c, jobs)
		asked.starts, _ = client.Forecasts(ctx, c, waitingIDs(jobs)) // the rest is shown anyway
	} else if _, err := client.Expect(ctx, c, jobs, client.MostForecasts); err != nil {
		return err
	}
	if err := printShown(e, f, jobs, len(wanted) == 1, asked); err != nil {
		return err
	}
	return errors.Join(failed...)
}

func printShown(e *console.Env, f console.Format, jobs []*apiv1.Job, single bool, asked beside) error {
	if len(jobs) == 0 {
		return nil
	}
	views := make([]view.JobView, 0, len(jobs))
	for _, j := range jobs {
		views = append(views, view.Job(j))
	}
	var v any = views
	if single {
		v = views[0]
	}
	if done, err := console.PrintList(e, f, v); done {
		return err
	}
	for i, j := range jobs {
		if f == console.FormatName {
			e.Printf("%s\n", client.JobLabel(j))
			continue
		}
		if i > 0 {
			e.Printf("\n")
		}
		showJob(e, j, asked)
	}
	return nil
}

// beside is what else is requested for the jobs that are shown: the names and
// readings of their GPUs, and when waiting jobs start.
type beside struct {
	cards  client.Cards
	starts map[uint64]*apiv1.JobForecast
}

func showJob(e *console.Env, j *apiv1.Job, asked beside) {
	s, cards := j.GetSpec(), asked.cards
	queue := ""
	if j.GetQueue() != "" {
		queue = fmt.Sprintf("of %s, place %d", cards.Name(j.GetQueue()), j.GetQueuePosition())
	}
	state := j.GetState()
	if j.GetCancelRequested() && !console.Terminal(state) {
		state += " (cancelling)"
	}
	if j.GetReason() == string(cluster.ReasonPreempted) && !console.Waiting(state) && !console.Terminal(state) {
		state += " (checkpointing to make room)"
	}
	kv := []string{
		"Array", arrayText(j.GetArray()), "Tasks", tasksText(j),
		"Job", fmt.Sprintf("%s  %s", numbered(j), j.GetName()),
		"User", fmt.Sprintf("%s (%d)", j.GetUser(), j.GetUid()),
		"Partition", j.GetPartition(),
		"Account", j.GetAccount(),
		"QOS", j.GetQos(),
		"Nice", niceText(j.GetNice()),
		"State", state,
		"Reason", console.ReasonText(j.GetReason(), j.GetReasonDetail()),
		"Exit", exitText(j.ExitCode, j.GetSignal()),
		"Node", console.NodesOf(j),
		"GPUs", jobShares(j),
		"Host", hostText(j),
		"Power", powerText(j),
		"Power cap", view.SearchText(j),
		"Queue", queue,
		"Neighbours", console.IDList(j.GetNeighbours()),
		"Deadline", deadlineText(e, j),
		"Planned", plannedText(e, j),
		"Begins", beginText(e, j),
		"Waits for", j.GetDependency(),
		"Slowed down", slowedText(j.GetPredictedSlowdown()),
		"Submitted", console.When(e, j.GetSubmitted()),
		"Expected start", startText(e, asked.starts[j.GetId()]),
		"Started", console.When(e, j.GetStarted()),
		"Ended", console.When(e, j.GetEnded()),
		"Run time", runTime(e, j),
		"Progress", view.ProgressText(j, e.Now()),
		trialKey(j), view.TrialText(j),
		"Service", view.ServiceText(j, e.Now()),
		"Right now", cards.Now(j),
		"Predicted", predictedText(j.GetPredicted()),
		"Measured", measuredText(j.GetMeasured()),
	}
	if s != nil {
		kv = append(kv, specKeys(j)...)
	}
	console.KeyValues(e, "", kv...)
	view.ShowUsed(e, j)
	if len(j.GetAttempts()) > 0 {
		e.Printf("Attempts\n")
		for _, a := range j.GetAttempts() {
			showAttempt(e, a, s)
		}
	}
}

// trialKey returns the name of the line with what a job reported of its metric.
func trialKey(j *apiv1.Job) string {
	if len(j.GetTrial().GetParams()) > 0 {
		return "Trial"
	}
	return "Metric"
}

func specKeys(j *apiv1.Job) []string {
	s := j.GetSpec()
	var asked []string
	add := func(has bool, format string, args ...any) {
		if has {
			asked = append(asked, fmt.Sprintf(format, args...))
		}
	}
	add(s.GetGpus() > 0 && s.GetMostGpus() == 0, "%s", console.Plural(int(s.GetGpus()), "GPU", "GPUs"))
	add(s.GetMostGpus() > 0, "%d to %d GPUs", s.GetLeastGpus(), s.GetMostGpus())
	add(s.GetBatchScaling() != "", "batch grows %s", map[string]string{"linear": "with them", "sqrt": "with them, steps by the root"}[s.GetBatchScaling()])
	add(s.GetOrCpu(), "or none, on its cores")
	add(s.GetExclusive(), "exclusive")
	add(s.GetPowerCap() != "", "power cap %s", s.GetPowerCap())
	add(s.GetGpuFreq() != "", "GPU clock %s", s.GetGpuFreq())
	add(s.GetGpuType() != "", "type %s", s.GetGpuType())
	add(s.GetGpuMemMib() > 0, "GPU memory %s", units.HumanMiB(s.GetGpuMemMib()))
	add(s.GetGpuUtilMilli() > 0, "GPU use %s", console.PercentOf(s.GetGpuUtilMilli()))
	add(s.GetCpuMilli() > 0, "%s", console.CoresText(s.GetCpuMilli()))
	add(s.GetMemMib() > 0, "memory %s", units.HumanMiB(s.GetMemMib()))
	add(s.GetExpected() != nil, "expected %s", units.HumanDuration(s.GetExpected().AsDuration()))
	add(s.GetTimeLimit() != nil, "time limit %s", units.FormatDuration(s.GetTimeLimit().AsDuration()))
	add(s.GetDefer() != nil, "may wait for cheaper power if it ends within %s", units.HumanDuration(s.GetDefer().AsDuration()))
	add(s.GetObjective() != "", "for %s", s.GetObjective())
	add(s.GetMaxPowerW() > 0, "at most %d W", s.GetMaxPowerW())
	add(s.GetMaxCostMilli() > 0, "at a cost of at most %g", float64(s.GetMaxCostMilli())/1000)
	add(s.GetNode() != "", "node %s", s.GetNode())
	add(s.GetNodes() > 1 || s.GetMostNodes() > 0, "%s", view.NodesText(s))
	w := s.GetWhere()
	add(w.GetNodes() != "", "on all of %s", w.GetNodes())
	add(w.GetExclude() != "", "not on %s", w.GetExclude())
	add(w.GetFeatures() != "", "nodes with %s", w.GetFeatures())
	add(w.GetReservation() != "", "inside reservation %s", w.GetReservation())
	few, _ := cluster.ParseSwitches(w.GetSwitches())
	add(few.Most > 0, "on at most %s, waiting up to %s for that", console.Plural(few.Most, "switch", "switches"), units.HumanDuration(few.Wait))
	whole := w.GetWhole()
	add(whole && s.GetMemMib() > 0, "all cores of its nodes, with no other jobs there")
	add(whole && s.GetMemMib() == 0, "all cores and memory of its nodes, with no other jobs there")
	add(s.GetTasksPerNode() > 1, "%d processes per node", s.GetTasksPerNode())
	return []string{
		"Asked for", strings.Join(asked, ", "),
		"Checkpoint", checkpointText(j),
		"Retry", cluster.Retry{Times: int(s.GetRetries()), On: s.GetRetryOn()}.String(),
		"Warning", jobspec.WarningText(s),
		"Command", QuoteCommand(view.Texts(s.GetCommand())),
		"Image", s.GetImage(),
		"Data", strings.Join(s.GetData(), ", "),
		"Mounts", strings.Join(jobspec.MountTexts(s), ", "),
		"Container", jobspec.ContainerText(s),
		"Directory", string(s.GetDir()),
		"Output", view.PathText(j, string(s.GetStdout())),
		"Error", view.PathText(j, string(s.GetStderr())),
		"Input", view.PathText(j, string(s.GetStdin())),
		"Comment", s.GetComment(),
		"Mail", jobspec.MailText(s),
		"May idle", jobspec.IdleText(s),
	}
}

func showAttempt(e *console.Env, a *apiv1.Attempt, s *apiv1.JobSpec) {
	line := fmt.Sprintf("%d  %s", a.GetNo(), a.GetState())
	if a.GetNode() != "" {
		line += " on " + a.GetNode()
	}
	if text := attemptShares(a, s); text != "" {
		line += ", " + text
	}
	if x := exitText(a.ExitCode, a.GetSignal()); x != "" {
		line += ", " + x
	}
	e.Printf("  %s\n", console.Escape(line))
	console.KeyValues(e, "     ",
		"reason", console.ReasonText(a.GetReason(), a.GetReasonDetail()),
		"placed", console.When(e, a.GetPlaced()),
		"why", a.GetWhy(),
		"overtook", a.GetOvertook(),
		"started", console.When(e, a.GetStarted()),
		"ended", console.When(e, a.GetEnded()),
		"port", portText(a),
		"nodes", view.ChangesText(e, a.GetChanges()),
	)
	for rank, p := range a.GetParts() {
		showPart(e, rank, p)
	}
}

// portText says where the processes of an attempt meet.
func portText(a *apiv1.Attempt) string {
	if a.GetPort() == 0 {
		return ""
	}
	return fmt.Sprintf("%d on the first node", a.GetPort())
}

// showPart describes one node of an attempt on several.
func showPart(e *console.Env, rank int, p *apiv1.Part) {
	line := fmt.Sprintf("node %d  %s  %s", rank, p.GetNode(), view.PartText(p))
	var at []string
	for _, g := range p.GetGpus() {
		at = append(at, fmt.Sprint(g.GetIndex()))
	}
	if len(at) > 0 {
		line += fmt.Sprintf(", GPU %s (%s)", strings.Join(at, ","), p.GetGpus()[0].GetType())
	}
	if x := exitText(p.ExitCode, p.GetSignal()); x != "" {
		line += ", " + x
	}
	if r := console.ReasonText(p.GetReason(), p.GetReasonDetail()); r != "" {
		line += ", " + r
	}
	e.Printf("       %s\n", console.Escape(line))
}

// beginText says when a waiting job may start at the earliest.
func beginText(e *console.Env, j *apiv1.Job) string {
	if !console.Waiting(j.GetState()) {
		return ""
	}
	return console.When(e, j.GetSpec().GetBegin())
}

// deadlineText says when a job should have ended, and whether it will.
func deadlineText(e *console.Env, j *apiv1.Job) string {
	at := console.When(e, j.GetSpec().GetDeadline())
	if at == "" || j.GetSlack() == nil {
		return at
	}
	d := j.GetSlack().AsDuration()
	if d < 0 {
		return at + ", expected to miss it by " + units.HumanDuration(-d)
	}
	return at + ", slack " + units.HumanDuration(d)
}

// plannedText says where and from when on a waiting job is to keep its deadline on
// several nodes, or on whole ones.
func plannedText(e *console.Env, j *apiv1.Job) string {
	if len(j.GetPromised()) == 0 {
		return ""
	}
	return "on " + hostnames.Fold(j.GetPromised()) + " from " + console.When(e, j.GetEstimatedStart())
}

// checkpointText says how a job saves its state when it must make room.
func checkpointText(j *apiv1.Job) string {
	s := j.GetSpec()
	if s.GetCheckpointSignal() == "" {
		return ""
	}
	text, n := fmt.Sprintf("saves its state at %s within %s, and may be preempted", s.GetCheckpointSignal(), units.HumanDuration(s.GetCheckpointGrace().AsDuration())), 0
	for _, a := range j.GetAttempts() {
		if a.GetState() == "PREEMPTED" && a.GetReason() != string(cluster.ReasonRequeued) {
			n++
		}
	}
	switch n {
	case 0:
		return text
	case 1:
		return text + "; it was once"
	}
	return fmt.Sprintf("%s; it was %d times", text, n)
}

// slowedText says what sharing is predicted to cost a job.
func slowedText(v float64) string {
	if v == 0 {
		return ""
	}
	return view.SlowdownText(v) + " by its neighbours, as predicted"
}

func exitText(code *int32, signal int32) string {
	switch {
	case code == nil:
		return ""
	case signal != 0:
		return fmt.Sprintf("signal %d (exit code %d)", signal, *code)
	default:
		return fmt.Sprintf("exit code %d", *code)
	}
}

// jobShares says what a job has of its GPUs, or that it runs on cores instead.
func jobShares(j *apiv1.Job) string {
	if console.OnCores(j) {
		return fmt.Sprintf("none of %d, runs on cores (cpu)", j.GetGpusWanted())
	}
	return sharesText(j.GetGpus(), j.GetGpusWanted())
}

// hostText says what a job has, or had, on its first node other than GPUs.
func hostText(j *apiv1.Job) string {
	cpu, mem := view.Host(j)
	if j.GetNode() == "" || mem == 0 {
		return ""
	}
	text := console.CoresText(cpu) + ", memory " + units.HumanMiB(mem)
	if j.GetNodesWanted() > 1 {
		text += ", on " + j.GetNode()
	}
	return text
}

// powerText says how the power and clock of a job's GPUs were set where it
// runs, or last ran.
func powerText(j *apiv1.Job) string {
	as := j.GetAttempts()
	if console.Waiting(j.GetState()) || len(as) == 0 {
		return ""
	}
	return view.PowerText(as[len(as)-1].GetPower())
}

func attemptShares(a *apiv1.Attempt, s *apiv1.JobSpec) string {
	if len(a.GetGpus()) == 0 && s.GetOrCpu() {
		return cluster.CPUType
	}
	return sharesText(a.GetGpus(), 0)
}

func sharesText(gpus []*apiv1.GPUShare, wanted uint32) string {
	if len(gpus) == 0 {
		if wanted == 0 {
			return ""
		}
		return fmt.Sprintf("%d wanted", wanted)
	}
	text := console.GpuNames(gpus) + " (" + console.ShareText(gpus)
	if len(gpus) > 1 {
		text += " each"
	}
	return text + view.CapsText(gpus) + ")"
}

func runTime(e *console.Env, j *apiv1.Job) string {
	if j.GetStarted() == nil || console.Waiting(j.GetState()) {
		return ""
	}
	return console.Elapsed(e, j)
}

// measuredText summarizes in one line what an older node measured; see showUsed.
func measuredText(m *apiv1.Measured) string {
	if m == nil || m.GetProfile() != nil {
		return ""
	}
	text := fmt.Sprintf("GPU memory %s, GPU %s, %s, host memory %s, %s",
		console.MemOrDash(m.GetGpuMemMib()), console.PercentOf(m.GetGpuUtilMilli()), console.SecondsText(m.GetSeconds()),
		console.MemOrDash(m.GetHostMemMib()), console.CoresText(m.GetCpuMilli()))
	if m.GetGpuOom() {
		text += "; it was refused GPU memory"
	}
	return text
}

// QuoteCommand quotes a command for a shell.
func QuoteCommand(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if a != "" && strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-") == "" {
			out[i] = a
		} else {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

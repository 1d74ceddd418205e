package acctcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	"github.com/berth-scheduler/berth/model"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewEffCmd returns the command eff.
func NewEffCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use:   "eff [JOB…]",
		Short: "Show how much of what they asked for jobs used",
		Long: "Show how much of its GPUs, GPU memory, cores and memory a job used, and what to request next time:\n" +
			"its peak plus the margin used for predictions. Array tasks are shown together. For a running job,\n" +
			"figures are those so far. Without an id, shows your latest job.",
		Example: "  berth eff 12\n  berth eff 12-20 -o json",
	}, func(ctx context.Context, f console.Format, args []string) error {
		args, err := client.OrLatest(ctx, e, c, args)
		if err != nil {
			return err
		}
		return runEff(ctx, e, c, f, args)
	}, console.FormatTable, console.FormatJSON, console.FormatYAML)
}

// effView is what -o json and yaml print.
type effView struct {
	Job     string      `json:"job"`
	Name    string      `json:"name"`
	User    string      `json:"user"`
	State   string      `json:"state"`
	Tasks   int         `json:"tasks"`
	Seconds float64     `json:"seconds"`
	Rows    []effRow    `json:"resources"`
	Advice  []effAdvice `json:"advice"`
	Notes   []string    `json:"notes"`
}

// effRow is one resource. Amounts are thousandths of GPUs and cores, and MiB.
type effRow struct {
	What  string  `json:"resource"`
	Used  int64   `json:"used"`
	Asked int64   `json:"asked"` // or given
	Part  float64 `json:"part"`
	text  string
}

type effAdvice struct {
	What    string `json:"resource"`
	Asked   int64  `json:"asked"`
	Peak    int64  `json:"peak"`
	Suggest int64  `json:"suggest"`
	Text    string `json:"text"`
}

func runEff(ctx context.Context, e *console.Env, c *client.Client, f console.Format, args []string) error {
	refs, err := client.ParseJobRefs(ctx, c, args)
	if err != nil {
		return err
	}
	jobs, err := effJobs(ctx, e, c, refs)
	if err != nil && len(jobs) == 0 {
		return err
	}
	cards := client.CardsOf(ctx, c, jobs)
	views := []effView{}
	for _, group := range byArray(jobs) {
		v := effOf(group, e.Now())
		for _, j := range group {
			if text := cards.Now(j); text != "" {
				v.Notes = append(v.Notes, "right now "+text)
			}
		}
		views = append(views, v)
	}
	if done, perr := console.PrintList(e, f, views); done || perr != nil {
		return errors.Join(perr, err)
	}
	for i := range views {
		if i > 0 {
			e.Printf("\n")
		}
		printEff(e, &views[i])
	}
	return err
}

// effJobs reads jobs, and the tasks of arrays; missing ones give an error
// along with those that exist.
func effJobs(ctx context.Context, e *console.Env, c *client.Client, refs client.JobRefs) ([]*apiv1.Job, error) {
	var jobs []*apiv1.Job
	req := &apiv1.ListHistoryRequest{Filter: &apiv1.HistoryFilter{Ids: refs.IDs()}, Unfinished: true}
	gaps, err := client.ListHistory(ctx, c, req, func(page []*apiv1.Job) error {
		jobs = append(jobs, refs.Keep(page)...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	warnGaps(e, gaps)
	return jobs, refs.Missing(jobs)
}

// byArray groups the tasks of an array, in the order of their first.
func byArray(jobs []*apiv1.Job) [][]*apiv1.Job {
	var out [][]*apiv1.Job
	at := map[uint64]int{}
	for _, j := range jobs {
		key := cmp.Or(j.GetArrayJobId(), j.GetId())
		if i, ok := at[key]; ok {
			out[i] = append(out[i], j)
			continue
		}
		at[key] = len(out)
		out = append(out, []*apiv1.Job{j})
	}
	return out
}

// effOf sums up a job, or the tasks of an array: means over time of usage,
// and peaks of what is held.
func effOf(jobs []*apiv1.Job, now time.Time) effView {
	j := jobs[0]
	v := effView{Job: client.JobLabel(j), Name: j.GetName(), User: j.GetUser(), State: j.GetState(), Rows: []effRow{}, Advice: []effAdvice{}, Notes: []string{}}
	var s effSum
	states := map[string]int{}
	for _, x := range jobs {
		n := int(max(1, x.GetArrayCount()))
		v.Tasks += n
		states[x.GetState()] += n
		s.add(x, now)
	}
	if len(jobs) > 1 {
		v.Job = fmt.Sprint(cmp.Or(j.GetArrayJobId(), j.GetId()))
		v.State = statesText(states)
	}
	v.Seconds = s.ran.Seconds()
	v.Rows = s.rows()
	if s.whole > 0 && s.running == 0 {
		v.Advice = s.advice()
	}
	v.Notes = append(v.Notes, s.notes(jobs)...)
	return v
}

func statesText(states map[string]int) string {
	var out []string
	for st := cluster.JobPending; st <= cluster.JobDeadline; st++ {
		if n := states[st.String()]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, st))
		}
	}
	return strings.Join(out, ", ")
}

// effSum adds up tasks; time × amount in milliseconds × thousandths.
type effSum struct {
	ran                                time.Duration
	looked                             int // tasks with measurements
	gpuUsed, gpuHeld, cpuUsed, cpuHeld float64
	gpus                               int
	share                              *apiv1.Share
	gpuMem, gpuMemPeak, mem, memPeak   int64
	declared, oom                      bool
	cpuAsked, cpuMost                  int64
	limit, longest                     time.Duration
	running                            int
	whole                              int // tasks that ended by themselves
}

func (s *effSum) add(j *apiv1.Job, now time.Time) {
	d := elapsed(j, now)
	if console.Waiting(j.GetState()) {
		return
	}
	s.ran += d
	s.longest = max(s.longest, d)
	if !ended(j) {
		s.running++
	}
	spec, m := j.GetSpec(), j.GetMeasured()
	s.limit = max(s.limit, spec.GetTimeLimit().AsDuration())
	s.mem, s.cpuAsked = max(s.mem, spec.GetMemMib()), max(s.cpuAsked, spec.GetCpuMilli())
	if sh := shareOf(j); sh != nil {
		s.share, s.gpus, s.gpuMem = sh, max(s.gpus, gpuCount(j)), max(s.gpuMem, sh.GetMemMib())
		s.declared = s.declared || spec.GetGpuMemMib() > 0
	}
	if m.GetSeconds() == 0 && m.GetHostMemMib() == 0 {
		return // nothing was measured
	}
	s.looked++
	if st := j.GetState(); st == cluster.JobCompleted.String() || st == cluster.JobTimeout.String() {
		s.whole++
	}
	w := m.GetSeconds()
	if n := gpuCount(j); n > 0 {
		s.gpuUsed += w * float64(n) * float64(m.GetGpuUtilMilli())
		s.gpuHeld += w * float64(n) * 1000
	}
	s.cpuUsed += w * float64(m.GetCpuMilli())
	s.cpuHeld += w * float64(spec.GetCpuMilli())
	s.cpuMost = max(s.cpuMost, m.GetCpuMilli())
	s.gpuMemPeak, s.memPeak = max(s.gpuMemPeak, m.GetGpuMemMib()), max(s.memPeak, m.GetHostMemMib())
	s.oom = s.oom || m.GetGpuOom()
}

func (s *effSum) rows() []effRow {
	var out []effRow
	add := func(what string, used, asked int64, text string) {
		r := effRow{What: what, Used: used, Asked: asked, text: text}
		if asked > 0 {
			r.Part = math.Round(1000*float64(used)/float64(asked)) / 1000
		}
		out = append(out, r)
	}
	out = []effRow{}
	if s.looked == 0 {
		s.gpuHeld, s.cpuHeld, s.mem = 0, 0, 0
	}
	if s.gpuHeld > 0 {
		n := int64(max(1, s.gpus))
		used := int64(s.gpuUsed / s.gpuHeld * float64(1000*n))
		add("gpu", used, 1000*n, fmt.Sprintf("%s of %s on average", console.PercentOf(used/n), console.Plural(int(n), "GPU", "GPUs each")))
		add("gpu-memory", s.gpuMemPeak, s.gpuMem, fmt.Sprintf("%s of %s at most", console.MemOrDash(s.gpuMemPeak), console.MemOrDash(s.gpuMem)))
	}
	if s.cpuHeld > 0 {
		used := int64(s.cpuUsed / s.cpuHeld * float64(s.cpuAsked))
		add("cpu", used, s.cpuAsked, fmt.Sprintf("%s of %s cores on average", console.Cores(used), console.Cores(s.cpuAsked)))
	}
	if s.mem > 0 {
		add("memory", s.memPeak, s.mem, fmt.Sprintf("%s of %s at most", console.MemOrDash(s.memPeak), console.MemOrDash(s.mem)))
	}
	if s.limit > 0 {
		add("time", int64(s.longest/time.Second), int64(s.limit/time.Second), fmt.Sprintf("%s of %s", console.Clock(s.longest), console.Clock(s.limit)))
	}
	return out
}

// suggestMiB adds to a peak the margin that predictions from one measured run
// have for a run elsewhere, and rounds up to whole GiB, or to 256 MiB for
// small ones.
func suggestMiB(peak int64) int64 {
	w := model.DefaultWeights()
	need := int64(math.Ceil(float64(peak)*w.OtherTypeMargin + w.HistoryMarginMiB))
	step := int64(1024)
	if need < 4096 {
		step = 256
	}
	return (need + step - 1) / step * step
}

// worth reports whether requesting less is worthwhile: a quarter, and a GiB.
func worth(asked, suggest int64) bool { return asked-suggest >= 1024 && suggest <= asked*3/4 }

func (s *effSum) advice() []effAdvice {
	out := []effAdvice{}
	mem := func(what, flag, name string, asked, peak int64) {
		if peak == 0 || asked == 0 {
			return
		}
		if n := suggestMiB(peak); worth(asked, n) {
			out = append(out, effAdvice{what, asked, peak, n, fmt.Sprintf("%s: asked %s, peak %s, suggest %s (%s %s)",
				name, units.HumanMiB(asked), units.HumanMiB(peak), units.HumanMiB(n), flag, units.FormatMiB(n))})
		}
	}
	if !s.oom && (s.declared || s.share.GetExclusive()) {
		mem("gpu-memory", "--gpu-mem", "GPU memory", s.gpuMem, s.gpuMemPeak)
	}
	mem("memory", "--mem", "memory", s.mem, s.memPeak)
	if n := (s.cpuMost*5/4 + 999) / 1000 * 1000; s.cpuMost > 0 && s.cpuAsked-n >= 1000 && n <= s.cpuAsked*3/4 {
		out = append(out, effAdvice{"cpu", s.cpuAsked, s.cpuMost, n, fmt.Sprintf("cores: asked %s, used %s on average, suggest %s (-c %d)",
			console.Cores(s.cpuAsked), console.Cores(s.cpuMost), console.Cores(n), n/1000)})
	}
	return out
}

func (s *effSum) notes(jobs []*apiv1.Job) []string {
	var out []string
	add := func(ok bool, text string) {
		if ok {
			out = append(out, text)
		}
	}
	add(s.ran == 0 && s.running == 0, "nothing ran")
	add(s.running > 0 && s.looked == 0, "still running; its full usage is known when it ends")
	add(s.running > 0 && s.looked > 0, "still running; figures so far")
	add(s.ran > 0 && s.looked == 0 && s.running == 0, "its usage was not measured")
	add(s.looked > 0 && s.whole == 0 && s.running == 0, "it did not run to completion: what it would have needed is not known")
	add(s.oom, "it was refused GPU memory: it needs more than its peak shows")
	idle := s.gpuHeld > 0 && s.gpuUsed/s.gpuHeld < 0.1
	add(idle, "its GPUs were idle nine tenths of the time: does it wait for data, or need a GPU at all?")
	add(!idle && s.gpuHeld > 0 && s.gpuUsed/s.gpuHeld < 0.5 && s.share.GetExclusive(), "it used less than half of its GPUs: without --exclusive, others may share them and only its share is charged")
	late := s.limit > 0 && s.running == 0 && s.whole > 0 && s.longest > 0 && s.longest < s.limit/10
	add(late, "it took less than a tenth of its time limit: with a shorter one it can start sooner, in gaps before larger jobs")
	for _, j := range jobs {
		if p := j.GetMeasured().GetProfile(); p.GetGapSeconds() > 0 && p.GetGapSeconds() > p.GetSampledSeconds()/10 {
			return append(out, "part of the time was not measured")
		}
	}
	return out
}

// barWidth is how many characters a full bar has.
const barWidth = 30

func printEff(e *console.Env, v *effView) {
	head := v.Job + "  " + v.Name
	if v.Tasks > 1 {
		head += fmt.Sprintf(" (%d tasks)", v.Tasks)
	}
	kv := []string{"Job", head, "User", v.User, "State", v.State}
	if v.Seconds > 0 {
		kv = append(kv, "Run time", console.Clock(time.Duration(v.Seconds*float64(time.Second))))
	}
	console.KeyValues(e, "", kv...)
	names := map[string]string{"gpu": "GPU", "gpu-memory": "GPU memory", "cpu": "CPU", "memory": "Memory", "time": "Time limit"}
	for _, r := range v.Rows {
		e.Printf("%-10s  %s %3.0f%%  %s\n", names[r.What], bar(r.Part), 100*r.Part, r.text)
	}
	for _, a := range v.Advice {
		e.Printf("→ %s\n", a.Text)
	}
	for _, n := range v.Notes {
		e.Printf("→ %s\n", n)
	}
}

// bar draws a fraction; anything above the whole fills it.
func bar(part float64) string {
	n := int(math.Round(min(1, max(0, part)) * barWidth))
	if n == 0 && part > 0 {
		n = 1
	}
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", barWidth-n) + "]"
}

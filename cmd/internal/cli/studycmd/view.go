package studycmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobcmd"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// summary is a study in a list.
type summary struct {
	ID       uint64   `json:"id"`
	Name     string   `json:"name"`
	User     string   `json:"user"`
	Metric   string   `json:"metric"`
	Trials   uint32   `json:"trials"`
	Waiting  uint32   `json:"waiting"`
	Running  uint32   `json:"running"`
	Stopped  uint32   `json:"stopped_early"`
	Ended    uint32   `json:"ended"`
	Failed   uint32   `json:"failed"`
	GPUHours float64  `json:"gpu_hours"`
	Best     *float64 `json:"best"`
	BestOf   *uint32  `json:"best_trial"`
}

// add counts a job, or all trials that it stands for.
func (s *summary) add(j *apiv1.Job) {
	t, n := j.GetTrial(), max(1, j.GetArrayCount())
	s.Trials += n
	switch {
	case console.Waiting(j.GetState()):
		s.Waiting += n
	case !console.Terminal(j.GetState()):
		s.Running += n
	default:
		s.Ended += n
		if failed(j) {
			s.Failed += n
		}
		if j.GetReason() == string(cluster.ReasonStudy) {
			s.Stopped += n
		}
	}
	s.GPUHours += t.GetGpuSeconds() / 3600
	if t.GetMetric() != "" {
		s.Metric = t.GetMetric()
	}
	if t != nil && t.Best != nil && (s.Best == nil || better(t.GetMaximize(), *t.Best, *s.Best)) {
		s.Best, s.BestOf = t.Best, new(j.GetArrayTaskId())
	}
}

func better(maximize bool, a, b float64) bool { return maximize && a > b || !maximize && a < b }

// summaries returns studies by id, given all their trials.
func summaries(jobs []*apiv1.Job) []*summary {
	out := []*summary{}
	for _, j := range jobs { // by id, and those of an array are adjacent
		if len(out) == 0 || out[len(out)-1].ID != j.GetArrayJobId() {
			out = append(out, &summary{ID: j.GetArrayJobId(), Name: j.GetName(), User: j.GetUser()})
		}
		out[len(out)-1].add(j)
	}
	return out
}

func printStudies(e *console.Env, f console.Format, all []*summary) error {
	if done, err := console.PrintRows(e, f, all, func(v *summary) string { return strconv.FormatUint(v.ID, 10) }); done {
		return err
	}
	t := console.Table{Cols: []console.Column{
		{Head: "STUDY", Right: true}, {Head: "NAME", Shrink: true}, {Head: "USER", Shrink: true}, {Head: "TRIALS", Right: true}, {Head: "WAITING", Right: true},
		{Head: "RUNNING", Right: true}, {Head: "ENDED", Right: true}, {Head: "GPU-HOURS", Right: true}, {Head: "METRIC", Shrink: true}, {Head: "BEST", Right: true},
	}}
	for _, s := range all {
		t.Add(fmt.Sprint(s.ID), s.Name, s.User, fmt.Sprint(s.Trials), fmt.Sprint(s.Waiting), fmt.Sprint(s.Running), fmt.Sprint(s.Ended),
			hoursText(s.GPUHours), console.OrDash(s.Metric), number(s.Best))
	}
	t.Print(e)
	return nil
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'g', 5, 64)
}

// trial is one line of berth study show.
type trial struct {
	Trial    uint32            `json:"trial"`
	State    string            `json:"state"`
	Reason   string            `json:"reason,omitempty"`
	Step     int64             `json:"step"`
	Last     *float64          `json:"last"`
	Best     *float64          `json:"best"`
	BestStep int64             `json:"best_step"`
	Rungs    uint32            `json:"rungs"`
	GPUHours float64           `json:"gpu_hours"`
	Params   map[string]string `json:"params"`
	// CopiedFrom are the trials whose state it continued from, in order.
	CopiedFrom []uint32 `json:"copied_from,omitempty"`

	params []study.Param
	early  bool // ended by its study's rule or budget
	failed bool
	why    string // how it ended, in the words of berth why
	ended  int64
}

// shown is a study with its trials, the best first.
type shown struct {
	Summary *summary `json:"study"`
	Trials  []*trial `json:"trials"`

	spec *study.Study
}

// read reads a study and all of its trials that coordinators still hold.
func read(ctx context.Context, c *client.Client, id uint64) (*shown, error) {
	first, err := c.GetTask(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	if first.GetArrayJobId() != id || first.GetTrial() == nil || len(first.GetSpec().GetStudy().GetSpace()) == 0 {
		return nil, cluster.Errorf(cluster.CodeNotFound, "job %d is not a study that you may see; see: berth study list", id)
	}
	s := &shown{Summary: &summary{ID: id, Name: first.GetName(), User: first.GetUser()}, spec: apiconv.StudyFromAPI(first.GetSpec().GetStudy())}
	jobs, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Ids: []uint64{id}, Finished: true, Brief: true, Trials: true})
	if err != nil {
		return nil, err
	}
	if err := s.spec.Check(); err != nil {
		return nil, cluster.Errorf(cluster.CodeInternal, "study %d: the coordinator's answer: %v", id, err)
	}
	for _, j := range jobs {
		s.Summary.add(j)
		if j.GetArrayCount() > 1 { // all of these wait, or ended before they began
			continue
		}
		t, params := j.GetTrial(), s.spec.Params(j.GetArrayTaskId())
		for i, p := range t.GetParams() { // they may differ from those it began with
			if _, v, ok := strings.Cut(p, "="); ok && i < len(params) && len(t.GetCopiedFrom()) > 0 {
				params[i].Value = v
			}
		}
		row := &trial{
			Trial: j.GetArrayTaskId(), State: j.GetState(), Reason: j.GetReasonDetail(), Step: t.GetStep(), BestStep: t.GetBestStep(), Rungs: t.GetRungs(),
			GPUHours: t.GetGpuSeconds() / 3600, Params: map[string]string{}, params: params, early: j.GetReason() == string(cluster.ReasonStudy), ended: j.GetEnded().GetSeconds(),
			CopiedFrom: t.GetCopiedFrom(),
		}
		if t != nil {
			row.Last, row.Best = t.Last, t.Best
		}
		if row.failed = failed(j); row.failed {
			row.why = console.ReasonText(j.GetReason(), j.GetReasonDetail())
		}
		for _, p := range params {
			row.Params[p.Name] = p.Value
		}
		s.Trials = append(s.Trials, row)
	}
	slices.SortStableFunc(s.Trials, func(a, b *trial) int {
		switch {
		case a.Best == nil || b.Best == nil:
			return cmp.Compare(known(b), known(a))
		case better(s.spec.Maximize, *a.Best, *b.Best):
			return -1
		case better(s.spec.Maximize, *b.Best, *a.Best):
			return 1
		}
		return 0
	})
	return s, nil
}

// failed reports whether a trial ended by itself without completing its work.
func failed(j *apiv1.Job) bool {
	switch j.GetState() {
	case cluster.JobFailed.String(), cluster.JobTimeout.String(), cluster.JobOutOfMemory.String(), cluster.JobNodeFail.String(), cluster.JobDeadline.String():
		return true
	}
	return false
}

// mostFailed is how many kinds of failures are reported.
const mostFailed = 3

// printFailed says why trials failed, grouping equal failures on one line,
// and where to read more.
func (s *shown) printFailed(e *console.Env) {
	var kinds []string
	of := map[string][]*trial{}
	for _, t := range s.Trials {
		if kind := strings.TrimSuffix(t.State+": "+t.why, ": "); t.failed {
			if of[kind] == nil {
				kinds = append(kinds, kind)
			}
			of[kind] = append(of[kind], t)
		}
	}
	for i, kind := range kinds {
		if i == mostFailed {
			e.Printf("and %d more combinations; --all -o json has them\n", len(kinds)-i)
			return
		}
		first, who := of[kind][0], ""
		if who = fmt.Sprintf("trial %d", first.Trial); len(of[kind]) > 1 {
			who = fmt.Sprintf("%d trials, such as %d,", len(of[kind]), first.Trial)
		}
		e.Printf("%s ended %s; berth logs %d_%d\n", who, console.Escape(kind), s.Summary.ID, first.Trial)
	}
}

func known(t *trial) int {
	if t.Best == nil {
		return 0
	}
	return 1
}

// hoursText returns GPU-hours with two digits that count, also of a few seconds.
func hoursText(h float64) string {
	digits := 2
	for x := h; x > 0 && x < 0.1 && digits < 6; x *= 10 {
		digits++
	}
	return strconv.FormatFloat(h, 'f', digits, 64)
}

// mostShown is how many trials a table shows by default.
const mostShown = 20

func (s *shown) print(e *console.Env, f console.Format, all bool) error {
	if done, err := console.PrintList(e, f, s); done {
		return err
	}
	if f == console.FormatCSV {
		return s.csv(e)
	}
	u := s.Summary
	state := fmt.Sprintf("%d: %d wait, %d run, %d ended, %d of them early", u.Trials, u.Waiting, u.Running, u.Ended, u.Stopped)
	if u.Failed > 0 {
		state += fmt.Sprintf(", %d failed", u.Failed)
	}
	hours := hoursText(u.GPUHours) + " GPU-hours"
	if b := s.spec.Budget; b > 0 {
		hours += fmt.Sprintf(", of %.6g at most", b.Hours())
	}
	best := ""
	if len(s.Trials) > 0 && s.Trials[0].Best != nil {
		t := s.Trials[0]
		best = fmt.Sprintf("%s at step %d, trial %d: %s", number(t.Best), t.BestStep, t.Trial, paramText(t.params))
	}
	console.KeyValues(e, "", "Study", fmt.Sprintf("%d  %s of %s", u.ID, u.Name, u.User), "Metric", s.ruleText(), "Trials", state, "Used", hours, "Best", best)
	s.plot(e)
	if len(s.Trials) == 0 {
		return nil
	}
	e.Printf("\n")
	t := console.Table{Cols: []console.Column{
		{Head: "TRIAL", Right: true}, {Head: "STATE"}, {Head: "STEP", Right: true}, {Head: "LAST", Right: true}, {Head: "BEST", Right: true},
		{Head: "AT STEP", Right: true}, {Head: "RUNGS", Right: true}, {Head: "GPU-HOURS", Right: true},
	}}
	pbt := s.spec.Rule == study.RulePBT
	if pbt {
		t.Cols = append(t.Cols, console.Column{Head: "FROM"})
	}
	t.Cols = append(t.Cols, console.Column{Head: "PARAMETERS", Shrink: true})
	for i, r := range s.Trials {
		if i == mostShown && !all {
			break
		}
		state := r.State
		if r.early {
			state = "STOPPED"
		}
		cells := []string{fmt.Sprint(r.Trial), state, fmt.Sprint(r.Step), number(r.Last), number(r.Best), fmt.Sprint(r.BestStep), fmt.Sprint(r.Rungs), hoursText(r.GPUHours)}
		if pbt {
			cells = append(cells, r.from())
		}
		t.Add(append(cells, paramText(r.params))...)
	}
	t.Print(e)
	if n := len(s.Trials) - mostShown; n > 0 && !all {
		e.Printf("and %d more; --all shows them\n", n)
	}
	s.printFailed(e)
	return nil
}

// from says which trials it continued from, the last ones, and how often.
func (t *trial) from() string {
	const most = 3
	n := len(t.CopiedFrom)
	if n == 0 {
		return "-"
	}
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(t.CopiedFrom[max(0, n-most):]), " ", ">"), "[]")
	if n > most {
		text = "…>" + text
	}
	return fmt.Sprintf("%s (%d)", text, n)
}

func (s *shown) ruleText() string {
	if s.spec.Metric == "" {
		return ""
	}
	text := s.spec.Metric + ", minimized"
	if s.spec.Maximize {
		text = s.spec.Metric + ", maximized"
	}
	switch s.spec.Rule {
	case study.RuleASHA, study.RuleHyperband:
		text += fmt.Sprintf("; %s: from step %d on, one in %d continues", s.spec.Rule, s.spec.First, s.spec.Eta)
	case study.RulePBT:
		text += fmt.Sprintf("; pbt: every %d steps the worst of %d continues from one of the best", s.spec.First, s.spec.Eta)
	case study.RuleMedian:
		text += fmt.Sprintf("; median: from step %d on, trials worse than the median end", s.spec.First)
	}
	return text
}

func paramText(params []study.Param) string {
	var parts []string
	for _, p := range params {
		parts = append(parts, p.Name+"="+p.Value)
	}
	return strings.Join(parts, " ")
}

// plot draws the best known value by the times at which trials ended, running
// ones counting as of now.
func (s *shown) plot(e *console.Env) {
	const parts = 1000
	when := func(t *trial) int64 { return cmp.Or(t.ended, e.Now().Unix()) }
	ended := slices.DeleteFunc(slices.Clone(s.Trials), func(t *trial) bool { return t.Best == nil })
	if len(ended) < 3 {
		return
	}
	slices.SortStableFunc(ended, func(a, b *trial) int { return cmp.Compare(when(a), when(b)) })
	var at []int64
	var bests []float64
	for i, t := range ended {
		b := *t.Best
		if i > 0 && !better(s.spec.Maximize, b, bests[i-1]) {
			b = bests[i-1]
		}
		at, bests = append(at, when(t)), append(bests, b)
	}
	low, high := slices.Min(bests), slices.Max(bests)
	if low == high {
		return
	}
	values := make([]int64, len(bests))
	for i, b := range bests {
		values[i] = int64((b - low) / (high - low) * parts)
	}
	e.Printf("\nbest so far, as trials ended\n")
	jobcmd.Plot(e, number(&low), at, values, parts, func(int64) string { return number(&high) })
}

func (s *shown) csv(e *console.Env) error {
	w := console.NewCSV(e.Stdout, console.CellsRaw)
	head := []string{"trial", "state", "step", "last", "best", "best_step", "rungs", "gpu_hours"}
	for _, a := range s.spec.Space {
		head = append(head, a.Name)
	}
	if err := w.Write(head); err != nil {
		return err
	}
	cell := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'g', -1, 64)
	}
	for _, t := range s.Trials {
		line := []string{fmt.Sprint(t.Trial), t.State, fmt.Sprint(t.Step), cell(t.Last), cell(t.Best), fmt.Sprint(t.BestStep), fmt.Sprint(t.Rungs), strconv.FormatFloat(t.GPUHours, 'f', 6, 64)}
		for _, p := range t.params {
			v := p.Value
			if _, err := strconv.ParseFloat(v, 64); err != nil {
				v = console.GuardCell(v)
			}
			line = append(line, v)
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	return w.Flush()
}

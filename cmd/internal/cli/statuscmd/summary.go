package statuscmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/admin"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// summary is what -o json and yaml print.
type summary struct {
	Cluster string `json:"cluster"`
	Running uint32 `json:"running"`
	Waiting uint32 `json:"waiting"`
	// GPUs are counted by type.
	GPUs   []typeView  `json:"gpus"`
	Mine   mineView    `json:"mine"`
	Next   *nextView   `json:"next_start"`
	Faults []faultView `json:"faults"`
	// Warnings are what the leader cannot do as configured.
	Warnings []string `json:"warnings"`
}

// typeView has -1 for a utilization that was not measured.
type typeView struct {
	Type  string `json:"type"`
	Total int    `json:"total"`
	Held  int    `json:"held"`
	// Out of service are GPUs that no job holds and that take no jobs.
	Out int `json:"out_of_service"`
	// Off are those on nodes that are powered down, or on their way down or up.
	Off               int   `json:"powered_down"`
	GivenMiB          int64 `json:"given_mib"`
	SellableMiB       int64 `json:"sellable_mib"`
	MeasuredUtilMilli int64 `json:"measured_util_milli"`
}

type mineView struct {
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// GPUs is how many GPUs the running jobs use: one that several share counts once.
	GPUs int `json:"gpus"`
	// Jobs are the running ones, the latest first.
	Jobs []jobView `json:"jobs"`
}

// jobView is a running job. The measurements are of its GPUs on its first
// node, including co-located jobs where it shares them; -1 means not
// measured.
type jobView struct {
	ID                uint64 `json:"id"`
	Name              string `json:"name"`
	State             string `json:"state"`
	Nodes             string `json:"nodes"`
	GPUs              int    `json:"gpus"`
	GivenMiB          int64  `json:"given_mib"`
	MeasuredUsedMiB   int64  `json:"measured_used_mib"`
	MeasuredUtilMilli int64  `json:"measured_util_milli"`
	Shares            bool   `json:"shares"`

	job *apiv1.Job
}

// nextView is the caller's job that is expected to start first.
type nextView struct {
	Job       uint64         `json:"job"`
	Name      string         `json:"name"`
	Forecast  *view.Forecast `json:"forecast"`
	CannotSay string         `json:"cannot_say"`

	forecast *apiv1.Forecast
	label    string
}

// faultView is a node or GPU that takes no jobs.
type faultView struct {
	Node   string `json:"node"`
	GPU    string `json:"gpu"` // NODE/INDEX, "" for the node
	State  string `json:"state"`
	Reason string `json:"reason"`
	Mine   bool   `json:"mine"` // the caller has jobs there
}

func (f *facts) view() *summary {
	v := &summary{Cluster: f.status.GetName(), GPUs: typesOf(f.nodes), Mine: mineOf(f.mine, f.nodes), Faults: faultsOf(f.nodes, f.mine), Next: f.next(), Warnings: append([]string{}, f.status.GetWarnings()...)}
	for _, j := range f.status.GetJobs() {
		switch {
		case console.Waiting(j.GetState()):
			v.Waiting += j.GetCount()
		case !console.Terminal(j.GetState()):
			v.Running += j.GetCount()
		}
	}
	return v
}

// typesOf counts GPUs by type, the most numerous first.
func typesOf(nodes []*apiv1.Node) []typeView {
	at := map[string]*typeView{}
	util := map[string][]int64{}
	for _, n := range nodes {
		usable := admin.NodeState(n) == cluster.NodeReady.String()
		for _, g := range n.GetGpus() {
			t := at[g.GetType()]
			if t == nil {
				t = &typeView{Type: g.GetType(), MeasuredUtilMilli: -1}
				at[g.GetType()] = t
			}
			t.Total++
			t.GivenMiB += g.GetLedgerUsedMib()
			t.SellableMiB += g.GetSellableMib()
			switch {
			case g.GetShares() > 0:
				t.Held++
			case admin.SavesPower(n) && admin.GpuHealth(g) == cluster.GPUOK.String():
				t.Off++
			case !usable || admin.GpuHealth(g) != cluster.GPUOK.String():
				t.Out++
			}
			if u := g.GetMeasuredUtilMilli(); u >= 0 {
				util[g.GetType()] = append(util[g.GetType()], u)
			}
		}
	}
	out := []typeView{}
	for name, t := range at {
		t.MeasuredUtilMilli = mean(util[name])
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b typeView) int { return cmp.Or(b.Total-a.Total, strings.Compare(a.Type, b.Type)) })
	return out
}

// mean returns -1 if there are no values.
func mean(of []int64) int64 {
	if len(of) == 0 {
		return -1
	}
	sum := int64(0)
	for _, n := range of {
		sum += n
	}
	return sum / int64(len(of))
}

func mineOf(jobs []*apiv1.Job, nodes []*apiv1.Node) mineView {
	v := mineView{Jobs: []jobView{}}
	cards := map[string]*apiv1.GPU{}
	for _, n := range nodes {
		for _, g := range n.GetGpus() {
			cards[g.GetUuid()] = g
		}
	}
	for _, j := range slices.Backward(jobs) {
		switch {
		case console.Waiting(j.GetState()):
			v.Waiting += int(max(1, j.GetArrayCount()))
		case !console.Terminal(j.GetState()):
			v.Running++
			v.Jobs = append(v.Jobs, runningJob(j, cards))
		}
	}
	mine := map[uint64]bool{}
	for _, j := range v.Jobs {
		mine[j.ID] = true
	}
	for _, g := range cards {
		if slices.ContainsFunc(g.GetJobs(), func(id uint64) bool { return mine[id] }) {
			v.GPUs++
		}
	}
	return v
}

func runningJob(j *apiv1.Job, cards map[string]*apiv1.GPU) jobView {
	v := jobView{ID: j.GetId(), Name: j.GetName(), State: j.GetState(), Nodes: console.NodesOf(j), MeasuredUsedMiB: -1, job: j}
	v.GPUs = len(j.GetGpus()) * int(max(1, j.GetNodesWanted()))
	var util []int64
	var used int64
	for _, s := range j.GetGpus() {
		v.GivenMiB += s.GetShare().GetMemMib()
		g := cards[s.GetUuid()]
		v.Shares = v.Shares || len(g.GetJobs()) > 1
		if g != nil && g.GetMeasuredUtilMilli() >= 0 && g.GetMeasuredUsedMib() >= 0 {
			util, used = append(util, g.GetMeasuredUtilMilli()), used+g.GetMeasuredUsedMib()
		}
	}
	if v.MeasuredUtilMilli = mean(util); len(util) == len(j.GetGpus()) && len(util) > 0 {
		v.MeasuredUsedMiB = used
	}
	return v
}

func (f *facts) next() *nextView {
	var first *nextView
	for _, j := range f.asked {
		said := f.starts[j.GetId()]
		if said == nil {
			continue // it has started in the meantime
		}
		next := &nextView{j.GetId(), j.GetName(), view.ForecastOf(said.GetForecast()), said.GetCannotSay(), said.GetForecast(), client.JobLabel(j)}
		switch {
		case first == nil, first.forecast == nil && next.forecast != nil:
			first = next
		case next.forecast != nil && minute(next.forecast).Before(minute(first.forecast)):
			first = next
		}
	}
	return first
}

// minute returns when a job is expected to start, as displayed: of those with
// the same minute the first is named.
func minute(f *apiv1.Forecast) time.Time { return f.GetStartP50().AsTime().Truncate(time.Minute) }

// faultsOf lists what takes no jobs: first where the caller has jobs, then
// what is down, then what is drained.
func faultsOf(nodes []*apiv1.Node, mine []*apiv1.Job) []faultView {
	my := map[uint64]bool{}
	for _, j := range mine {
		my[j.GetId()] = true
	}
	here := func(jobs []uint64) bool { return slices.ContainsFunc(jobs, func(id uint64) bool { return my[id] }) }
	out := []faultView{}
	for _, n := range nodes {
		if state := admin.NodeState(n); state != cluster.NodeReady.String() && !admin.SavesPower(n) || n.GetProblem() != "" || n.GetCutOff() != "" {
			out = append(out, faultView{n.GetId(), "", state, reasons(admin.CutOff(n), n.GetDrainReason(), admin.PowerFault(n), n.GetProblem()), here(n.GetJobs())})
		}
		for _, g := range n.GetGpus() {
			if state := admin.GpuHealth(g); state != cluster.GPUOK.String() {
				name := fmt.Sprintf("%s/%d", n.GetId(), g.GetIndex())
				out = append(out, faultView{n.GetId(), name, state, reasons(g.GetStateReason(), g.GetDrainReason()), here(g.GetJobs())})
			}
		}
	}
	rank := func(f faultView) int {
		switch {
		case f.Mine:
			return 0
		case strings.Contains(f.State, "drain"), f.State == "maint":
			return 2
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b faultView) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a.Node, b.Node)) })
	return out
}

func reasons(of ...string) string {
	return strings.Join(slices.DeleteFunc(of, func(s string) bool { return s == "" }), "; ")
}

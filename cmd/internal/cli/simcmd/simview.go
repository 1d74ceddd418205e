package simcmd

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
)

// View is what the commands print.
type View struct {
	Cluster string       `json:"cluster"`
	Notes   []string     `json:"notes,omitempty"`
	Read    trace.Report `json:"read"`
	// Actual is what really happened to the jobs, if known.
	Actual  *actualView   `json:"actual,omitempty"`
	Results []*sim.Result `json:"results"`
	// Summary has the mean of each policy over its seeds, if there are several.
	Summary []Summary `json:"summary,omitempty"`
}

// Summary is the mean of a setting over its seeds.
type Summary struct {
	Policy  string            `json:"policy"`
	Options map[string]string `json:"options,omitempty"`
	Seeds   int               `json:"seeds"`
	// Mean has the figures by their names in results, CI95 half of the 95 %
	// interval of each, by Student's t.
	Mean map[string]float64 `json:"mean"`
	CI95 map[string]float64 `json:"ci95"`
}

// figuresOf returns the numbers of a result by name.
func figuresOf(r *sim.Result) (map[string]any, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	return m, json.Unmarshal(raw, &m)
}

// summarize averages the results of one setting.
func summarize(policy string, options map[string]string, rs []*sim.Result) (Summary, error) {
	s := Summary{Policy: policy, Options: options, Seeds: len(rs), Mean: map[string]float64{}, CI95: map[string]float64{}}
	all := map[string][]float64{}
	for _, r := range rs {
		m, err := figuresOf(r)
		if err != nil {
			return s, err
		}
		for name, v := range m {
			if x, ok := v.(float64); ok && name != "seed" {
				all[name] = append(all[name], x)
			}
		}
	}
	for name, vs := range all {
		s.Mean[name], s.CI95[name] = sim.MeanCI(vs)
	}
	return s, nil
}

func printSim(e *console.Env, f console.Format, v View) error {
	if err := v.summarize(); err != nil {
		return err
	}
	if done, err := console.PrintList(e, f, v); done {
		return err
	}
	if f == formatCSV {
		return printSimCSV(e, v.Results, nil)
	}
	t := &console.Table{Cols: []console.Column{
		{Head: "POLICY"}, {Head: "SEED", Right: true}, {Head: "JOBS", Right: true}, {Head: "ALLOC", Right: true}, {Head: "UTIL", Right: true},
		{Head: "MEM", Right: true}, {Head: "MEAN_JCT", Right: true}, {Head: "P99_JCT", Right: true}, {Head: "MAKESPAN", Right: true},
		{Head: "BOUND", Right: true}, {Head: "WAIT", Right: true}, {Head: "SLOWDOWN", Right: true}, {Head: "OOM", Right: true}, {Head: "PREEMPT", Right: true},
	}}
	follows := slices.ContainsFunc(v.Results, func(r *sim.Result) bool { return r.ReservedOverUsed != nil })
	if follows {
		t.Cols = append(t.Cols, console.Column{Head: "CUT", Right: true}, console.Column{Head: "GROWN", Right: true}, console.Column{Head: "HARMED", Right: true}, console.Column{Head: "RESERVED/USED", Right: true})
	}
	sleeps := slices.ContainsFunc(v.Results, func(r *sim.Result) bool { return r.NodeHoursOff != nil })
	if sleeps {
		t.Cols = append(t.Cols, console.Column{Head: "NODE_HOURS_OFF", Right: true}, console.Column{Head: "OFF", Right: true}, console.Column{Head: "WOKEN", Right: true},
			console.Column{Head: "LATE", Right: true}, console.Column{Head: "LATE_BY", Right: true}, console.Column{Head: "KWH", Right: true})
	}
	reads := slices.ContainsFunc(v.Results, func(r *sim.Result) bool { return r.ImagesFetched != nil })
	if reads {
		t.Cols = append(t.Cols, console.Column{Head: "FETCHED", Right: true}, console.Column{Head: "ELSEWHERE", Right: true})
	}
	for _, r := range v.Results {
		row := []string{r.Policy, strconv.FormatUint(r.Seed, 10), strconv.Itoa(r.Jobs), simPct(r.AllocationPct), simPct(r.GPUUtilPct), simPct(r.MemUtilPct),
			simFig(r.MeanJCT, 0), simFig(r.P99JCT, 0), simFig(r.Makespan, 0), simFig(r.LowerBoundMakespan, 0), simFig(r.MeanWait, 0),
			simFig(r.MeanSlowdown, 3), strconv.Itoa(r.OOMs), strconv.Itoa(r.Preemptions)}
		if follows {
			row = append(row, simCount(r.Cuts), simCount(r.Growths), simCount(r.Harmed), simFig(r.ReservedOverUsed, 2))
		}
		if sleeps {
			row = append(row, simFig(r.NodeHoursOff, 0), simPct(r.NodesOffPct), simCount(r.WakeUps), simCount(r.JobsLate), simFig(r.MeanLate, 0), simFig(r.EnergyKWh, 0))
		}
		if reads {
			row = append(row, simCount(r.ImagesFetched), simCount(r.DataElsewhere))
		}
		t.Add(row...)
	}
	t.Print(e)
	v.Actual.print(e, v.Results)
	e.Printf("\ncluster: %s\ninterference: %s\n", console.Escape(v.Cluster), console.Escape(v.Results[0].World))
	for _, n := range v.Notes {
		e.Printf("note: %s\n", console.Escape(n))
	}
	return nil
}

// summarize fills in the means of policies with several seeds.
func (v *View) summarize() error {
	var rs []*sim.Result
	for i, r := range v.Results {
		rs = append(rs, r)
		if i+1 < len(v.Results) && v.Results[i+1].Policy == r.Policy {
			continue
		}
		if len(rs) > 1 {
			s, err := summarize(r.Policy, nil, rs)
			if err != nil {
				return err
			}
			v.Summary = append(v.Summary, s)
		}
		rs = nil
	}
	return nil
}

func simFig(v *float64, digits int) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', digits, 64)
}

func simCount(v *int) string {
	if v == nil {
		return "-"
	}
	return strconv.Itoa(*v)
}

func simPct(v *float64) string {
	if v == nil {
		return "-"
	}
	return simFig(v, 2) + "%"
}

// printSimCSV prints one row per result, with the names of the JSON. The
// columns of what was varied come first.
func printSimCSV(e *console.Env, rs []*sim.Result, varied []variedRow) error {
	cw := csv.NewWriter(e.Out)
	head, err := csvHead(rs)
	if err != nil {
		return err
	}
	var first []string
	if len(varied) > 0 {
		first = varied[0].names
	}
	if err := cw.Write(append(slices.Clone(first), head...)); err != nil {
		return err
	}
	for i, r := range rs {
		m, err := figuresOf(r)
		if err != nil {
			return err
		}
		var row []string
		if len(varied) > 0 {
			row = append(row, varied[i].values...)
		}
		for _, name := range head {
			row = append(row, csvCell(m[name]))
		}
		if err := cw.Write(row); err != nil {
			return err
		}
	}
	cw.Flush()
	return cw.Error()
}

// csvHead returns the names that any of the results has, sorted.
func csvHead(rs []*sim.Result) ([]string, error) {
	var head []string
	for _, r := range rs {
		m, err := figuresOf(r)
		if err != nil {
			return nil, err
		}
		for k := range m {
			if !slices.Contains(head, k) {
				head = append(head, k)
			}
		}
	}
	slices.Sort(head)
	return head, nil
}

func csvCell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

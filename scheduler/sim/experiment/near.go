package experiment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// What jobs read in the experiment of images and data sets: so many images and data
// sets, the k-th as often as 1/k, a data set by every second job and on every third
// node; and what it costs to fetch them.
const (
	nearImages, nearSets, nearPart = 60, 24, 3
	nearImage, nearData            = 3 * time.Minute, 5 * time.Minute
	// nearBusy are fewer nodes than the list's own, so that jobs wait for each other.
	nearBusy = 75
)

// zipf draws one of n, the k-th of which is as likely as 1/k.
func zipf(n int, at float64) int {
	sum := 0.0
	for k := range n {
		sum += 1 / float64(k+1)
	}
	at *= sum
	for k := range n {
		if at -= 1 / float64(k+1); at < 0 {
			return k
		}
	}
	return n - 1
}

// reading returns the jobs with images and data sets, and so many nodes that have the
// latter.
func reading(r *cesRun, nodes int, seed uint64) (*workload.Workload, workload.Fleet) {
	w, f := *r.jobs, r.fleet
	w.Jobs, f.Nodes = slices.Clone(w.Jobs), nil
	for i := range w.Jobs {
		j := &w.Jobs[i]
		j.Image = fmt.Sprintf("image%d", zipf(nearImages, workload.Chance(seed, j.ID, "image").Float64()))
		if c := workload.Chance(seed, j.ID, "data"); c.Float64() < 0.5 {
			j.Data = []string{fmt.Sprintf("set%d", zipf(nearSets, c.Float64()))}
		}
	}
	for i := range nodes {
		one := r.fleet.Nodes[0]
		one.Count = 1
		var sets []string
		for k := range nearSets {
			if workload.Chance(seed, fmt.Sprint("n", i), fmt.Sprint("set", k)).IntN(nearPart) == 0 {
				sets = append(sets, fmt.Sprintf("set%d", k))
			}
		}
		one.Data = strings.Join(sets, "+")
		f.Nodes = append(f.Nodes, one)
	}
	return &w, f
}

// near compares jobs that go where what they read is with those that do not.
func near(ctx context.Context, c Config) (*Report, error) {
	span := 14 * 24 * time.Hour
	if c.Quick {
		span = 3 * 24 * time.Hour
	}
	run, err := cesWorkload(ctx, &c, span, 0)
	if err != nil {
		return nil, err
	}
	rep := &Report{
		Name: "near", Title: "Jobs that start where their images and data sets are, on Helios Venus",
		Columns: []string{"images_fetched", "data_elsewhere", "mean_wait_s", "mean_jct_s", "p99_jct_s"},
		Assumptions: append(cesReport().Assumptions[:2:2],
			fmt.Sprintf("%d nodes are the list's, where nobody waits; on %d jobs wait", cesNodes, nearBusy),
			fmt.Sprintf("the list does not say what jobs read: each has one of %d images, the k-th as often as 1/k, and every second one of %d data sets likewise", nearImages, nearSets),
			fmt.Sprintf("a node fetches an image in %s and keeps it, none at first; a data set is on every %d. node, and a start on another takes %s longer", nearImage, nearPart, nearData),
			"blind policies do not know what jobs read",
		),
	}
	for _, nodes := range []int{cesNodes, nearBusy} {
		for _, policy := range []string{"slot", "slot+fifo", "bestfit"} {
			if err := nearLine(ctx, &c, rep, run, nodes, policy); err != nil {
				return nil, err
			}
		}
	}
	return rep, nil
}

// nearLine runs a policy on so many nodes, knowing and blind.
func nearLine(ctx context.Context, c *Config, rep *Report, run *cesRun, nodes int, policy string) error {
	name := fmt.Sprintf("%d nodes, %s", nodes, policy)
	for _, blind := range []bool{true, false} {
		variant := name
		if blind {
			variant += ", blind"
		}
		c.note("%s: %s", run.jobs.Name, variant)
		err := rep.repeat(ctx, variant, c.seeds(3, 1), func(seed uint64) (setup, error) {
			p, err := planner(policy, seed, 1)
			w, f := reading(run, nodes, seed)
			return setup{w, f, sim.Options{
				Planner: p, Seed: seed, PassEvery: time.Second, Fetch: sim.Fetch{Image: nearImage, Data: nearData, Blind: blind}, Clock: c.Clock,
			}}, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", variant, err)
		}
	}
	rep.Claims = append(rep.Claims,
		atLeast(name+": fewer images fetched, %", 0, -rep.change(name+", blind", name, "images_fetched")),
		atLeast(name+": fewer starts without the data set, %", 10, -rep.change(name+", blind", name, "data_elsewhere")),
		atMost(name+": longer mean completion, %", 1, rep.change(name+", blind", name, "mean_jct_s")))
	return nil
}

// Jobs on several nodes: which part of an iteration they communicate, how many nodes
// there are below a switch, and how many such jobs its uplink carries.
const (
	linksExchange          = 0.2
	linksLeaf, linksUplink = 16, 2
)

// gangs returns the jobs with those of more than so many GPUs on nodes of as many.
func gangs(w *workload.Workload, from, until time.Duration, each int) *workload.Workload {
	out := &workload.Workload{Name: w.Name, Form: w.Form}
	for _, j := range w.Jobs {
		if j.Submit < from || j.Submit >= until {
			continue
		}
		j.Submit, j.Milli = j.Submit-from, 1000
		if j.GPUs > each && j.GPUs >= cesNode {
			j.Nodes = (j.GPUs + each - 1) / each
			if j.GPUs = j.Nodes * each; j.GPUs > 32*each {
				continue
			}
		}
		out.Jobs = append(out.Jobs, j)
	}
	return out
}

// shareLinks compares jobs on several nodes that keep to links others do not use with
// those that do not.
func shareLinks(ctx context.Context, c Config) (*Report, error) {
	w, _, _, err := load(&c, "helios-venus", "")
	if err != nil {
		return nil, err
	}
	rep := &Report{
		Name: "links", Title: "Jobs on several nodes that share links, on Helios Venus",
		Columns: []string{"mean_wait_s", "mean_jct_s", "p99_jct_s", "makespan_s"},
		Assumptions: append(cesReport().Assumptions[:1:1],
			fmt.Sprintf("%d nodes of %d cards, %d below a switch; one job to a card; jobs on more than 32 nodes are left out", nearBusy, cesNode, linksLeaf),
			fmt.Sprintf("a job on several nodes communicates %.0f %% of its time while it has its links alone; a node's uplink carries one at that speed, a switch's %d, and more divide it", 100*linksExchange, linksUplink),
			"blind passes do not count who uses a link; with links of their own, jobs never slow each other down",
		),
	}
	end := time.Duration(0)
	for i := range w.Jobs {
		end = max(end, w.Jobs[i].Submit)
	}
	weeks := []int{147, 119}
	if c.Quick {
		weeks = weeks[:1]
	}
	var fleet workload.Fleet
	for i := range nearBusy {
		fleet.Nodes = append(fleet.Nodes, workload.NodeSpec{Count: 1, GPUs: cesNode, GPUType: cesType, Switch: fmt.Sprintf("core:leaf%d", i/linksLeaf)})
	}
	fleet.MaxShares = 1
	trace.Complete(&fleet)
	for _, day := range weeks {
		for _, each := range []int{cesNode, cesNode / 2} {
			from := max(0, min(time.Duration(day)*24*time.Hour, end-7*24*time.Hour))
			jobs := gangs(w, from, from+7*24*time.Hour, each)
			name := fmt.Sprintf("day %d, %d cards of a node", day, each)
			for _, v := range []struct {
				name     string
				exchange float64
				blind    bool
			}{{", own links", 0, true}, {", blind", linksExchange, true}, {"", linksExchange, false}} {
				c.note("%s: %s%s", w.Name, name, v.name)
				err := rep.repeat(ctx, name+v.name, 1, func(seed uint64) (setup, error) {
					b := sim.NewBerth(scheduler.ModeSlot, 1)
					b.Policy.Linkless = v.blind
					return setup{jobs, fleet, sim.Options{Planner: b, Seed: seed, PassEvery: time.Minute, Exchange: v.exchange, Uplink: linksUplink, Clock: c.Clock}}, nil
				})
				if err != nil {
					return nil, err
				}
			}
			rep.Claims = append(rep.Claims, atLeast(name+": shorter mean completion, %", 2, -rep.change(name+", blind", name, "mean_jct_s")))
		}
	}
	return rep, nil
}

package experiment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim"
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

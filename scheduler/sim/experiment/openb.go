package experiment

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
)

// openbDemand is how much is requested, in per cent of the GPUs.
const openbDemand = 130

func openb(ctx context.Context, c Config) (*Report, error) {
	path, err := c.trace("openb-2023")
	if err != nil {
		return nil, err
	}
	lists, err := trace.Lists(path)
	if err != nil {
		return nil, err
	}
	published, err := trace.ReadPublished(path, openbDemand)
	if err != nil {
		return nil, err
	}
	rep := &Report{
		Name: "openb", Title: "FGD (ATC 2023): share of GPUs given away at 130 % demand",
		Columns: []string{"allocation_pct", "rejected", "decision_us", "decision_p50_us", "decision_p99_us", "fragmentation_pct"},
		Assumptions: []string{
			"FGD's protocol: the pods shuffled, then single pods drawn again until 130 % of the GPUs were asked for; one by one; nothing ends; who does not fit is turned away; seeds from 42",
			"the order of the shuffle is ours, so that no single seed compares with the authors' seed of that number",
			"gpu_milli is taken as the same share of memory",
			"nobody is told the list's mix of shapes: ffd and fgd learn it from those that run, while the authors' FGD is given it",
			"fragmentation is FGD's measure with all pods of the list as the typical mix",
			"a decision is timed from the offer of a job to the answer, on indexes that are kept from job to job",
		},
	}
	// The list without a variation first: it gets all seeds and policies.
	main := slices.IndexFunc(lists, func(l string) bool { return strings.HasSuffix(l, "default") })
	if main > 0 {
		lists[0], lists[main] = lists[main], lists[0]
		slices.Sort(lists[1:])
	}
	for i, list := range lists {
		names, n := []string{"ffd", "fgd", "firstfit"}, c.seeds(4, 1)
		switch {
		case i == 0:
			names, n = []string{"ffd", "fgd", "firstfit", "bestfit", "random"}, c.seeds(10, 1)
		case c.Quick:
			names = []string{"ffd", "firstfit"}
		}
		if err := rep.fillList(ctx, &c, path, list, names, n); err != nil {
			return nil, err
		}
		rep.addPublished(list, published)
	}
	rep.claimOpenb(lists, published)
	return rep, nil
}

// fillList fills the cluster with a list by several policies.
func (r *Report) fillList(ctx context.Context, c *Config, path, list string, names []string, n uint64) error {
	w, _, err := trace.Load(path, trace.Options{Mix: list})
	if err != nil {
		return err
	}
	f, why := trace.FleetFor(w)
	if !slices.Contains(r.Assumptions, why) {
		r.Assumptions = append(r.Assumptions, why)
	}
	for _, name := range names {
		var rs []*sim.Result
		for seed := uint64(42); seed < 42+n; seed++ {
			c.note("openb: %s, %s, seed %d", list, name, seed)
			p, err := planner(name, seed, f.MaxShares)
			if err != nil {
				return err
			}
			got, err := sim.Fill(ctx, w, &f, sim.FillOptions{Planner: p, Seed: seed, Demand: openbDemand / 100.0, Clock: c.Clock})
			if err != nil {
				return err
			}
			rs = append(rs, got)
		}
		r.add(lineOf(list, name), rs)
	}
	return nil
}

func lineOf(list, policy string) string { return list + ": " + policy }

// addPublished adds what the authors measured on a list.
func (r *Report) addPublished(list string, all []trace.Published) {
	for _, p := range all {
		if p.List == list {
			r.Lines = append(r.Lines, Line{
				Variant: lineOf(list, p.Policy+", published"), Seeds: p.Runs,
				Mean: map[string]float64{"allocation_pct": p.Mean}, CI95: map[string]float64{},
			})
		}
	}
}

// claimOpenb compares ffd with levels on the first list, and with the best
// published result on each.
func (r *Report) claimOpenb(lists []string, published []trace.Published) {
	given := func(policy string) float64 { return r.mean(lineOf(lists[0], policy), "allocation_pct") }
	r.Claims = []Claim{
		atLeast("allocation of fgd, %", 94.5, given("fgd")),
		atLeast("allocation of ffd, %", 94.5, given("ffd")),
		atLeast("aim for ffd, %", 95.4, given("ffd")),
		atLeast("ffd over best fit, points", 0, given("ffd")-given("bestfit")),
	}
	for _, list := range lists {
		best := -1.0
		for _, p := range published {
			if p.List == list {
				best = max(best, p.Mean)
			}
		}
		if got := r.mean(lineOf(list, "ffd"), "allocation_pct"); best >= 0 {
			r.Claims = append(r.Claims, atLeast(fmt.Sprintf("%s: ffd over the best that was published, points", list), -0.5, got-best))
		}
	}
}

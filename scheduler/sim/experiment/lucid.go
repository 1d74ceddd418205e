package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// published returns the classic orders by the rules of Lucid's simulator: gangs are
// consolidated on machines of 8, no job overtakes the first that does not fit, srtf
// and las count the GPUs off anew, and las does so once a minute with one limit.
func published() []variant {
	strict := &policies.Options{Backfill: policies.BackfillNone}
	las := countingOff()
	las.LAS = order.LAS{Limits: []time.Duration{18000 * time.Second}, ByArrival: true}
	vs := []variant{
		{name: "fifo as published", policy: "consolidate+fifo", opt: strict}, {name: "sjf as published", policy: "consolidate+sjf", opt: strict},
		{name: "qssf as published", policy: "consolidate+qssf", opt: strict, durError: 0.5},
		{name: "srtf as published", policy: "consolidate+srtf", opt: countingOff(), preempts: true},
		{name: "las as published", policy: "consolidate+las", opt: las, preempts: true, every: time.Minute, tick: time.Minute},
	}
	for i := range vs {
		vs[i].islands = true
		vs[i].every = max(vs[i].every, time.Second)
	}
	return vs
}

// countingOff returns how published simulators preempt: at every event, any running
// job.
func countingOff() *policies.Options {
	return &policies.Options{Evict: policies.EvictRanked, MinRun: -1, MaxPreempt: 4096}
}

// lucidShares returns the variants in which jobs share GPUs.
func lucidShares() []variant {
	return []variant{
		{name: "ffd", policy: "ffd", durError: 0.5, shares: true}, {name: "ffd+qssf", policy: "ffd+qssf", durError: 0.5, shares: true},
		{name: "lucid", policy: "lucid", durError: 0.5, shares: true},
		{name: "ffd, gangs share", policy: "ffd", durError: 0.5, shares: true, declares: true},
		{name: "ffd, gangs share, told of pairs", policy: "ffd", durError: 0.5, shares: true, declares: true, told: true},
		{name: "ffd, gangs share, told of pairs, limit 1.1", policy: "ffd", durError: 0.5, shares: true, declares: true, told: true, limit: 1100},
		{name: "ffd, gangs share, machines of 8", policy: "ffd", durError: 0.5, shares: true, declares: true, islands: true},
		{name: "ffd+qssf, gangs share", policy: "ffd+qssf", durError: 0.5, shares: true, declares: true},
		{name: "lucid, gangs share", policy: "lucid", durError: 0.5, shares: true, declares: true},
	}
}

// lucidSeeds is how many draws of programs for jobs are averaged over.
const lucidSeeds = 5

func lucid(ctx context.Context, c Config) (*Report, error) {
	rep := &Report{
		Name: "lucid", Title: "Lucid's simulator (ASPLOS 2023) on two job lists", Columns: queueColumns(),
		Assumptions: []string{
			"published with the artefact on the same lists, mean completion time in s: m3 FIFO 99,121, SJF 26,208, SRTF 19,059, QSSF 27,391, Tiresias 33,031, Lucid 16,604; v2 FIFO 36,802, SJF 15,275, SRTF 14,257, QSSF 14,341, Tiresias 16,788, Lucid 13,543",
			"as published: gangs are consolidated on machines of 8, nobody passes the first in fifo, sjf and qssf that does not fit; srtf counts the cards off by rank at each event, las (Tiresias) once a minute with one limit of 18,000 GPU-seconds",
			"without these words: later jobs pass that do not delay the first (backfill), gangs lie anywhere, las has limits of 3,250, 7,200 and 18,000",
			"preempted jobs lose 40 s up to 8 GPUs and 60 s above; qssf, slot, ffd and lucid see run times times LogNormal(0, 0.5); sjf, srtf and las see the truth",
			fmt.Sprintf("where jobs share, each is one of Lucid's measured programs, drawn with %d seeds; memory and utilization are predicted exactly, and jobs slow each other as Lucid's table of pairs says", lucidSeeds),
			"jobs of several GPUs have them alone, unless they declare their memory; gangs share: all of them do. Up to three share a card, in lucid two",
			"v2 runs for 12,641 s a job on the average, alone and without waiting: no mean completion time is below that",
			"told of pairs: the scheduler knows the table and lets nobody be slowed down beyond its limit, 1.5 times, or 1.1",
		},
	}
	for _, mix := range []string{"m3", "v2"} {
		if c.Quick && mix == "v2" {
			continue
		}
		if err := lucidList(ctx, &c, rep, lucidWindows()[mix], mix); err != nil {
			return nil, err
		}
	}
	return rep, nil
}

// lucidWindow is the result of the published simulator on a list, mean completion
// time in s, on so many machines of 8, and the target.
type lucidWindow struct {
	machines                   int
	fifo, sjf, srtf, qssf, las float64
	lucid, reach               float64
}

func lucidWindows() map[string]lucidWindow {
	return map[string]lucidWindow{
		"m3": {8, 99121, 26208, 19059, 27391, 33031, 16604, 15000}, "v2": {64, 36802, 15275, 14257, 14341, 16788, 13543, 13543},
	}
}

// claims compares the measurements on the named list with it.
func (x *lucidWindow) claims(rep *Report, name string) {
	for _, p := range []struct {
		policy string
		want   float64
	}{{"fifo", x.fifo}, {"sjf", x.sjf}, {"srtf", x.srtf}, {"qssf", x.qssf}, {"las", x.las}} {
		got := rep.mean(name+" "+p.policy+" as published", "mean_jct_s")
		rep.Claims = append(rep.Claims, atMost(fmt.Sprintf("%s: %s is so far from the published %.0f s, %%", name, p.policy, p.want), 5, 100*math.Abs(got/p.want-1)))
	}
	got := rep.mean(name+" ffd, gangs share", "mean_jct_s")
	rep.Claims = append(rep.Claims, atMost(fmt.Sprintf("%s: mean completion time of ffd, gangs sharing, s (Lucid's %.0f)", name, x.lucid), x.reach, got))
}

func lucidList(ctx context.Context, c *Config, rep *Report, x lucidWindow, mix string) error {
	w, f, _, err := load(c, "lucid-window", mix)
	if err != nil {
		return err
	}
	f.Nodes, f.Pool = workload.Homogeneous(x.machines, 8, "gpu", 24<<10).Nodes, true
	rep.Assumptions = append(rep.Assumptions, fmt.Sprintf("%s: %d GPUs as in the published runs on this list, taken for one node, as jobs are wider than a node", w.Name, f.GPUs()))
	if err := runQueues(ctx, c, rep, w, f, slowdown.DefaultCurve(), append(classic(), published()...)); err != nil {
		return err
	}
	pairs, err := trace.LoadPairs(c.Colocation, "lucid")
	if err != nil {
		return err
	}
	vs := lucidShares()
	for i := range vs {
		var rs []*sim.Result
		for seed := range c.seeds(lucidSeeds, 1) {
			given, err := trace.AssignLucid(w, c.Colocation, seed+1)
			if err != nil {
				return err
			}
			r, err := vs[i].run(ctx, c, given, f, pairs, seed+1)
			if err != nil {
				return err
			}
			rs = append(rs, r)
		}
		rep.add(w.Name+" "+vs[i].name, rs)
	}
	x.claims(rep, w.Name)
	return nil
}

package experiment

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fair"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// tradingGPUs is how many GPUs of each type the experiment has.
const tradingGPUs = 32

// gains are how many times as fast the jobs of accounts go on a V100 as on a K80.
var gains = []struct {
	name string
	of   map[string]float64
}{
	{"two accounts", map[string]float64{"vae": 1.2, "resnext": 5}},
	{"four accounts", map[string]float64{"recommendation": 1.05, "a3c": 2.09, "lm": 3.43, "resnet50": 7.1}},
}

// fairly plans by fair shares of accounts, with what each used in the run, and notes how
// much each got done in a part of it.
type fairly struct {
	sim.Berth
	accounts   map[string]*accounting.Account
	weights    map[string]float64 // of GPU types
	from, till time.Duration
	began      cluster.Time
	last       cluster.Time
	used       map[string]float64
	done       map[string]float64 // seconds on a K80
}

// Plan implements sim.Planner.
func (f *fairly) Plan(snap *dispatch.Snapshot) dispatch.Plan {
	if f.last == 0 {
		f.began, f.last = snap.Now, snap.Now
	}
	for _, j := range snap.Running {
		e := j.Live().Estimate
		slow, _ := cluster.EstimateFor(j.Estimates, "K80")
		gpus := float64(len(j.Live().Berth.GPUs))
		f.used[j.Owner.Name] += gpus * f.weights[e.GPUType] * snap.Now.Sub(f.last).Seconds()
		if at := snap.Now.Sub(f.began); at > f.from && at <= f.till {
			f.done[j.Owner.Name] += gpus * snap.Now.Sub(f.last).Seconds() * slow.Duration.Seconds() / e.Duration.Seconds()
		}
	}
	f.last = snap.Now
	own := *snap
	own.Ledger, own.Queues, own.Standing = snap.Ledger.Clone(), maps.Clone(snap.Queues), f.standing(snap)
	charged := func(jobs []*cluster.Job) (out []*cluster.Job) {
		for _, j := range jobs {
			c, spec := *j, *j.Spec
			spec.Account, c.Spec = j.Owner.Name, &spec
			out = append(out, &c)
		}
		return out
	}
	own.Waiting, own.Running = charged(snap.Waiting), charged(snap.Running)
	return f.Berth.Plan(&own)
}

func (f *fairly) standing(snap *dispatch.Snapshot) *accounting.Standing {
	members := map[accounting.Assoc]*accounting.Member{}
	used := map[accounting.Assoc]cluster.GPUTime{}
	for _, jobs := range [][]*cluster.Job{snap.Waiting, snap.Running} {
		for _, j := range jobs {
			who := accounting.Assoc{Account: j.Owner.Name, UID: j.Owner.UID}
			members[who], used[who] = &accounting.Member{Shares: 1}, cluster.GPUTime(1e6*f.used[j.Owner.Name])
		}
	}
	tree := fair.New(f.accounts, members)
	for who, t := range used {
		tree.Add(who, t)
	}
	return &accounting.Standing{Fair: tree.Order()}
}

// trading compares fair shares of GPU types that are worth different to accounts with and
// without trades.
func trading(ctx context.Context, c Config) (*Report, error) {
	rep := &Report{
		Name: "trading", Title: "Accounts that trade GPU types (Gandiva-fair, EuroSys 2020)",
		Columns: []string{"least_of_share_pct", "mean_of_share_pct"},
		Assumptions: []string{
			fmt.Sprintf("%d K80 and %d V100 on nodes of 4, each GPU one job's alone; by slot with scheduling.fairshare: 1, a pass every minute", tradingGPUs, tradingGPUs),
			"two accounts: the paper's VAE and ResNeXt, 1.2 and 5 times as fast on a V100 as on a K80; four accounts: recommendation, A3C, LM and ResNet-50 of Gavel's table, 1.05, 2.09, 3.43 and 7.1 times",
			"each account has one share and always jobs that wait, all from the start, of 1, 2 and 4 GPUs as 3 : 2 : 1, GPU time LogNormal with a median of half an hour and a sigma of 0.8; run times are predicted exactly",
			"of share: what an account got done, in percent of what its part of every type would do at full use; least of the accounts, and the mean; weights: an hour of a K80 costs 0.4 of one of a V100",
		},
	}
	for _, w := range gains {
		for _, variant := range []string{"fair", "fair, weights", "fair, trading"} {
			if err := tradingLine(ctx, &c, rep, w.name+", "+variant, w.of, variant); err != nil {
				return nil, err
			}
		}
		with, without := w.name+", fair, trading", w.name+", fair"
		rep.Claims = append(rep.Claims,
			atLeast(w.name+": more done in the mean of accounts with trades, %", 20, rep.change(without, with, "mean_of_share_pct")),
			atLeast(w.name+": more done by the one that gets least of its share, %", 0, rep.change(without, with, "least_of_share_pct")))
	}
	return rep, nil
}

// tradingLine runs one variant.
func tradingLine(ctx context.Context, c *Config, rep *Report, name string, of map[string]float64, variant string) error {
	c.note("%s", name)
	figures := map[string][]float64{}
	seeds := c.seeds(5, 1)
	for seed := uint64(1); seed <= seeds; seed++ {
		p := &fairly{
			Berth: sim.NewBerth("slot", 1), accounts: map[string]*accounting.Account{}, used: map[string]float64{}, done: map[string]float64{},
			weights: map[string]float64{"K80": 1, "V100": 1}, from: 3 * time.Hour, till: 15 * time.Hour,
		}
		jobs := 1600 / len(of)
		if c.Quick {
			p.from, p.till, jobs = time.Hour, 4*time.Hour, 500/len(of)
		}
		p.Policy.FairMilli, p.Policy.Trading = 1000, variant == "fair, trading"
		if variant == "fair, weights" {
			p.weights["K80"] = 0.4
		}
		for name := range of {
			p.accounts[name] = &accounting.Account{Name: name, Shares: 1}
		}
		fleet := workload.Fleet{MaxShares: 1, Nodes: []workload.NodeSpec{{Count: tradingGPUs / 4, GPUs: 4, GPUType: "K80"}, {Count: tradingGPUs / 4, GPUs: 4, GPUType: "V100"}}}
		// Not the fast path: it would start what waits in the queue of a GPU.
		opt := sim.Options{Planner: struct{ sim.Planner }{p}, Seed: seed, NoZoom: true, PassEvery: time.Minute, Clock: c.Clock}
		res, err := sim.Run(ctx, inventTraders(seed, of, jobs), &fleet, opt)
		if err != nil {
			return err
		}
		least, mean := math.Inf(1), 0.0
		for _, name := range slices.Sorted(maps.Keys(of)) {
			part := 100 * p.done[name] / ((p.till - p.from).Seconds() * tradingGPUs * (1 + of[name]) / float64(len(of)))
			least, mean = min(least, part), mean+part/float64(len(of))
		}
		figures["least_of_share_pct"], figures["mean_of_share_pct"] = append(figures["least_of_share_pct"], least), append(figures["mean_of_share_pct"], mean)
		res.Policy = name
		rep.Results = append(rep.Results, res)
	}
	l := Line{Variant: name, Seeds: int(seeds), Mean: map[string]float64{}, CI95: map[string]float64{}}
	for k, vs := range figures {
		l.Mean[k], l.CI95[k] = sim.MeanCI(vs)
	}
	rep.Lines = append(rep.Lines, l)
	return nil
}

// inventTraders invents so many jobs of each account.
func inventTraders(seed uint64, of map[string]float64, jobs int) *workload.Workload {
	w := &workload.Workload{Name: "synthetic"}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		chance, root := workload.Chance(seed, name, "trading"), math.Sqrt(of[name])
		for i := range jobs {
			gpus := []int{1, 1, 1, 2, 2, 4}[chance.IntN(6)]
			mean := float64(30*time.Minute) * math.Exp(0.8*chance.NormFloat64())
			w.Jobs = append(w.Jobs, workload.Job{
				ID: fmt.Sprintf("%s%d", name, i), Submit: time.Duration(i) * time.Millisecond, GPUs: gpus, Milli: 1000, User: name, Duration: time.Duration(mean * root),
				On: []workload.OnType{{Type: "V100", Duration: time.Duration(mean / root)}},
			})
		}
	}
	return w
}

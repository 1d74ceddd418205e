package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
)

// muriAlone returns the variants without sharing, by the rules of Muri's simulator:
// the GPUs are counted off by rank at each event; srtf, srsf and themis consolidate
// gangs on machines of 8, las does not, and never uses the third limit of its
// queues.
func muriAlone() []variant {
	las, themis := countingOff(), countingOff()
	las.LAS.Limits = []time.Duration{3250 * time.Second, 7200 * time.Second}
	themis.MinRun = 20 * time.Minute
	return []variant{
		{name: "srtf as published", policy: "consolidate+srtf", opt: countingOff(), preempts: true, islands: true},
		{name: "srsf as published", policy: "consolidate+srsf", opt: countingOff(), preempts: true, islands: true},
		{name: "las as published", policy: "firstfit+las", opt: las, preempts: true, tick: 10 * time.Minute},
		{name: "themis, a lease of 20 min", policy: "consolidate+themis", opt: themis, preempts: true, islands: true, tick: 20 * time.Minute},
	}
}

// muriShares returns the variants in which up to four share a GPU.
func muriShares() []variant {
	known, unknown := countingOff(), countingOff()
	known.Base = scheduler.Default()
	known.Base.MaxSlowdownMilli = 0 // one's loss is everyone's gain
	unknown.Base = known.Base
	unknown.LAS = order.LAS{ByArrival: true}
	for l := time.Hour; len(unknown.LAS.Limits) < 20; l *= 2 {
		unknown.LAS.Limits = append(unknown.LAS.Limits, l)
	}
	vs := []variant{
		{name: "muri, counting off, run times known", policy: "muri+srsf", opt: known, preempts: true},
		{name: "muri+las, counting off, run times unknown", policy: "muri+las", opt: unknown, preempts: true, unknown: true},
		{name: "muri, nobody preempted, run times known", policy: "muri"},
		{name: "ffd, told of pairs, run times unknown", policy: "ffd", unknown: true, told: true},
		{name: "ffd, told of pairs, run times off", policy: "ffd", durError: 0.5, told: true},
		{name: "ffd, told of pairs, hooks on all, run times unknown", policy: "ffd", unknown: true, told: true, preempts: true},
		{name: "ffd, told of pairs, hooks on all, run times off", policy: "ffd", durError: 0.5, told: true, preempts: true},
		{name: "slot, run times unknown", policy: "slot", unknown: true},
	}
	for i := range vs {
		vs[i].shares, vs[i].declares = true, true
	}
	return vs
}

func muri(ctx context.Context, c Config) (*Report, error) {
	rep := &Report{
		Name: "muri", Title: "Muri's traces (SIGCOMM 2022) on 64 GPUs", Columns: queueColumns(),
		Assumptions: []string{
			"published, mean completion time in 1,000 s, traces 1, 3, 4: SRTF 1,370.6, 193.1, 582.0; SRSF 980.1, 185.0, 487.2; Tiresias-L 3,330.4, 347.2, 1,319.4; Themis 1,823.2, 397.1, 994.9; AntMan 5,476.4, 305.5, 2,212.5; Muri-S 867.7, 85.5, 365.5; Muri-L 1,072.0, 88.7, 429.2",
			"as published: cards are counted off by rank at each event; srtf, srsf and themis consolidate gangs on machines of 8, las (Tiresias-L) does not, and has limits of 3,250 and 7,200 GPU-seconds",
			"every job takes 1.5 % longer than the list says, as there",
			"jobs that share a card do one iteration each in a common period, in the best order of their stages, and pay the factor that the authors measured: the model of the published simulator",
			"where jobs share, up to four do, as there; memory is not in the trace: each declares 1 MiB and a quarter of the card's compute",
			"muri knows the stages of every job, as there. Told of pairs: ffd knows how any two programs slow each other, lets nobody be slowed down beyond its limit, and adds slowdowns up for three",
			"run times unknown: the scheduler is told none and assumes its default; las goes by what jobs had, in queues whose limits double from one hour of a GPU on. Off: times LogNormal(0, 0.5)",
			"preempted jobs lose 40 s up to 8 GPUs and 60 s above; one seed",
		},
	}
	mixes := []string{"trace3", "trace4", "trace1"}
	if c.Quick {
		mixes = mixes[:1]
	}
	for _, mix := range mixes {
		w, f, why, err := load(&c, "muri", mix)
		if err != nil {
			return nil, err
		}
		rep.Assumptions = append(rep.Assumptions, why)
		f.Pool, f.MaxShares = true, 4
		for i := range w.Jobs {
			w.Jobs[i].Duration = w.Jobs[i].Duration * 1015 / 1000
		}
		if err := runQueues(ctx, &c, rep, w, f, slowdown.Interleaved{}, muriAlone()); err != nil {
			return nil, err
		}
		for i := range w.Jobs {
			w.Jobs[i].MemMiB, w.Jobs[i].Milli = 1, 250
		}
		if err := runQueues(ctx, &c, rep, w, f, slowdown.Interleaved{}, muriShares()); err != nil {
			return nil, err
		}
		x := muriTraces()[mix]
		x.claims(rep, w.Name)
	}
	return rep, nil
}

// muriTrace is the result of the published simulator on a trace, mean completion
// time in 1,000 s.
type muriTrace struct{ srtf, srsf, tiresias, themis, antman, muriL float64 }

func muriTraces() map[string]muriTrace {
	return map[string]muriTrace{
		"trace1": {1370.6, 980.1, 3330.4, 1823.2, 5476.4, 1072}, "trace3": {193.1, 185, 347.2, 397.1, 305.5, 88.7}, "trace4": {582, 487.2, 1319.4, 994.9, 2212.5, 429.2},
	}
}

// claims compares the measurements on the named trace with it.
func (x *muriTrace) claims(rep *Report, name string) {
	got := func(policy string) float64 { return rep.mean(name+" "+policy, "mean_jct_s") / 1000 }
	for _, p := range []struct {
		policy string
		want   float64
	}{{"srtf", x.srtf}, {"srsf", x.srsf}, {"las", x.tiresias}} {
		rep.Claims = append(rep.Claims, atMost(fmt.Sprintf("%s: %s is so far from the published %g, %%", name, p.policy, p.want), 5, 100*math.Abs(got(p.policy+" as published")/p.want-1)))
	}
	ours := got("muri+las, counting off, run times unknown")
	rep.Claims = append(rep.Claims, atMost(name+": ours without run times, 1,000 s (the best of Tiresias-L, Themis and AntMan)", min(x.tiresias, x.themis, x.antman), ours),
		atMost(name+": ours without run times, 1,000 s (Muri-L)", x.muriL, ours),
		atMost(name+": ffd with hooks on all, without run times, 1,000 s (Tiresias-L)", x.tiresias, got("ffd, told of pairs, hooks on all, run times unknown")))
}

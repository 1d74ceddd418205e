package policies

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// byTimeLeft takes who has least left to do, by prediction: shortest
// remaining time first (Schrage, Operations Research 16, 1968, for one
// machine).
func byTimeLeft(_ *pass, f *facts) key { return key{f.left, f.since} }

// preemptCost is what a preemption costs the one it hits, in microseconds:
// what the artefact of Lucid (ASPLOS 2023) charges.
func preemptCost(gpus int) int64 {
	if gpus <= 8 {
		return (40 * time.Second).Microseconds()
	}
	return time.Minute.Microseconds()
}

// muchShorter asks that the newcomer, who pays for the preemption too, still
// ends sooner than the one that it displaces.
func muchShorter(_ *pass, waits, runs *facts) bool {
	return waits.left+preemptCost(runs.cards()) < runs.left
}

// byServiceLeft takes who has least GPU time left to do, by prediction:
// shortest remaining service first, the order of Muri (SIGCOMM 2022, section
// 4.2).
func byServiceLeft(_ *pass, f *facts) key { return key{f.gpuTime(), f.since} }

// muchLessService is muchShorter for GPU time.
func muchLessService(_ *pass, waits, runs *facts) bool {
	return waits.gpuTime()+preemptCost(runs.cards())*int64(waits.width()) < runs.gpuTime()
}

// LAS are the queues of the order "las".
type LAS struct {
	// Limits are how much time of one GPU a job has had when it sinks into the
	// next queue, the shortest first. None stands for 3250, 7200 and 18000
	// seconds, those of the published simulator of Tiresias. Muri's has the same
	// but never uses the third, Lucid's has one of 18000.
	Limits []time.Duration
	// ByArrival lets who came first go first in a queue, even before who runs:
	// Lucid's rule. It matters only to EvictRanked; else who runs stays.
	ByArrival bool
	// Promote moves who waited this many times as long as it ran back into the
	// first queue, where what it had is forgotten: the knob P of Tiresias,
	// section 3.3. 0 leaves it off, as the paper does; sites take PromoteAfter.
	Promote int64
}

// PromoteAfter is the LAS.Promote of sites, so that nobody starves who sank.
const PromoteAfter = 8

// queues are the limits of the queues of discretised 2D-LAS.
func (l *LAS) queues() []time.Duration {
	if len(l.Limits) > 0 {
		return l.Limits
	}
	return []time.Duration{3250 * time.Second, 7200 * time.Second, 18000 * time.Second}
}

// byService is discretised two-dimensional least attained service of Gu et
// al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI
// 2019), section 3.3: jobs sink from queue to queue as the product of GPUs and
// time that they received grows, and are first come, first served in each.
// Its promotion of who starves (knob P) is LAS.Promote.
func byService(p *pass, f *facts) key { return key{p.serviceQueue(f), f.submitted} }

func (p *pass) serviceQueue(f *facts) int64 {
	q, had := 0, f.attained
	if p.opt.LAS.Promote > 0 {
		had = sincePromoted(f, p.now, p.opt.LAS.Promote) * int64(f.width())
	}
	for _, limit := range p.opt.LAS.queues() {
		if had >= limit.Microseconds() {
			q++
		}
	}
	return int64(q)
}

// sincePromoted is how long a job ran since it was promoted last: whenever it
// had waited, or waits, so many times as long as it ran until then. What it
// did is read from its attempts, so that nothing has to be kept.
func sincePromoted(f *facts, now, times int64) int64 {
	ran, idleFrom := int64(0), f.submitted
	waited := func(until int64) {
		if ran > 0 && until-idleFrom >= times*ran {
			ran = 0
		}
	}
	for i := range f.attempts {
		a := &f.attempts[i]
		if a.Started == 0 {
			continue
		}
		waited(int64(a.Placed))
		end := int64(a.Ended)
		if a.State.Live() {
			end = now
		}
		ran += max(0, end-int64(a.Started))
		idleFrom = end
	}
	waited(now)
	return ran
}

func lowerQueue(p *pass, waits, runs *facts) bool {
	return p.serviceQueue(waits) < p.serviceQueue(runs)
}

// byUse takes the jobs of whoever used least, counting the earlier jobs of
// the same user in this pass as used already, so that users take turns. Use
// is the snapshot's decayed service; when nobody kept count it is the GPU time
// that the user's running jobs have received. A weight of two halves what a job counts.
// Source: the fair-share factor of batch systems (Kay and Lauder, "A Fair Share
// Scheduler", CACM 1988), without its hierarchy.
func byUse(p *pass, f *facts) key { return key{p.use[f.id], f.since} }

func countUse(p *pass) {
	used := map[cluster.UID]int64{}
	for uid, s := range p.snap.Service {
		used[uid] = s * time.Second.Microseconds()
	}
	if p.snap.Service == nil {
		for i := range p.runs {
			if p.runs[i].part > 0 {
				continue // counted with the first
			}
			f := p.factsOfRun(&p.runs[i])
			used[f.uid] += f.attained
		}
	}
	p.use = make(map[cluster.JobID]int64, len(p.tasks))
	for _, t := range p.byArrival() {
		p.use[t.id] = used[t.uid]
		used[t.uid] += t.gpuTime() / 1000 * max(1, t.size) * 1000 / t.weight
	}
}

func (p *pass) byArrival() []*task {
	ts := slices.Clone(p.tasks)
	slices.SortFunc(ts, func(a, b *task) int { return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id)) })
	return ts
}

// byUnfairness takes the job with the worst finish-time fairness: how long it
// takes from submission to its end, were it to start now, over how long it
// would take alone. Source: Mahajan et al., "Themis: Fair and Efficient GPU
// Cluster Scheduling" (NSDI 2020), section 3. Its auction among the worst jobs
// is left out: whoever is worst chooses first.
func byUnfairness(p *pass, f *facts) key { return key{-unfairness(p, f), f.submitted} }

// unfairness is ρ in millionths.
func unfairness(p *pass, f *facts) int64 {
	shared := max(0, p.now-f.submitted) + f.left
	if shared >= forever/1_000_000 {
		return shared / max(1, f.dur) * 1_000_000
	}
	return shared * 1_000_000 / max(1, f.dur)
}

// lease is how long Themis lets a job keep its GPUs; section 5 finds 20
// minutes a fair compromise.
const lease = 20 * time.Minute

// leaseEnded lets a worse-off job take the place of one whose lease is over.
func leaseEnded(p *pass, waits, runs *facts) bool {
	return time.Duration(p.now-runs.since)*time.Microsecond >= lease && unfairness(p, waits) > unfairness(p, runs)
}

// factsOfRun are the facts of a running job. since is when its attempt began.
func (p *pass) factsOfRun(r *run) facts {
	f := factsOf(r.job, p.snap.Terms[r.job.ID], durationOf(r.job, &r.est, &p.opt.Base), p.now)
	f.since = r.began
	for _, g := range r.berth.GPUs {
		if u, ok := p.led.GPU(g.GPU); ok {
			f.size = max(f.size, dominant(g.Share, u.SellableMiB))
		}
	}
	return f
}

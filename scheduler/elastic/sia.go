package elastic

import (
	"cmp"
	"math"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

const (
	// fairness is the power of goodputs in the sum that Sia minimises, and unserved
	// what a job with nothing adds to it, the paper's p and lambda.
	fairness, unserved = -0.5, 1.1
	// displaced is what a running job adds that has nothing: more than any other.
	displaced = 100
)

// config is a type, by its index, and a number of units that a job may have; no units
// are nothing.
type config struct {
	typ, n int
	// cost is what it adds to the sum. gpus is how many GPUs of the type it takes
	// from others, and more how many beyond what every job is to have.
	cost       float64
	gpus, more int
}

// bidder is a claim and its configurations, the first of which is what it has before.
type bidder struct {
	*claim
	home    []*block // of a running job, in this market
	configs []config
	now     int      // which one it has
	place   []*block // and where
}

// bidders returns those of claims, and the market in which all have what they run
// with. Running ones keep that for themselves if hold, else others can have it.
func bidders(all []*claim, free blocks, spare int, hold bool, snap *dispatch.Snapshot) *market {
	m := newMarket(free, spare, hold)
	for _, c := range all {
		b := &bidder{claim: c, place: []*block{}}
		if c.attempt != nil {
			for _, o := range c.home {
				b.home = append(b.home, free.at(o.node.ID, o.typ))
			}
			b.place = b.home
		}
		b.offers(m, c.rates(m, func(gpu *cluster.GPU) bool { return c.mayUse(gpu, free.parts, snap) }), snap.Now)
		m.all = append(m.all, b)
	}
	return m
}

// mayUse reports whether it can run on GPUs like gpu. Of a running job with a deadline,
// which was promised by its type, and of one that resizes in place or runs on loan no
// other type is in question.
func (c *claim) mayUse(gpu *cluster.GPU, parts map[string]*cluster.Partition, snap *dispatch.Snapshot) bool {
	if c.attempt != nil {
		_, due := snap.Shares[c.job.ID]
		if gpu.Type == c.attempt.Estimate.GPUType || due || c.job.Spec.InPlace || c.attempt.Loan != "" {
			return gpu.Type == c.attempt.Estimate.GPUType
		}
	}
	if p := parts[c.job.Spec.Partition]; p != nil && !p.HasType(gpu.Type) {
		return false
	}
	pol := rules.Default()
	e, _ := cluster.EstimateFor(c.job.Estimates, gpu.Type)
	return rules.NeedOn(c.job, gpu, &e, &pol).Why == rules.VetoNone
}

// rates returns how fast it is with one GPU of each type, 0 on those on which it may
// not run: as its runs showed or, relative to these, as is predicted; and on a type of
// which nothing is known as on the slowest.
func (c *claim) rates(m *market, may func(gpu *cluster.GPU) bool) []float64 {
	takes := make([]float64, len(m.types))
	scale, n := 0.0, 0 // of steps to predictions
	for t, typ := range m.types {
		e, _ := cluster.EstimateFor(c.job.Estimates, typ)
		takes[t] = e.Duration.Seconds()
		if one := c.curve.ones[typ]; one > 0 && takes[t] > 0 {
			scale, n = scale+math.Log(one/takes[t]), n+1
		}
	}
	scale = math.Exp(scale / float64(max(1, n)))
	for t, typ := range m.types {
		if one := c.curve.ones[typ]; n > 0 && one > 0 {
			takes[t] = one / scale
		}
	}
	out, slowest := make([]float64, len(takes)), cmp.Or(slices.Max(append(takes, 0)), 1)
	for t := range takes {
		if may(m.gpus[t]) {
			out[t] = 1 / cmp.Or(takes[t], slowest)
		}
	}
	return out
}

// offers lists the configurations of a bidder. What each adds to the sum is its goodput
// over that with its least on the slowest type, to the power, with the factor for
// restarts.
func (b *bidder) offers(m *market, rates []float64, now cluster.Time) {
	most, slowest := b.least, math.Inf(1)
	for most < b.most && b.speed(most+1)-b.speed(most) >= knee*b.speed(1) {
		most++
	}
	for _, r := range rates {
		if r > 0 {
			slowest = min(slowest, r*b.speed(b.least))
		}
	}
	cost := func(t, n int) float64 { return math.Pow(rates[t]*b.speed(n)/slowest, fairness) }
	own, held, restarts := -1, 0, 1.0
	b.rate, b.configs = func(typ string) float64 { return rates[slices.Index(m.types, typ)] }, []config{{typ: -1, cost: unserved}}
	if len(b.home) > 0 {
		own, restarts = slices.Index(m.types, b.home[0].typ), math.Pow(b.kept(now.Sub(b.job.Submitted)), fairness)
		b.configs[0] = config{typ: own, n: b.had, cost: cost(own, b.had), gpus: b.had * b.unit, more: b.had * b.unit}
		if m.hold {
			held = b.had * b.unit
			b.configs[0].gpus, b.configs[0].more = 0, 0
		} else {
			b.configs = append(b.configs, config{typ: -1, cost: displaced})
		}
	}
	for t, r := range rates {
		for n := b.least; r > 0 && n <= most; n++ {
			k := config{typ: t, n: n, cost: cost(t, n) * restarts, gpus: n * b.unit, more: n * b.unit}
			switch {
			case len(b.home) == 0:
				k.more -= b.least * b.unit
			case math.IsInf(k.cost, 0) || t == own && (n == b.had || m.hold && n < b.had):
				continue
			case t == own:
				k.gpus, k.more = k.gpus-held, k.more-held
			}
			b.configs = append(b.configs, k)
		}
	}
}

// award gives each claim what its bidder has. It returns with how many units, and on
// which type, waiting ones should start.
func (m *market) award() map[cluster.JobID]Size {
	out := map[cluster.JobID]Size{}
	for _, b := range m.all {
		k := &b.configs[b.now]
		if k.n == 0 {
			continue
		}
		b.n, b.at, b.typ = k.n, b.place, m.types[k.typ]
		if b.attempt == nil {
			out[b.job.ID] = Size{Units: k.n, Type: b.typ}
		}
	}
	return out
}

// typed adds with how many units, and on which type, waiting jobs should start by
// Sia. Where not all that wait can start, it chooses for the oldest.
func (r Rules) typed(snap *dispatch.Snapshot, waiting []*claim, out map[cluster.JobID]Size, free blocks, spare int) map[cluster.JobID]Size {
	idle := free.idle()
	if spare < 0 {
		spare = 0
		waiting = slices.DeleteFunc(waiting, func(c *claim) bool {
			idle -= c.least * c.unit
			return idle < 0
		})
	}
	m := bidders(append(waiting, r.running(snap, &dispatch.Plan{}, free)...), free, spare, true, snap)
	m.divide()
	for id, size := range m.award() {
		if _, due := snap.Shares[id]; due {
			size.Type = "" // its share is of the type on which it starts first
		}
		out[id] = size
	}
	return out
}

// trade returns the job that restarts with fewer GPUs, or on another type, so that
// another one can run with more or on a better type, if that lowers the sum: of all
// that have something else in the best division, those two that lower it most. What
// they get must be idle then.
func (r Rules) trade(all []*claim, free blocks, snap *dispatch.Snapshot) []dispatch.Preemption {
	m := bidders(all, free.clone(), math.MaxInt32, false, snap)
	m.divide()
	then := make([]config, len(m.all))
	for i, b := range m.all {
		then[i] = b.configs[b.now]
		m.book(b, -1)
	}
	for _, b := range m.all {
		b.now, b.place = 0, b.home
		m.book(b, 1)
	}
	var gives, gets *bidder
	var to config
	best := 0.0
	for i, g := range m.all {
		had := &g.configs[0]
		if k := &then[i]; k.n == 0 || k.typ == had.typ && k.n >= had.n {
			continue
		}
		undo := m.move(g, &then[i])
		if undo == nil {
			continue
		}
		for j, h := range m.all {
			if i == j || then[j] == h.configs[0] || then[j].n == 0 {
				continue
			}
			gain := had.cost - then[i].cost + h.cost()
			m.book(h, -1)
			k, _ := m.cheapest(h, bare, math.Inf(1))
			m.book(h, 1)
			if gain -= h.configs[k].cost; gain > best && h.faster(m.types[h.configs[k].typ], h.configs[k].n) >= worth {
				best, gives, gets, to = gain, g, h, then[i]
			}
		}
		undo()
	}
	if gives == nil {
		return nil
	}
	if had := &gives.configs[0]; to.typ != had.typ {
		return gives.again(0, "begins again with %d × %s instead of %d × %s: job %d gains more from them (%s)",
			to.n*gives.unit, m.types[to.typ], had.n*gives.unit, m.types[had.typ], gets.job.ID, r.Sizing)
	}
	gives.n = to.n
	return r.giveTo(gives.claim, gets.claim, free)
}

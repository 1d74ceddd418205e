package optimum

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// Pattern bounds. A pattern is a set of jobs that share one GPU;
// under a model of interference it gives each of them a speed. Any schedule,
// preemptive or not, spends the time of its GPUs on patterns, so the
// linear program
//
//	min C   with   sum over types t, patterns S of speed(c,S,t) y(S,t) >= work(c)   for each class of jobs c
//	               sum over patterns S of y(S,t) <= cards(t) C                      for each type t
//
// is a lower bound of the makespan. Its dual prices p(c) say how much of the
// time of all GPUs together a second of a job's work takes at least, and any
// prices with
//
//	sum over c in S of speed(c,S,t) p(c) <= s(t)   for all S, t   and   sum over t of cards(t) s(t) <= 1
//
// make a bound, whatever solved the program: prices are checked against every
// pattern and scaled down until that is true, so that rounding cannot lift a
// bound above the optimum. A gang counts as so many jobs of one GPU, which
// relaxes it.

// class is jobs that are alike, or that are treated as alike in their favour.
type class struct {
	load  []slowdown.Load // by type, as the model of interference sees it
	speed []float64       // by type, 1 on the best; 0 where it may not run
	milli int64           // declared share, enforced; 0 is none
	alone bool            // exclusive
	work  float64         // seconds on the best type, for each GPU
	count int             // jobs, a gang once for each of its GPUs
}

// cardType is GPUs that are alike.
type cardType struct {
	name   string
	cards  int
	memMiB int64 // 0 does not bound
	shares int
}

// maxPatterns bounds how many patterns are considered; jobs are made alike in their
// favour until they have no more.
const maxPatterns = 20_000

// prices returns dual prices by job, in seconds of the whole fleet for a second of
// the job's shortest run time on one GPU; nil if there are too many patterns.
func prices(w *workload.Workload, f *workload.Fleet, world slowdown.Interference, useMemory bool, shares int) []float64 {
	types := cardTypes(f, useMemory, shares)
	most := 0
	for _, t := range types {
		most = max(most, t.shares)
	}
	limit := classLimit(most)
	if limit < 2 || len(types) == 0 {
		return nil
	}
	classes, of := classify(w, types, limit, world)
	if classes == nil {
		return nil
	}
	lp := program{classes: classes, types: types, world: world}
	p := lp.solve()
	if p == nil {
		return nil
	}
	out := make([]float64, len(w.Jobs))
	for i, c := range of {
		if c >= 0 {
			out[i] = p[c]
		}
	}
	return out
}

// cardTypes merges the nodes of a fleet by type, in order of name. Of GPUs that
// differ in memory or sharing the most generous stands for all.
func cardTypes(f *workload.Fleet, useMemory bool, shares int) []cardType {
	var out []cardType
	for _, name := range f.Types() {
		t := cardType{name: name}
		for _, s := range f.Nodes {
			if s.GPUs == 0 || s.Type() != name {
				continue
			}
			k := shares
			if k == 0 {
				k = cmp.Or(s.MaxShares, f.Shares())
			}
			t.cards += s.Count * s.GPUs
			t.shares = max(t.shares, k)
			if useMemory {
				t.memMiB = max(t.memMiB, cmp.Or(s.MemMiB, workload.DefaultMemMiB))
			}
		}
		out = append(out, t)
	}
	return out
}

// classLimit returns how many classes make at most maxPatterns sets of up to k.
func classLimit(k int) int {
	n := 0
	for ; n < 120; n++ {
		sets := 1.0 // choose(n+1+k, k), including the empty set
		for i := 1; i <= k; i++ {
			sets *= float64(n+1+i) / float64(i)
		}
		if sets > maxPatterns {
			break
		}
	}
	return n
}

// traits is what decides about a job's speed; equal traits are one class.
type traits struct {
	model  string
	stages [3]int64
	milli  int64
	alone  bool
	key    string // of the figures by type
}

// classify groups the jobs that need GPUs. If there are too many to distinguish,
// utilization and memory are rounded down and speeds up, ever coarser; nil if that
// is not enough. The second result is the class of each job, -1 for those without
// GPUs.
func classify(w *workload.Workload, types []cardType, limit int, world slowdown.Interference) ([]class, []int) {
	for _, step := range []struct {
		milli, mem int64
		speed      float64
	}{{1, 1, 1e-4}, {10, 64, 0.002}, {20, 256, 0.01}, {50, 1024, 0.02}, {100, 2048, 0.05}, {200, 4096, 0.1}, {250, 8192, 0.25}, {500, 1 << 20, 0.5}, {1000, 1 << 30, 1}} {
		var out []class
		at := map[traits]int{}
		of := make([]int, len(w.Jobs))
		for i := range w.Jobs {
			j := &w.Jobs[i]
			if of[i] = -1; j.GPUs == 0 {
				continue
			}
			c, tr := classOf(j, types, step.milli, step.mem, step.speed, world)
			k, ok := at[tr]
			if !ok {
				k = len(out)
				at[tr] = k
				out = append(out, c)
			}
			if len(out) > limit {
				break
			}
			of[i] = k
			out[k].work += best(j, types) * float64(j.GPUs)
			out[k].count += j.GPUs
		}
		if len(out) > 0 && len(out) <= limit {
			return out, of
		}
	}
	return nil, nil
}

// best returns the least run time of a job in seconds.
func best(j *workload.Job, types []cardType) float64 {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.name
	}
	return j.Shortest(names).Seconds()
}

func classOf(j *workload.Job, types []cardType, milliStep, memStep int64, speedStep float64, world slowdown.Interference) (class, traits) {
	c := class{milli: j.Milli, alone: j.Milli == 1000}
	tr := traits{milli: c.milli, alone: c.alone}
	switch world.(type) {
	case slowdown.Free, slowdown.Curve, slowdown.Linear: // they depend only on figures
	default:
		tr.model, tr.stages = j.Model, j.Stages
	}
	shortest := best(j, types)
	var key strings.Builder
	for _, t := range types {
		o := j.Figures(t.name)
		l := slowdown.Load{Milli: cmp.Or(o.UsedMilli, cmp.Or(j.Milli, 1000)) / milliStep * milliStep, MemMiB: o.MemMiB / memStep * memStep, Model: tr.model, Stages: tr.stages}
		v := 0.0
		if j.MayUse(t.name) && o.Duration > 0 {
			v = min(1, math.Ceil(shortest/o.Duration.Seconds()/speedStep)*speedStep)
		}
		c.load, c.speed = append(c.load, l), append(c.speed, v)
		key.Write(appendKey(nil, l.Milli, l.MemMiB, int64(math.Float64bits(v))))
	}
	tr.key = key.String()
	return c, tr
}

func appendKey(b []byte, vs ...int64) []byte {
	for _, v := range vs {
		for s := 0; s < 64; s += 8 {
			b = append(b, byte(v>>s))
		}
	}
	return b
}

// program is the linear program of one workload.
type program struct {
	classes []class
	types   []cardType
	world   slowdown.Interference
	cols    []column
}

// column is a pattern on a type: how fast each of its classes progresses.
type column struct {
	t     int
	entry []entry
}

type entry struct {
	c int
	v float64
}

// enumerate builds the columns: all multisets of classes that a GPU may hold.
func (lp *program) enumerate() {
	for t := range lp.types {
		lp.extend(t, nil, 0, 0, 0)
	}
}

func (lp *program) extend(t int, set []int, from int, mem, milli int64) {
	ct := &lp.types[t]
	for c := from; c < len(lp.classes); c++ {
		cl := &lp.classes[c]
		m, s := mem+cl.load[t].MemMiB, milli+cl.milli
		if cl.speed[t] == 0 || ct.memMiB > 0 && m > ct.memMiB || s > 1000 && len(set) > 0 || cl.alone && len(set) > 0 {
			continue
		}
		if n := len(set); n >= cl.count && set[n-cl.count] == c {
			continue // none of them are left
		}
		next := append(slices.Clone(set), c)
		lp.cols = append(lp.cols, lp.column(t, next))
		if len(next) < ct.shares && !cl.alone {
			lp.extend(t, next, c, m, s)
		}
	}
}

func (lp *program) column(t int, set []int) column {
	loads, speeds := make([]slowdown.Load, len(set)), make([]float64, len(set))
	for i, c := range set {
		loads[i], speeds[i] = lp.classes[c].load[t], 1
	}
	if len(set) > 1 {
		lp.world.Speeds(lp.types[t].name, loads, speeds)
	}
	col := column{t: t}
	for i, c := range set {
		v := max(1e-6, speeds[i]) * lp.classes[c].speed[t]
		if n := len(col.entry); n > 0 && col.entry[n-1].c == c {
			col.entry[n-1].v += v
			continue
		}
		col.entry = append(col.entry, entry{c, v})
	}
	return col
}

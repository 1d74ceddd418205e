package model

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/model/fit"
	"github.com/berth-scheduler/berth/model/gpuspec"
)

// The floor of a run is what it takes besides its tensors, context and libraries.
// It depends on the GPU type, the driver and the framework, and is learned from the
// smallest runs of each, where it is most of what is measured. It is added: neither
// a type's factor nor the forest multiplies it.
const (
	floorTerms = 3 // of memoryTerms, the first
	// floorRange is how many times its floor a run may take besides, to count as
	// small; floorRuns is how many of the smallest are used, of floorKept.
	floorRange = 3
	floorRuns  = 16
	floorKept  = 64
	// floorPrior is how many runs the prior counts for: the floor under the driver
	// before, for the first driver what the weights say.
	floorPrior = 3
	// floorBound is by what factor a floor may differ from that of the weights.
	floorBound = 4
	// maxDrivers is how many drivers count for a type and framework, the newest.
	maxDrivers = 4
)

// Floor is what runs show of the floor under one driver.
type Floor struct {
	Driver string
	// MiB is the floor of the job that was asked about, Runs from how many runs it
	// was learned; with 0 it is that of the driver before.
	MiB  int64
	Runs int
}

// floorKind is what a floor depends on, without the driver.
type floorKind struct{ gpuType, framework string }

// floorRun is the newest run of one job under a driver.
type floorRun struct {
	ownRun
	user string
}

// driverRuns are the runs under one driver, the newest first. first is the number
// of the oldest that is known.
type driverRuns struct {
	driver string
	first  uint64
	runs   []floorRun
}

// noteFloor keeps a run among those of its driver; runs come newest first.
func (h *History) noteFloor(s *Sample) {
	if s.Driver == "" || s.PeakMiB <= 0 || s.Censored || !s.Features.Known() || onCores(s.GPUType) {
		return
	}
	k := floorKind{gpuspec.Normalize(s.GPUType), s.Features.Framework}
	of := h.floors[k]
	i := slices.IndexFunc(of, func(d driverRuns) bool { return d.driver == s.Driver })
	if i < 0 {
		if len(of) == maxDrivers {
			return
		}
		i = len(of)
		of = append(of, driverRuns{driver: s.Driver})
	}
	d := &of[i]
	d.first = s.Seq
	if len(d.runs) < floorKept && !slices.ContainsFunc(d.runs, func(r floorRun) bool { return r.signature == s.Signature }) {
		d.runs = append(d.runs, floorRun{ownRun{s.Signature, s.GPUType, s.Driver, s.Seq, s.PeakMiB, &s.Features}, s.User})
	}
	h.floors[k] = of
}

// lift is by how many MiB runs under a driver exceed the floor of the weights.
type lift struct {
	driver string
	mib    float64
	runs   int
}

// liftsOf returns what was learned of each driver of a kind, in the order in which
// they were first seen: each begins with what the one before shows.
func (p *Predictor) liftsOf(k floorKind) []lift {
	if p.h == nil || len(p.h.floors[k]) == 0 || p.w.Learned[Memory].empty() {
		return nil
	}
	if found, ok := p.lifts.Load(k); ok {
		return found.([]lift)
	}
	drivers := slices.Clone(p.h.floors[k])
	slices.Reverse(drivers) // which were noted newest first
	slices.SortStableFunc(drivers, func(a, b driverRuns) int { return cmp.Compare(a.first, b.first) })
	out := make([]lift, 0, len(drivers))
	before, known := 0.0, false
	for i := range drivers {
		miss, prior := p.floorMisses(drivers[i].runs)
		if len(miss) == 0 {
			if known {
				out = append(out, lift{drivers[i].driver, before, 0})
			}
			continue
		}
		if !known {
			before, known = fit.Quantile(prior, 0.5), true
		}
		n := float64(len(miss))
		before += float64((fit.Quantile(miss, 0.5)-before)*n) / (n + floorPrior)
		out = append(out, lift{drivers[i].driver, before, len(miss)})
	}
	p.lifts.Store(k, out)
	return out
}

// floorMisses returns by how much the smallest runs exceed the floor of the weights,
// and by how much the weights' own corrections would have moved it.
func (p *Predictor) floorMisses(runs []floorRun) (miss, prior []float64) {
	type small struct{ rest, miss, prior float64 }
	var all []small
	users := map[string]int{}
	for i := range runs {
		users[runs[i].user] = 0
	}
	each := floorKept / max(1, min(siteVoices, len(users)))
	for i := range runs {
		r := &runs[i]
		if users[r.user]++; users[r.user] > each {
			continue
		}
		spec, _ := p.spec(TypeInfo{Name: r.gpuType})
		var sc scratch
		g := p.w.Learned[Memory].estimate(Memory, p.splits[Memory], &p.w, r.features, &spec, &sc)
		if rest := float64(g.value * (1 - g.floor/g.base)); g.base > 0 && rest <= float64(floorRange*g.floor) {
			all = append(all, small{rest, float64(r.peakMiB) - rest - g.floor, g.value - rest - g.floor})
		}
	}
	slices.SortStableFunc(all, func(a, b small) int { return cmp.Compare(a.rest, b.rest) })
	for _, s := range all[:min(len(all), floorRuns)] {
		miss, prior = append(miss, s.miss), append(prior, s.prior)
	}
	return miss, prior
}

// lifted returns the lifts of the drivers named, all that are known if none is: a
// driver without runs has that of the newest.
func (p *Predictor) lifted(framework string, spec *gpuspec.Spec, drivers string) []lift {
	known := p.liftsOf(floorKind{spec.Name, framework})
	if len(known) == 0 {
		return nil
	}
	newest := known[len(known)-1]
	if drivers == "" {
		return []lift{newest}
	}
	var out []lift
	for d := range strings.FieldsSeq(drivers) {
		if i := slices.IndexFunc(known, func(l lift) bool { return l.driver == d }); i >= 0 {
			out = append(out, known[i])
		} else {
			out = append(out, lift{driver: d, mib: newest.mib})
		}
	}
	return out
}

// memory estimates the memory of a job on a type whose nodes have the given drivers:
// of those, the one with the highest floor.
func (p *Predictor) memory(f *Features, spec *gpuspec.Spec, drivers string, sc *scratch) guess {
	g := p.w.Learned[Memory].estimate(Memory, p.splits[Memory], &p.w, f, spec, sc)
	for i, l := range p.lifted(f.Framework, spec, drivers) {
		if mib := g.floored(l); i == 0 || mib > g.floor+g.lift {
			g.lift, g.lifted = mib-g.floor, true
		}
	}
	if g.lifted && g.base > 0 {
		value := float64(g.value*(1-g.floor/g.base)) + g.floor + g.lift
		g.p95 *= value / g.value
		g.value = value
	}
	return g
}

// floored returns the floor with a lift.
func (g *guess) floored(l lift) float64 {
	return min(max(g.floor+l.mib, g.floor/floorBound), float64(g.floor*floorBound))
}

// floors returns the floor of a job under each driver.
func (p *Predictor) floors(f *Features, spec *gpuspec.Spec, drivers string, g *guess) []Floor {
	var out []Floor
	for _, l := range p.lifted(f.Framework, spec, drivers) {
		out = append(out, Floor{Driver: l.driver, MiB: ceil(g.floored(l)), Runs: l.runs})
	}
	return out
}

// moved returns by how much more memory a job takes on the type's drivers than it
// did under the one it ran under; never less than 0.
func (p *Predictor) moved(r *Request, o *observed, spec *gpuspec.Spec, drivers string) float64 {
	if drivers == "" || o.driver == "" {
		return 0
	}
	was, most := p.lifted(r.Features.Framework, spec, o.driver), 0.0
	for _, l := range p.lifted(r.Features.Framework, spec, drivers) {
		most = max(most, l.mib-was[0].mib)
	}
	return most
}

package scheduler

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fleet"
)

// Offers places jobs one at a time; see Arrivals.
type Offers interface {
	// Offer tries to place j at a time and log index, and claims its berth if it
	// starts. It reports false if j would have to wait.
	Offer(now cluster.Time, index uint64, j *cluster.Job) (dispatch.Start, bool)
}

// Arrivals places jobs that arrive one at a time on nodes from which nothing
// leaves. It decides about each as Schedule would if that job waited alone, but in
// microseconds rather than the time of a pass. It is not safe for concurrent use.
type Arrivals struct {
	p     *pass
	frag  *frag
	ran   []*cluster.Job
	step  int
	other bool    // the typical jobs are no longer those frag has
	odd   bool    // nor those in the tree for jobs without GPUs
	moved []int32 // nodes where something started since that tree was built
}

// NewArrivals starts from the nodes as they are in the ledger, with nothing
// running. It changes neither. It ignores pol's PatienceMilli: no job declines a
// free GPU.
func NewArrivals(nodes []*cluster.Node, led *dispatch.Ledger, pol Policy) *Arrivals {
	pol.PatienceMilli = 0
	p := newPass(&scene{mem: &memory{}, pol: pol, nodes: nodes})
	p.f = fleet.New(nodes, led.Clone(), nil, &p.pol, nil)
	p.fitter.typical = newLearn(len(p.f.Classes))
	a := &Arrivals{p: p, step: 1}
	if pol.FragNodes > 0 && pol.FragJobs > 0 {
		a.frag = p.fitter.makeFrag()
	}
	return a
}

// Offer implements Offers. The id of j must be higher than all earlier ones.
func (a *Arrivals) Offer(now cluster.Time, index uint64, j *cluster.Job) (dispatch.Start, bool) {
	p := a.p
	p.now, p.running, p.holds, p.plan = int64(now), a.ran, nil, dispatch.Plan{BaseIndex: index}
	p.lines.started, p.lines.residents, p.lines.loaded = p.lines.started[:0], nil, false
	clear(p.fitter.failed)
	p.fitter.matched = false
	p.gather([]*cluster.Job{j})
	if len(p.items) == 0 {
		return dispatch.Start{}, false
	}
	weight := a.learn(j)
	if j.Spec.GPUs == 0 || j.Spec.OrCPU {
		a.reorder()
	}
	ok := p.start(&p.items[0])
	if !ok {
		if weight > 0 {
			p.fitter.typical.add(j, p.f, -weight)
			a.other = true
		}
		return dispatch.Start{}, false
	}
	st := p.plan.Starts[0]
	a.ran = append(a.ran, j)
	for _, b := range st.Berths() {
		a.settle(p.f.HostAt[b.Node])
	}
	return st, true
}

// learn updates the typical jobs with those running and j, and returns the weight
// with which j counts.
func (a *Arrivals) learn(j *cluster.Job) (weight int64) {
	p, n := a.p, len(a.ran)
	if step := every(n + 1); step != a.step {
		a.step, a.other = step, true
		p.fitter.typical = newLearn(len(p.f.Classes))
		for i := 0; i < n; i += step {
			p.fitter.typical.add(a.ran[i], p.f, int64(step))
		}
	}
	if n%a.step == 0 {
		weight, a.other = int64(a.step), true
		p.fitter.typical.add(j, p.f, weight)
	}
	if a.other {
		p.fitter.frag, a.odd, a.other = nil, true, false
		if a.frag != nil && a.frag.learn(p.fitter) {
			p.fitter.frag = a.frag
		}
	}
	return weight
}

// settle brings a node where something started to the state that a new pass would
// find.
func (a *Arrivals) settle(host int32) {
	f := a.p.f
	h := &f.Hosts[host]
	f.KeepIdle(h)
	f.Keeps(host, nil)
	a.frag.changed(host)
	if !slices.Contains(a.moved, host) {
		a.moved = append(a.moved, host)
	}
}

// reorder updates the order of nodes for jobs without GPUs after starts.
func (a *Arrivals) reorder() {
	p := a.p
	f := p.f
	if len(a.moved) > 0 {
		f.Order = slices.DeleteFunc(f.Order, func(i int32) bool { return slices.Contains(a.moved, i) })
		for _, i := range a.moved {
			if f.Hosts[i].Place >= 0 {
				at, _ := slices.BinarySearchFunc(f.Order, i, f.ComparePlain)
				f.Order = slices.Insert(f.Order, at, i)
			}
		}
		f.FillPlain()
	}
	if p.plains.mild != nil && (a.odd || len(a.moved) > 0) {
		p.plains.fillMild()
	}
	a.odd, a.moved = false, a.moved[:0]
}

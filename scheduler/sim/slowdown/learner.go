package slowdown

import (
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// What makes a run informative, as for the coordinator's learner: a neighbour
// counts from a tenth of the run on, and shows how fast the run was next to it from
// three tenths on.
const (
	briefly    = 0.1
	longEnough = 0.3
)

// Learner learns how programs slow each other down from runs that end, as a cluster
// does: a program whose speed alone is known, and which then shared its GPUs with
// one other program, has shown how fast it is next to that. What it learns is
// exact. It is not safe for concurrent use.
type Learner struct {
	world Interference
	of    map[string]*workload.Job // a job of each program
	alone map[meeting]bool         // programs that ran alone, by GPU type
	live  map[int32]*visit
	know  *dispatch.Interference
}

// meeting is a program on a type of GPU.
type meeting struct{ model, gpuType string }

// visit is a live attempt and the jobs that share, or shared, GPUs with it.
type visit struct {
	meeting
	since int64
	mates map[int32]int64  // since when
	past  map[string]int64 // microseconds next to each program, of mates that left
}

// NewLearner returns a learner that knows nothing yet of the programs of w on the
// types of f.
func NewLearner(w *workload.Workload, f *workload.Fleet, world Interference) *Learner {
	l := &Learner{
		world: world, of: map[string]*workload.Job{}, alone: map[meeting]bool{}, live: map[int32]*visit{},
		know: &dispatch.Interference{Jobs: map[string]dispatch.Temper{}, MaxBend: mostBend},
	}
	var names []string
	for i := range w.Jobs {
		if j := &w.Jobs[i]; j.Model != "" && l.of[j.Model] == nil {
			l.of[j.Model] = j
			names = append(names, j.Model)
		}
	}
	slices.Sort(names)
	for i := range w.Jobs {
		if j := &w.Jobs[i]; j.Model != "" {
			at, _ := slices.BinarySearch(names, j.Model)
			l.know.Jobs[j.Signature()] = dispatch.Temper{Self: uint64(at + 1)}
		}
	}
	for _, t := range f.Types() {
		l.know.Cards = append(l.know.Cards, dispatch.Sharing{GPUType: t})
	}
	return l
}

// Know returns what was learned so far. It is immutable.
func (l *Learner) Know() *dispatch.Interference { return l.know }

// Begin records that a job began at a time in microseconds, next to the residents
// of its GPUs; all are numbers by which End names them.
func (l *Learner) Begin(id int32, now int64, j *workload.Job, gpuType string, mates []int32) {
	v := &visit{meeting: meeting{j.Model, gpuType}, since: now, mates: map[int32]int64{}, past: map[string]int64{}}
	l.live[id] = v
	for _, m := range mates {
		if o := l.live[m]; o != nil && m != id {
			v.mates[m], o.mates[id] = now, now
		}
	}
}

// End records that it ended; what was not completed shows nothing. It reports
// whether Know has changed.
func (l *Learner) End(id int32, now int64, completed bool) bool {
	v := l.live[id]
	delete(l.live, id)
	for m, since := range v.mates {
		o := l.live[m]
		delete(o.mates, id)
		o.past[v.model] += now - since
		v.past[o.model] += now - since
	}
	if !completed || v.model == "" {
		return false
	}
	beside, part := "", 0.0
	for model, d := range v.past {
		p := float64(d) / float64(max(1, now-v.since))
		switch {
		case p < briefly:
			continue
		case beside != "" || p > 1+briefly || model == "":
			return false // which of them slowed it down is unknown
		}
		beside, part = model, p
	}
	switch {
	case beside == "":
		l.alone[v.meeting] = true
	case part >= longEnough && l.alone[v.meeting]:
		return l.learn(v, beside)
	}
	return false
}

// learn adds how fast a program is next to another one, if that is new.
func (l *Learner) learn(v *visit, beside string) bool {
	a, b := l.of[v.model], l.of[beside]
	pair := [2]uint64{l.know.Jobs[a.Signature()].Self, l.know.Jobs[b.Signature()].Self}
	at := slices.IndexFunc(l.know.Cards, func(s dispatch.Sharing) bool { return s.GPUType == v.gpuType })
	if _, known := l.know.Cards[at].Histories[pair]; known {
		return false
	}
	next := *l.know // planners may hold what was known
	next.Cards = slices.Clone(next.Cards)
	s := &next.Cards[at]
	if s.Histories = maps.Clone(s.Histories); s.Histories == nil {
		s.Histories = map[[2]uint64]float64{}
	}
	s.Histories[pair] = offsetOf(speedBeside(l.world, v.gpuType, a, b))
	l.know = &next
	return true
}

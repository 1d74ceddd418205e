// Package slowdown says how much slower jobs run that share a GPU: models after
// papers, tables of measurements, and what a learner would know of them.
package slowdown

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/scheduler/policies/place"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// Load is one job's load on a GPU.
type Load struct {
	Milli  int64
	MemMiB int64
	Model  string
	Stages [3]int64
	// Iteration is how long one takes alone; 0 is unknown.
	Iteration time.Duration
}

// Interference says how fast co-located jobs run.
type Interference interface {
	// Name returns the model and its parameters, for reports.
	Name() string
	// Speeds fills out with the speed of each job of loads on one GPU of a type, 1
	// being as fast as alone. Both have the same length, at least 2.
	Speeds(gpuType string, loads []Load, out []float64)
	// CapsWork reports whether a GPU never does more than one GPU's worth of
	// utilization at a time, which makes summed utilization a bound.
	CapsWork() bool
}

// Free is a world without interference.
type Free struct{}

// Name implements Interference.
func (Free) Name() string { return "none" }

// Speeds implements Interference.
func (Free) Speeds(_ string, _ []Load, out []float64) {
	for i := range out {
		out[i] = 1
	}
}

// CapsWork implements Interference.
func (Free) CapsWork() bool { return false }

// Curve is the shape of Yeung et al. (HotCloud 2020, figure 5a): the slowdown of
// each job on a GPU with k jobs is 1 + Beside*(k-1) + Over*max(0, sum of
// utilizations - 1). The parameters are read from a figure, not fitted.
type Curve struct{ Beside, Over float64 }

// DefaultCurve returns the middle of what the figure allows.
func DefaultCurve() Curve { return Curve{Beside: 0.06, Over: 1} }

// Name implements Interference.
func (c Curve) Name() string { return fmt.Sprintf("curve beside=%g over=%g", c.Beside, c.Over) }

// Speeds implements Interference.
func (c Curve) Speeds(_ string, loads []Load, out []float64) {
	sum := int64(0)
	for i := range loads {
		sum += loads[i].Milli
	}
	slow := 1 + c.Beside*float64(len(loads)-1) + c.Over*max(0, float64(sum)/1000-1)
	for i := range out {
		out[i] = 1 / slow
	}
}

// CapsWork implements Interference.
func (c Curve) CapsWork() bool { return c.Over >= 1 }

// Linear makes each further job on a GPU cost the same, as SchedTune (CCGrid 2022,
// figure 8) shows for two to four.
type Linear struct{ Beside float64 }

// Name implements Interference.
func (l Linear) Name() string { return fmt.Sprintf("linear beside=%g", l.Beside) }

// Speeds implements Interference.
func (l Linear) Speeds(_ string, loads []Load, out []float64) {
	for i := range out {
		out[i] = 1 / (1 + l.Beside*float64(len(loads)-1))
	}
}

// CapsWork implements Interference.
func (l Linear) CapsWork() bool { return false }

// Stages is Muri's overlap (SIGCOMM 2022): jobs that share a GPU interleave their
// work on the GPU, on cores and disk, and on the network. Each iteration takes as
// long as the busiest of the three stages of all together, relative to its own:
// optimistic, as no stage ever waits needlessly. Jobs without known stages take
// turns.
type Stages struct{}

// Name implements Interference.
func (Stages) Name() string { return "stages" }

// Speeds implements Interference. A job at speed v spends v*stage of its time
// in a stage; all stages together hold at most one. The common v is the largest
// that fits.
func (Stages) Speeds(_ string, loads []Load, out []float64) {
	var sum [3]int64
	for i := range loads {
		s := loads[i].Stages
		if s == [3]int64{} {
			s[0] = 1000
		}
		for k := range s {
			sum[k] += s[k]
		}
	}
	v := min(1, 1000/float64(max(sum[0], sum[1], sum[2], 1)))
	for i := range out {
		out[i] = v
	}
}

// CapsWork implements Interference.
func (Stages) CapsWork() bool { return false }

// pairKey identifies an ordered pair of models on a type of GPU.
type pairKey struct{ gpuType, a, b string }

// Pairs takes the speed of a job next to another from a table of measurements.
// Three on a GPU are not measured anywhere: there the slowdowns multiply. What the
// table does not hold uses Else.
type Pairs struct {
	Source string
	Else   Interference
	speed  map[pairKey]float64
}

// NewPairs returns an empty table.
func NewPairs(source string, other Interference) *Pairs {
	return &Pairs{Source: source, Else: other, speed: map[pairKey]float64{}}
}

// Set records the speed of model a next to model b. An empty type stands for every
// type.
func (p *Pairs) Set(gpuType, a, b string, speed float64) {
	p.speed[pairKey{strings.ToLower(gpuType), a, b}] = speed
}

// Len returns how many ordered pairs are known.
func (p *Pairs) Len() int { return len(p.speed) }

// Name implements Interference.
func (p *Pairs) Name() string { return fmt.Sprintf("pairs of %s, else %s", p.Source, p.Else.Name()) }

// least keeps a pair that could not run in the table's world from stalling forever
// in ours.
const least = 0.02

// Speeds implements Interference.
func (p *Pairs) Speeds(gpuType string, loads []Load, out []float64) {
	p.Else.Speeds(gpuType, loads, out)
	t := strings.ToLower(gpuType)
	for i := range loads {
		v, known := 1.0, true
		for k := range loads {
			if k == i {
				continue
			}
			s, ok := p.speed[pairKey{t, loads[i].Model, loads[k].Model}]
			if !ok {
				s, ok = p.speed[pairKey{"", loads[i].Model, loads[k].Model}]
			}
			known = known && ok
			v *= min(1, s)
		}
		if known {
			out[i] = max(least, v)
		}
	}
}

// CapsWork implements Interference.
func (p *Pairs) CapsWork() bool { return false }

// Interleaved is the speed model of the published simulator of Muri (Zhao et al.,
// SIGCOMM 2022, section 4.1): jobs that share a GPU do one iteration each in a
// common period, see place.Period and place.Contention. The speed of each is its
// own iteration over that, so a job with short iterations pays dearly for a
// neighbour with long ones. Jobs of unknown stages or iterations take turns, and so
// do more than four.
type Interleaved struct{}

// Name implements Interference.
func (Interleaved) Name() string { return "interleaved stages of Muri" }

// CapsWork implements Interference.
func (Interleaved) CapsWork() bool { return false }

// Speeds implements Interference.
func (Interleaved) Speeds(_ string, loads []Load, out []float64) {
	n := len(loads)
	unknown := func(l Load) bool { return l.Iteration <= 0 || l.Stages == [3]int64{} }
	if n > 4 || slices.ContainsFunc(loads, unknown) {
		for i := range out {
			out[i] = 1 / float64(n)
		}
		return
	}
	group := make([]place.Stages, n)
	for i := range loads {
		group[i] = StagesOf(loads[i].Stages, loads[i].Iteration)
	}
	period := float64(place.Period(group)) * float64(place.Contention(n)) / 1000
	for i := range out {
		out[i] = min(1, float64(loads[i].Iteration)/period)
	}
}

// StagesOf returns how long the stages of an iteration take.
func StagesOf(parts [3]int64, iteration time.Duration) (s place.Stages) {
	for k := range s {
		s[k] = iteration * time.Duration(parts[k]) / 1000
	}
	return s
}

// LoadOf returns a job's load on a GPU of a type.
func LoadOf(j *workload.Job, gpuType string) Load {
	f := j.Figures(gpuType)
	return Load{Milli: cmp.Or(f.UsedMilli, cmp.Or(j.Milli, 1000)), MemMiB: f.MemMiB, Model: j.Model, Stages: j.Stages, Iteration: j.Iteration}
}

package dispatch

import "github.com/berth-scheduler/berth/cluster"

// Interference is what is known of how co-located jobs slow each other down, as
// plain numbers that the scheduler computes with. Nil means that nothing was
// learned. Values are immutable.
//
// With u the utilization of a job alone and m its share of the memory bandwidth, a
// neighbour n adds to the slowdown of victim v
//
//	max(1, (1 + Switch + Compute·u(v)·u(n) + Memory·u(v)·m(n) + Bandwidth·max(0, m(v)+m(n)−1)) · bend(x)) − 1
//
// where bend(x) = (2+x)/(2−x) and x is the sum of the offsets learned of both,
// limited to ±MaxBend. Slowdowns of several neighbours add up; with three jobs or
// more, bandwidth that only all of them together exceed is added.
type Interference struct {
	// Jobs maps each signature to the names under which offsets were learned.
	Jobs map[string]Temper
	// Cards has one entry per GPU type and way of sharing, sorted by type.
	Cards []Sharing
	// BandwidthPerUtil is the memory bandwidth used per utilization, MaxBend the
	// bound of offsets.
	BandwidthPerUtil, MaxBend float64
}

// Temper holds the names under which a signature was learned: its own and that of
// its family; 0 is none.
type Temper struct{ Self, Family uint64 }

// Sharing is what is known of one GPU type shared in one way.
type Sharing struct {
	GPUType string
	// MPS means that kernels run concurrently rather than in turns.
	MPS bool
	// Never means that two jobs get less done together here than in turns.
	Never bool
	// Pairs is how many pairs of jobs were observed, SpeedSum the sum of their
	// speeds.
	Pairs    int
	SpeedSum float64

	Switch, Compute, Memory, Bandwidth float64
	// Effects are keyed by name, Histories by the names of victim and neighbour.
	Effects   map[uint64]Effect
	Histories map[[2]uint64]float64
}

// Effect is how sensitive and how aggressive a job is beyond what its load
// predicts, as offsets: +0.1 is 10 % slower.
type Effect struct{ Sensitivity, Aggression float64 }

// Offset returns what was learned of a victim with a neighbour.
func (s *Sharing) Offset(victim, neighbour Temper) float64 {
	var sum float64
	for _, v := range [...]uint64{victim.Self, victim.Family} {
		if v == 0 {
			continue
		}
		sum += s.Effects[v].Sensitivity
		for _, n := range [...]uint64{neighbour.Self, neighbour.Family} {
			if n != 0 {
				sum += s.Histories[[2]uint64{v, n}]
			}
		}
	}
	for _, n := range [...]uint64{neighbour.Self, neighbour.Family} {
		if n != 0 {
			sum += s.Effects[n].Aggression
		}
	}
	return sum
}

// SharingOn returns what is known of sharing a GPU, nil if nothing is, and for GPUs
// on which no job can slow another down.
func (x *Interference) SharingOn(g *cluster.GPU) *Sharing {
	if x == nil || g.CapMode == "mig" {
		return nil
	}
	for i := range x.Cards {
		if c := &x.Cards[i]; c.GPUType == g.Type && c.MPS == (g.CapMode == "mps") {
			return c
		}
	}
	return nil
}

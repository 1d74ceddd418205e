package dispatch

import "github.com/berth-scheduler/berth/cluster"

// Interference is what is known of how jobs slow each other down that share a
// GPU, as plain numbers that the scheduler reckons with. A nil one says that
// nothing was learned. Values are immutable.
//
// With u the utilization of a job alone and m its share of the memory
// bandwidth, a neighbour n adds to the slowdown of victim v
//
//	max(1, (1 + Switch + Compute·u(v)·u(n) + Memory·u(v)·m(n) + Bandwidth·max(0, m(v)+m(n)−1)) · bend(x)) − 1
//
// where bend(x) = (2+x)/(2−x) and x is the sum of what was learned of both, at
// most MaxBend either way. Slowdowns of several neighbours add up; of three jobs
// and more the bandwidth that only all together lack comes on top.
type Interference struct {
	// Jobs names what was learned by, for each signature.
	Jobs map[string]Temper
	// Cards has one entry per GPU type and way of sharing, by type.
	Cards []Sharing
	// BandwidthPerUtil is the bandwidth that is taken per utilization, MaxBend
	// the bound of offsets.
	BandwidthPerUtil, MaxBend float64
}

// Temper names what was learned of one signature: under its own name and under
// that of its family; 0 is nothing.
type Temper struct{ Self, Family uint64 }

// Sharing is the knowledge about one GPU type that is shared in one way.
type Sharing struct {
	GPUType string
	// MPS tells that kernels run side by side, and not in turns.
	MPS bool
	// Never tells that two jobs get less done here together than by turns.
	Never bool
	// Pairs is how many pairs of jobs said so, SpeedSum what their speeds add up
	// to.
	Pairs    int
	SpeedSum float64

	Switch, Compute, Memory, Bandwidth float64
	// Effects are by name, Histories by the names of victim and neighbour.
	Effects   map[uint64]Effect
	Histories map[[2]uint64]float64
}

// Effect is how sensitive and how aggressive a job is beyond what its load
// says, as offsets: +0.1 is 10 % slower.
type Effect struct{ Sensitivity, Aggression float64 }

// Offset is what was learned of a victim beside a neighbour.
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

// SharingOn returns what is known of sharing a card, nil when nothing is, and
// for cards that share nothing that could slow anybody down.
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

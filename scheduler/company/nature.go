package company

import "github.com/berth-scheduler/berth/cluster/dispatch"

// Nature is what was learned of a job for one way of sharing GPUs, looked up once
// for all that it is compared with.
type Nature struct {
	temper      dispatch.Temper
	own, family dispatch.Effect
	paired      bool // something may be known of it as the victim of certain others
}

// Read brings it into the cache. What it returns keeps the compiler from leaving
// that out.
func (n *Nature) Read() uint64 { return n.temper.Self + uint64(n.family.Aggression) }

// NatureOf returns what was learned of the jobs of a signature; s is nil if nothing
// was of sharing that way. If not nil, victims holds those of s.
func NatureOf(x *dispatch.Interference, s *dispatch.Sharing, signature string, victims map[uint64]struct{}) Nature {
	if x == nil || s == nil {
		return Nature{}
	}
	t := x.Jobs[signature]
	n := Nature{temper: t, paired: len(s.Histories) > 0}
	if t.Self != 0 {
		n.own = s.Effects[t.Self]
	}
	if t.Family != 0 {
		n.family = s.Effects[t.Family]
	}
	if victims != nil {
		_, self := victims[t.Self]
		_, family := victims[t.Family]
		n.paired = self || family
	}
	return n
}

// Victims returns the names of which something is known with certain neighbours.
func Victims(s *dispatch.Sharing) map[uint64]struct{} {
	out := make(map[uint64]struct{}, len(s.Histories))
	for pair := range s.Histories {
		out[pair[0]] = struct{}{}
	}
	return out
}

// offset is Sharing.Offset, added up in the same order.
func offset(s *dispatch.Sharing, victim, neighbour *Nature) float64 {
	if !victim.paired {
		return victim.own.Sensitivity + victim.family.Sensitivity + neighbour.own.Aggression + neighbour.family.Aggression
	}
	sum := histories(s, victim.own.Sensitivity, victim.temper.Self, &neighbour.temper)
	sum = histories(s, sum+victim.family.Sensitivity, victim.temper.Family, &neighbour.temper)
	return sum + neighbour.own.Aggression + neighbour.family.Aggression
}

// histories adds to sum what is known of a victim with a neighbour's names.
func histories(s *dispatch.Sharing, sum float64, victim uint64, neighbour *dispatch.Temper) float64 {
	if victim == 0 {
		return sum
	}
	if neighbour.Self != 0 {
		sum += s.Histories[[2]uint64{victim, neighbour.Self}]
	}
	if neighbour.Family != 0 {
		sum += s.Histories[[2]uint64{victim, neighbour.Family}]
	}
	return sum
}

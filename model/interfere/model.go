package interfere

import (
	"math"
	"math/bits"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

// Model predicts speeds. It is immutable and safe for concurrent use. The zero
// Model, and a nil one, know only the default prior.
type Model struct {
	classes []class
	types   []gpuType
	effects []effect
	pairs   []pairEffect
	advice  []Advice

	places map[string]place  // normalized type names, including those of the GPU table
	jobAt  map[jobKey]uint16 // into effects
	pairAt pairTable         // into pairs
}

// class is a group of GPU types that share coefficients: an architecture, or one
// type that is not in the table.
type class struct {
	name  string
	coefs [modes]Coefficients
	seen  [modes]uint16 // observations behind coefs
}

type gpuType struct {
	name  string
	class uint8
}

// place is a GPU type's position in a Model; typ is -1 if no observation came from
// this very type.
type place struct{ class, typ int16 }

// jobKey is a job or family on one class of GPU in one mode.
type jobKey struct {
	id    uint64
	class uint8
	mode  Mode
}

// effect is what was learned about one jobKey, in units of bend.
type effect struct {
	key               jobKey
	sens, aggr        float32
	asVictim, asOther uint16 // observations
}

// pairEffect is what was learned about a victim next to another job, beyond the
// effects of both.
type pairEffect struct {
	victim, other uint16 // into effects
	typ           uint8
	value         float32
	n             uint16
}

func packPair(victim, other uint16, typ int16) uint64 {
	return uint64(victim)<<32 | uint64(other)<<16 | uint64(uint16(typ))
}

// pairTable finds pairs by packPair. A set of three jobs takes up to 24 lookups,
// for which Go's map is too slow; entries are never removed, so linear probing
// suffices.
type pairTable struct {
	slots []pairSlot // a power of two, at most half of them taken; nil if empty
}

type pairSlot struct {
	key uint64
	at  uint16 // index into pairs plus one; 0 for a free slot
}

func newPairTable(pairs []pairEffect) pairTable {
	if len(pairs) == 0 {
		return pairTable{}
	}
	t := pairTable{slots: make([]pairSlot, 2<<bits.Len(uint(len(pairs))))}
	for i := range pairs {
		p := &pairs[i]
		k := packPair(p.victim, p.other, int16(p.typ))
		t.slots[t.slot(k)] = pairSlot{key: k, at: uint16(i) + 1}
	}
	return t
}

// slot returns where k is or would be.
func (t *pairTable) slot(k uint64) uint64 {
	mask := uint64(len(t.slots) - 1)
	for i := k * 0x9e3779b97f4a7c15 >> 32 & mask; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.at == 0 || s.key == k {
			return i
		}
	}
}

// find returns the pair's index, or -1.
func (t *pairTable) find(k uint64) int {
	if len(t.slots) == 0 {
		return -1
	}
	return int(t.slots[t.slot(k)].at) - 1
}

// index builds the maps from the slices.
func (m *Model) index() {
	m.places = make(map[string]place)
	classAt := make(map[string]int16, len(m.classes))
	for i := range m.classes {
		classAt[m.classes[i].name] = int16(i)
	}
	for _, s := range gpuspec.All() {
		if c, ok := classAt[s.Arch]; ok {
			m.places[s.Name] = place{class: c, typ: -1}
		} else {
			m.places[s.Name] = place{class: -1, typ: -1}
		}
	}
	for i, t := range m.types {
		m.places[t.name] = place{class: int16(t.class), typ: int16(i)}
	}
	m.jobAt = make(map[jobKey]uint16, len(m.effects))
	for i := range m.effects {
		m.jobAt[m.effects[i].key] = uint16(i)
	}
	m.pairAt = newPairTable(m.pairs)
}

// find resolves a GPU type. Normalized names (see gpuspec.Normalize) cost a map
// lookup; other spellings are normalized first, which allocates.
func (m *Model) find(name string) place {
	if m == nil || len(m.classes) == 0 {
		return place{-1, -1}
	}
	if p, ok := m.places[name]; ok {
		return p
	}
	n := gpuspec.Normalize(name)
	if p, ok := m.places[n]; ok {
		return p
	}
	return place{-1, -1}
}

// coefficients returns those of a place and mode, or the built-in ones.
func (m *Model) coefficients(at place, mode Mode) Coefficients {
	if m != nil && at.class >= 0 && mode < modes && m.classes[at.class].seen[mode] > 0 {
		return m.classes[at.class].coefs[mode]
	}
	return DefaultCoefficients(mode)
}

// Speeds appends to out the speed of each job of s, in the order of s.Jobs, and
// returns it. A lone job has speed 1; in a set of more than MaxSet jobs, which
// should never be placed, each has MinSpeed. More load on a job, or one job more,
// never predicts a faster neighbour. It does not allocate if out has room and
// GPUType is a normalized name.
func (m *Model) Speeds(s Set, out []float64) []float64 {
	switch {
	case len(s.Jobs) == 1:
		return append(out, 1)
	case len(s.Jobs) > MaxSet:
		for range s.Jobs {
			out = append(out, MinSpeed)
		}
		return out
	}
	var g gang
	g.fill(s.Jobs)
	at := m.find(s.GPUType)
	c := m.coefficients(at, s.Mode)
	var known [MaxSet]learned
	if m != nil && at.class >= 0 {
		for i := range g.n {
			known[i] = m.lookup(&g.loads[i], at, s.Mode)
		}
	}
	var speeds [MaxSet]float64
	for i := range g.n {
		slow := 1 + c.beyondPairs(&g, i)
		for j := range g.n {
			if j != i {
				p := 1 + c.pairExcess(&g.loads[i], &g.loads[j])
				slow += pairSlowdown(p, m.offset(&known[i], &known[j], at)) - 1
			}
		}
		speeds[g.from[i]] = speedOf(slow)
	}
	return append(out, speeds[:g.n]...)
}

// learned holds the entries of one job: its own and its family's.
type learned struct {
	sig, fam int32 // into effects plus one; 0 for none
}

func (m *Model) lookup(l *load, at place, mode Mode) learned {
	var k learned
	if l.sig != 0 {
		if i, ok := m.jobAt[jobKey{l.sig, uint8(at.class), mode}]; ok {
			k.sig = int32(i) + 1
		}
	}
	if l.fam != 0 {
		if i, ok := m.jobAt[jobKey{l.fam, uint8(at.class), mode}]; ok {
			k.fam = int32(i) + 1
		}
	}
	return k
}

// offset returns the sum of all that was learned about a victim and another job.
func (m *Model) offset(v, o *learned, at place) float64 {
	var sum float64
	for _, i := range [...]int32{v.sig, v.fam} {
		if i > 0 {
			sum += float64(m.effects[i-1].sens)
		}
	}
	for _, i := range [...]int32{o.sig, o.fam} {
		if i > 0 {
			sum += float64(m.effects[i-1].aggr)
		}
	}
	if at.typ < 0 {
		return sum
	}
	for _, i := range [...]int32{v.sig, v.fam} {
		for _, j := range [...]int32{o.sig, o.fam} {
			if i > 0 && j > 0 {
				if p := m.pairAt.find(packPair(uint16(i-1), uint16(j-1), at.typ)); p >= 0 {
					sum += float64(m.pairs[p].value)
				}
			}
		}
	}
	return sum
}

// maxBend bounds offsets: a factor of 9 either way.
const maxBend = 1.6

// bend returns the factor (2+x)/(2-x) of an offset. It is exp to the second order,
// has unbend as its exact inverse and bend(-x) = 1/bend(x), and needs no
// transcendental function, whose last bits differ between architectures.
func bend(x float64) float64 {
	x = max(-maxBend, min(maxBend, x))
	return (2 + x) / (2 - x)
}

// unbend returns the offset whose factor is r > 0, bounded like bend's.
func unbend(r float64) float64 {
	return max(-maxBend, min(maxBend, 2*(r-1)/(r+1)))
}

// pairSlowdown corrects the prior's slowdown of one neighbour; no job is ever
// faster with a neighbour.
func pairSlowdown(prior, offset float64) float64 {
	return max(1, float64(prior*bend(offset)))
}

func speedOf(slowdown float64) float64 {
	return math.Max(MinSpeed, 1/slowdown)
}

// Package interfere predicts how fast jobs run that share one GPU: for each of
// a set of up to eight jobs its normalized speed, 1 being as fast as alone and
// the slowdown being 1/speed.
//
// A prior of a few non-negative coefficients per sharing mode answers before
// anything was measured. Observations refit the coefficients, then teach how
// sensitive and how aggressive each job is, then what each pair of jobs does.
// All is deterministic: equal observations in equal order give an equal model,
// byte for byte, on every architecture.
package interfere

import (
	"math"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

const (
	// MaxSet is the largest set of jobs on one GPU that is predicted.
	MaxSet = 8
	// MinSpeed is the lowest speed that is ever predicted.
	MinSpeed = 0.02
	// Unknown stands for a utilization or bandwidth that nobody knows. Every
	// negative number and NaN mean the same to Speeds.
	Unknown = -1.0
	// bandwidthGuess is the memory bandwidth taken per utilization when only the
	// latter is known. A judgement: half of the time in which kernels run.
	bandwidthGuess = 0.5
)

// Mode is how several jobs share one GPU.
type Mode uint8

// The modes. Their numbers are part of the encoding.
const (
	// TimeSlicing is what a GPU does by itself: kernels of different processes
	// take turns.
	TimeSlicing Mode = iota
	// MPS is NVIDIA's multi-process service: kernels of different processes run
	// side by side.
	MPS
	// MIG gives each job SMs, cache and bandwidth of its own. Alone then means
	// alone on the same slice.
	MIG

	modes = 3
)

// String is the mode's name in configuration and output.
func (m Mode) String() string {
	switch m {
	case TimeSlicing:
		return "time-slicing"
	case MPS:
		return "mps"
	case MIG:
		return "mig"
	}
	return "unknown"
}

// Job is one of the jobs that share a GPU.
type Job struct {
	// Signature says which job this is: equal for jobs that do the same. Empty
	// means that nothing is learned about this job in particular.
	Signature string
	// Family groups signatures that are alike, such as one model at several
	// batch sizes; may be empty.
	Family string
	// Util is the share of time, 0 to 1, in which the job runs alone on this GPU
	// and has a kernel running; Unknown if nobody knows.
	Util float64
	// Bandwidth is the share of the peak memory bandwidth, 0 to 1, that the job
	// uses alone on this GPU; Unknown if nobody knows.
	Bandwidth float64
}

// Set is a set of jobs on one GPU. Their order has no meaning.
type Set struct {
	GPUType string
	Mode    Mode
	Jobs    []Job
}

// load is what the arithmetic needs of a job.
type load struct {
	util, bw float64
	known    bool // of the utilization
	sig, fam uint64
}

func loadOf(j *Job) load {
	l := load{sig: digest(j.Signature), fam: digest(j.Family)}
	if l.fam == l.sig {
		l.fam = 0 // one level says it all
	}
	if !(j.Util >= 0) {
		return l
	}
	l.known = true
	l.util = min(j.Util, 1)
	if j.Bandwidth >= 0 {
		l.bw = min(j.Bandwidth, 1)
	} else {
		l.bw = bandwidthGuess * l.util
	}
	return l
}

// digest names a signature by 64 bits, 0 for none: FNV-1a, then mixed. Two
// signatures that collide share what is learned about them, nothing worse.
func digest(s string) uint64 {
	if s == "" {
		return 0
	}
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h ^= uint64(s[i])
		h *= 1099511628211
	}
	return max(1, mix(h))
}

// mix is the finalizer of splitmix64: it spreads every bit over the word.
func mix(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}

// before is a total order of loads: sums run in it, so that rounding does not
// depend on the order in which the caller names the jobs.
func (l *load) before(o *load) bool {
	switch {
	case l.util != o.util:
		return l.util < o.util
	case l.bw != o.bw:
		return l.bw < o.bw
	case l.known != o.known:
		return o.known
	case l.sig != o.sig:
		return l.sig < o.sig
	}
	return l.fam < o.fam
}

// gang is a set in the order of before, with the place of each in the input.
type gang struct {
	n     int
	loads [MaxSet]load
	from  [MaxSet]int
}

func (g *gang) fill(jobs []Job) {
	g.n = len(jobs)
	for i := range jobs {
		l := loadOf(&jobs[i])
		k := i
		for ; k > 0 && l.before(&g.loads[k-1]); k-- {
			g.loads[k], g.from[k] = g.loads[k-1], g.from[k-1]
		}
		g.loads[k], g.from[k] = l, i
	}
}

// Model predicts. It is immutable and safe for concurrent use. The zero Model,
// and a nil one, know nothing but the default prior.
type Model struct {
	classes []class
	types   []gpuType
	effects []effect
	pairs   []pairEffect
	advice  []Advice

	places map[string]place  // normal type names; those of the GPU table as well
	jobAt  map[jobKey]uint16 // into effects
	pairAt map[uint64]uint16 // packPair, into pairs
}

// class is a group of GPU types that share coefficients: an architecture, or
// one type that is not in the table.
type class struct {
	name  string
	coefs [modes]Coefficients
	seen  [modes]uint16 // observations behind coefs
}

type gpuType struct {
	name  string
	class uint8
}

// place says where a GPU type stands in a Model; typ is -1 when no observation
// came from this very type.
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

// pairEffect is what was learned about a victim beside another, beyond the
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
	m.pairAt = make(map[uint64]uint16, len(m.pairs))
	for i := range m.pairs {
		p := &m.pairs[i]
		m.pairAt[packPair(p.victim, p.other, int16(p.typ))] = uint16(i)
	}
}

// find resolves a GPU type. Normal names (see gpuspec.Normalize) cost a map
// look-up; other spellings are normalized first, which allocates.
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

// coefficients are those of a place and mode, or the built-in ones.
func (m *Model) coefficients(at place, mode Mode) Coefficients {
	if m != nil && at.class >= 0 && mode < modes && m.classes[at.class].seen[mode] > 0 {
		return m.classes[at.class].coefs[mode]
	}
	return DefaultCoefficients(mode)
}

// Speeds appends to out the speed of each job of s, in the order of s.Jobs, and
// returns it. A lone job has speed 1; in a set of more than MaxSet jobs, which
// nobody should place, each has MinSpeed. More load on a job, or one job more,
// never predicts a faster neighbour. It allocates nothing when out has room
// and GPUType is a normal name.
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

// learned are the entries of one job: its own and its family's.
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

// offset is the sum of all that was learned about a victim and another.
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
				if p, ok := m.pairAt[packPair(uint16(i-1), uint16(j-1), at.typ)]; ok {
					sum += float64(m.pairs[p].value)
				}
			}
		}
	}
	return sum
}

// maxBend bounds offsets: a factor of 9 either way.
const maxBend = 1.6

// bend turns an offset into the factor (2+x)/(2-x). It is exp to the second
// order, has unbend as its exact inverse and bend(-x) = 1/bend(x), and needs no
// transcendental function, whose last bits differ between architectures.
func bend(x float64) float64 {
	x = max(-maxBend, min(maxBend, x))
	return (2 + x) / (2 - x)
}

// unbend is the offset whose factor is r > 0, bounded like bend's.
func unbend(r float64) float64 {
	return max(-maxBend, min(maxBend, 2*(r-1)/(r+1)))
}

// pairSlowdown corrects the prior's slowdown of one neighbour; nobody gets
// faster by company.
func pairSlowdown(prior, offset float64) float64 {
	return max(1, prior*bend(offset))
}

func speedOf(slowdown float64) float64 {
	return math.Max(MinSpeed, 1/slowdown)
}

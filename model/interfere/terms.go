package interfere

import "github.com/berth-scheduler/berth/model/gpuspec"

// MaxBend bounds the sum of the offsets of a pair, BandwidthPerUtil is the
// bandwidth assumed for a job of which only the utilization is known.
const (
	MaxBend          = maxBend
	BandwidthPerUtil = bandwidthGuess
)

// ID returns the name by which a model knows a signature or family, 0 for none.
func ID(name string) uint64 { return digest(name) }

// Terms are the numbers behind Speeds on one GPU type in one mode, for callers that
// compute without this package.
type Terms struct {
	Coefficients Coefficients
	// Effects are keyed by ID, Histories by the IDs of victim and neighbour.
	Effects   map[uint64]Offsets
	Histories map[[2]uint64]float64
	// Observations counts those behind the coefficients; 0 means that they are the
	// built-in ones.
	Observations int
}

// Offsets are what was learned of one job: +0.1 is 10 % slower.
type Offsets struct{ Sensitivity, Aggression float64 }

// Terms returns the numbers that Speeds computes with; the caller owns the maps.
func (m *Model) Terms(gpuType string, mode Mode) Terms {
	at := m.find(gpuspec.Normalize(gpuType))
	t := Terms{Coefficients: m.coefficients(at, mode), Effects: map[uint64]Offsets{}, Histories: map[[2]uint64]float64{}}
	if m == nil || at.class < 0 || mode >= modes {
		return t
	}
	t.Observations = int(m.classes[at.class].seen[mode])
	for i := range m.effects {
		if e := &m.effects[i]; int16(e.key.class) == at.class && e.key.mode == mode {
			t.Effects[e.key.id] = Offsets{float64(e.sens), float64(e.aggr)}
		}
	}
	for i := range m.pairs {
		p := &m.pairs[i]
		v, o := &m.effects[p.victim], &m.effects[p.other]
		if int16(p.typ) == at.typ && v.key.mode == mode && o.key.mode == mode {
			t.Histories[[2]uint64{v.key.id, o.key.id}] = float64(p.value)
		}
	}
	return t
}

package interfere

import "slices"

// Strength of the pull of each offset towards 0, as a number of observations with
// that offset alone: after that many, half of what they show is believed.
// Judgement: what is specific to a pair needs more evidence than what a job does to
// all.
const (
	pullEffect = 4
	pullPair   = 6
	// wild is the size of a residual from which its weight falls with the square:
	// what disagrees that much with all else is more likely an error than a fact.
	wild        = 0.3
	learnSweeps = 30
)

// row is an observation's equation for the victim and one other job: bend of the
// sum of the offsets should be the observed over the prior's slowdown.
type row struct {
	// at are the offsets that add up: sensitivity of signature and family,
	// aggression of signature and family, four pairs; -1 for none.
	at     [8]int32
	target float64
	weight float64 // one observation is divided among its others
	voice  float64 // part of weight that counts for families
}

// rows returns the equations for the offsets, with effects and pairs registered,
// most recent first.
func (m *Model) rows(obs []Observation, said map[string]float64) []row {
	typeAt := m.typeIndex()
	jobAt := make(map[jobKey]uint16)
	pairAt := make(map[uint64]uint16)
	var rows []row
	for i := len(obs) - 1; i >= 0; i-- {
		o := &obs[i]
		typ := typeAt[o.GPUType]
		c := m.types[typ].class
		k := &m.classes[c].coefs[o.Mode]
		g, v := gangOf(o)
		target := targetOf(k, &g, v, o.Speed)
		vs, vf := m.job(jobAt, jobKey{g.loads[v].sig, c, o.Mode}), m.job(jobAt, jobKey{g.loads[v].fam, c, o.Mode})
		for j := range g.n {
			if j == v {
				continue
			}
			os, of := m.job(jobAt, jobKey{g.loads[j].sig, c, o.Mode}), m.job(jobAt, jobKey{g.loads[j].fam, c, o.Mode})
			r := row{target: target, weight: 1 / float64(g.n-1), voice: said[o.User]}
			r.at = [8]int32{vs, vf, os, of, -1, -1, -1, -1}
			for p, vo := range [...][2]int32{{vs, os}, {vs, of}, {vf, os}, {vf, of}} {
				r.at[4+p] = m.pair(pairAt, vo, typ)
			}
			rows = append(rows, r)
		}
	}
	slices.Reverse(rows)
	return rows
}

func (m *Model) job(at map[jobKey]uint16, k jobKey) int32 {
	if k.id == 0 {
		return -1
	}
	i, ok := at[k]
	if !ok {
		if len(m.effects) == MaxJobs {
			return -1
		}
		i = uint16(len(m.effects))
		at[k] = i
		m.effects = append(m.effects, effect{key: k})
	}
	return int32(i)
}

func (m *Model) pair(at map[uint64]uint16, vo [2]int32, typ int) int32 {
	if vo[0] < 0 || vo[1] < 0 {
		return -1
	}
	k := packPair(uint16(vo[0]), uint16(vo[1]), int16(typ))
	i, ok := at[k]
	if !ok {
		if len(m.pairs) == MaxPairs {
			return -1
		}
		i = uint16(len(m.pairs))
		at[k] = i
		m.pairs = append(m.pairs, pairEffect{victim: uint16(vo[0]), other: uint16(vo[1]), typ: uint8(typ)})
	}
	return int32(i)
}

// targetOf returns the offset that, given to each of the others alike, turns the
// prior's slowdown into the observed one.
func targetOf(c *Coefficients, g *gang, v int, speed float64) float64 {
	n, pairs := float64(g.n-1), 0.0
	for j := range g.n {
		if j != v {
			pairs += c.pairExcess(&g.loads[v], &g.loads[j])
		}
	}
	return unbend(max(0.05, 1/speed+n-1-c.beyondPairs(g, v)) / (n + pairs))
}

// learn finds all offsets by ridge regression, block by block: within a block, such
// as the sensitivities of signatures, each row has at most one offset, so the
// block's best values given all others are plain means, pulled towards 0.
func (m *Model) learn(rows []row) {
	effects := len(m.effects)
	// Offsets: sensitivity, then aggression of each job, then pairs.
	theta := make([]float64, 2*effects+len(m.pairs))
	base := [8]int32{0, 0, int32(effects), int32(effects), int32(2 * effects), int32(2 * effects), int32(2 * effects), int32(2 * effects)}
	num, den := make([]float64, len(theta)), make([]float64, len(theta))
	rest := make([]float64, len(rows)) // what the offsets leave unexplained
	count := make([]uint16, len(theta))
	for i := range rows {
		rest[i] = rows[i].target
		for b, k := range rows[i].at {
			if k >= 0 {
				rows[i].at[b] = k + base[b]
				count[k+base[b]]++
			}
		}
	}
	for range learnSweeps {
		for b := range base {
			sweep(rows, b, state{theta, num, den, rest})
		}
	}
	for i := range m.effects {
		e := &m.effects[i]
		e.sens, e.aggr = short(theta[i]), short(theta[effects+i])
		e.asVictim, e.asOther = count[i], count[effects+i]
	}
	for i := range m.pairs {
		m.pairs[i].value, m.pairs[i].n = short(theta[2*effects+i]), count[2*effects+i]
	}
}

// ofFamilies marks the blocks whose offsets are of families, which several users
// have.
var ofFamilies = [8]bool{1: true, 3: true, 5: true, 6: true, 7: true}

type state struct{ theta, num, den, rest []float64 }

// sweep moves the offsets of block b to their best values given the others.
func sweep(rows []row, b int, s state) {
	clear(s.num)
	clear(s.den)
	pull := float64(pullEffect)
	if b >= 4 {
		pull = pullPair
	}
	for i := range rows {
		if k := rows[i].at[b]; k >= 0 {
			x := wild / max(wild, abs(s.rest[i]))
			w := float64(rows[i].weight * x * x)
			if ofFamilies[b] {
				w = float64(w * rows[i].voice)
			}
			s.num[k] += float64(w * (s.rest[i] + s.theta[k]))
			s.den[k] += w
		}
	}
	for k := range s.theta {
		// num becomes the change of each offset.
		v := s.theta[k]
		if s.den[k] > 0 {
			v = max(-maxBend, min(maxBend, s.num[k]/(s.den[k]+pull)))
		}
		s.num[k] = v - s.theta[k]
		s.theta[k] = v
	}
	for i := range rows {
		if k := rows[i].at[b]; k >= 0 {
			s.rest[i] -= s.num[k]
		}
	}
}

// short rounds to the precision of the encoding; there is no negative zero.
func short(v float64) float32 {
	if f := float32(v); f != 0 {
		return f
	}
	return 0
}

func abs(v float64) float64 { return max(v, -v) }

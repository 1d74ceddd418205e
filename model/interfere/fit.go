package interfere

import (
	"math"

	"github.com/berth-scheduler/berth/model/fit"
	"github.com/berth-scheduler/berth/model/gpuspec"
)

// Bounds of a Model; of each kind those seen last are kept.
const (
	maxClasses = 32
	maxTypes   = 64
	// MaxJobs bounds the signatures and families, by class of GPU and mode, that a
	// model knows.
	MaxJobs = 1024
	// MaxPairs bounds the pairs of them.
	MaxPairs = 2560
)

const (
	// trust is the number of observations of a class and mode at which fitted
	// coefficients weigh as much as the built-in ones.
	trust = 20
	// anchor is the pull of the fit towards the built-in coefficients; it only
	// decides what the data leave open, such as between two terms that always move
	// together.
	anchor = 0.02
	// scatter is the relative error below which an observation counts as met:
	// repeated measurements differ by a few percent.
	scatter   = 0.03
	fitRounds = 10
)

// Fit builds a model from observations, oldest first. Invalid ones and those beyond
// MaxObservations, MaxPerUser and MaxRepeats do not count. Equal observations in
// equal order give an equal model.
func Fit(obs []Observation) *Model {
	obs = bound(obs)
	m := &Model{}
	obs = m.register(obs)
	said := voices(obs)
	m.fitCoefficients(obs, said)
	m.learn(m.rows(obs, said))
	m.advise(obs)
	m.index()
	return m
}

// register finds the types and classes of obs, most recent first, and returns the
// observations of those that fit into the tables.
func (m *Model) register(obs []Observation) []Observation {
	classes, types := make(map[string]uint8), make(map[string]struct{})
	for i := len(obs) - 1; i >= 0; i-- {
		name := gpuspec.Normalize(obs[i].GPUType)
		if _, ok := types[name]; ok || len(m.types) == maxTypes {
			continue
		}
		cn := className(name)
		c, ok := classes[cn]
		if !ok {
			if len(m.classes) == maxClasses {
				continue
			}
			c = uint8(len(m.classes))
			classes[cn] = c
			k := class{name: cn}
			for mode := range k.coefs {
				k.coefs[mode] = DefaultCoefficients(Mode(mode))
			}
			m.classes = append(m.classes, k)
		}
		types[name] = struct{}{}
		m.types = append(m.types, gpuType{name: name, class: c})
	}
	kept := make([]Observation, 0, len(obs))
	for _, o := range obs {
		o.GPUType = gpuspec.Normalize(o.GPUType)
		if _, ok := types[o.GPUType]; ok {
			kept = append(kept, o)
		}
	}
	return kept
}

// className returns the architecture, or the type itself if the table has none.
func className(normal string) string {
	if s, ok := gpuspec.Lookup(normal); ok {
		return s.Arch
	}
	return normal
}

func (m *Model) typeIndex() map[string]int {
	at := make(map[string]int, len(m.types))
	for i, t := range m.types {
		at[t.name] = i
	}
	return at
}

// voices returns the weight of each user's observations in what holds for all: a
// job that only one user runs is measured by that user alone, but a GPU and a
// family of models concern everybody. The site's own count in full.
func voices(obs []Observation) map[string]float64 {
	counts := make(map[string]float64)
	for i := range obs {
		counts[obs[i].User]++
	}
	most := fit.UserCap(counts)
	for user, n := range counts {
		counts[user] = min(1, most/n)
	}
	counts[""] = 1
	return counts
}

// sample is one observation as an equation: terms · coefficients = excess.
type sample struct {
	terms  [coefficientCount]float64
	excess float64 // slowdown − 1
	weight float64
}

func (m *Model) fitCoefficients(obs []Observation, said map[string]float64) {
	typeAt := m.typeIndex()
	groups := make([][modes][]sample, len(m.classes))
	for i := range obs {
		o := &obs[i]
		c := m.types[typeAt[o.GPUType]].class
		s := sampleOf(o)
		s.weight = said[o.User]
		groups[c][o.Mode] = append(groups[c][o.Mode], s)
	}
	for c := range groups {
		for mode, samples := range groups[c] {
			if n := len(samples); n > 0 {
				k := &m.classes[c]
				k.coefs[mode] = refit(samples, DefaultCoefficients(Mode(mode)))
				k.seen[mode] = uint16(n)
			}
		}
	}
}

// gangOf returns the set of an observation and the position of its victim in it.
func gangOf(o *Observation) (g gang, victim int) {
	var jobs [MaxSet]Job
	jobs[0] = o.Job
	copy(jobs[1:], o.Others)
	g.fill(jobs[:len(o.Others)+1])
	for i := range g.n {
		if g.from[i] == 0 {
			return g, i
		}
	}
	return g, 0
}

func sampleOf(o *Observation) sample {
	g, v := gangOf(o)
	s := sample{excess: 1/o.Speed - 1}
	for j := range g.n {
		if j == v {
			continue
		}
		for k, t := range pairTerms(&g.loads[v], &g.loads[j]) {
			s.terms[k] += t
		}
	}
	s.terms[3] += crowd(&g, v)
	return s
}

// refit finds the coefficients that minimize the absolute relative errors of the
// speeds, by re-weighted least squares, so that a minority of outliers moves them
// little. It then blends them with the built-in ones by the number of samples.
func refit(samples []sample, base Coefficients) Coefficients {
	b := base.array()
	c := b
	all := 0.0
	for i := range samples {
		all += samples[i].weight
	}
	for range fitRounds {
		var eq normal
		for i := range samples {
			s := &samples[i]
			d := 1 + dot(&s.terms, &c)
			// A speed's relative error is (1+excess)/d − 1.
			w := s.weight / (d * max(math.Abs(1+s.excess-d)/d, scatter) * d)
			eq.add(&s.terms, s.excess, w)
		}
		// Pulls scale with the weights, so that anchor has one meaning.
		for k := range c {
			eq.a[k][k] += anchor / scatter
			eq.b[k] += float64(anchor / scatter * b[k])
		}
		c = eq.solve(c, MaxCoefficient)
	}
	share := all / (all + trust)
	for k := range c {
		c[k] = narrow(b[k] + float64(share*(c[k]-b[k])))
	}
	return fromArray(c)
}

// narrow rounds to the precision of the encoding, so that a decoded model predicts
// exactly what the original does.
func narrow(v float64) float64 { return float64(short(v)) }

func dot(x, c *[coefficientCount]float64) float64 {
	var sum float64
	for k := range x {
		sum += float64(x[k] * c[k])
	}
	return sum
}

// normal holds the normal equations of weighted least squares.
type normal struct {
	a [coefficientCount][coefficientCount]float64
	b [coefficientCount]float64
}

func (n *normal) add(x *[coefficientCount]float64, y, w float64) {
	for i := range x {
		wx := float64(w * x[i])
		n.b[i] += float64(wx * y)
		for j := range x {
			n.a[i][j] += float64(wx * x[j])
		}
	}
}

// solve minimizes within 0 to limit by cyclic coordinate descent from c, which
// converges as the matrix is positive definite: each diagonal element includes its
// pull.
func (n *normal) solve(c [coefficientCount]float64, limit float64) [coefficientCount]float64 {
	for range 2000 {
		var moved float64
		for i := range c {
			r := n.b[i]
			for j := range c {
				if j != i {
					r -= float64(n.a[i][j] * c[j])
				}
			}
			v := min(limit, max(0, r/n.a[i][i]))
			moved = max(moved, math.Abs(v-c[i]))
			c[i] = v
		}
		if moved < 1e-9 {
			break
		}
	}
	return c
}

package interfere

// Coefficients are those of the prior for one kind of GPU and one mode. Each adds
// to a job's slowdown beyond 1; all are 0 to MaxCoefficient.
//
// With u the utilization and m the bandwidth share of victim v and neighbours n:
//
//	slowdown(v) = 1 + Σ over n ( Switch + Compute·u(v)·u(n) + Memory·u(v)·m(n) )
//	                + Bandwidth·max(0, Σ m − 1)
//
// The first product is the response time in a closed network of one processor-
// sharing server, the GPU, at which each job spends u of its time when alone (mean
// value analysis: Reiser, Lavenberg, J. ACM 27(2), 1980): an arriving kernel meets
// each neighbour there with probability u(n). It is exact for two jobs, and for any
// number that fill the GPU. Bandwidth beyond the peak is shared in proportion to
// demand, so all stretch alike.
type Coefficients struct {
	Switch    float64 // each neighbour, whatever it does: context switches, caches, PCIe, host
	Compute   float64 // kernels that wait for a neighbour's kernels
	Memory    float64 // kernels that run while a neighbour uses the memory
	Bandwidth float64 // demand for bandwidth beyond the peak
	Blind     float64 // instead of the last three, for a pair one of whose utilizations is unknown
}

// MaxCoefficient bounds each coefficient.
const MaxCoefficient = 8

const coefficientCount = 5

// DefaultCoefficients returns the built-in ones. None is derived from measured
// pairs; they are arithmetic and judgement:
//
//   - Jobs that fill the GPU must end up taking turns: for u = m = 1 everywhere
//     Compute + Memory + Bandwidth is 1, so that k jobs slow down by k. So is
//     Blind at most 1.
//   - Time-slicing runs kernels of one process at a time, so they cannot compete
//     for bandwidth: all of the 1 is Compute.
//   - Under MPS kernels run side by side, and the loss divides between SMs and
//     memory: half and half by judgement, half of the memory's part being lost
//     only beyond the peak.
//   - Switch is a judgement: 2 % for time-slicing, 1 % for MPS.
//   - MIG slices share nothing that these terms speak of.
//
// Utilization counts the time in which any kernel ran, however small, so the
// defaults err on the slow side until a site has measured.
func DefaultCoefficients(m Mode) Coefficients {
	switch m {
	case MPS:
		return Coefficients{Switch: 0.01, Compute: 0.5, Memory: 0.25, Bandwidth: 0.25, Blind: 0.75}
	case MIG:
		return Coefficients{}
	default:
		return Coefficients{Switch: 0.02, Compute: 1, Blind: 1}
	}
}

var coefficientNames = [coefficientCount]string{"switch", "compute", "memory", "bandwidth", "blind"}

func (c *Coefficients) array() [coefficientCount]float64 {
	return [...]float64{c.Switch, c.Compute, c.Memory, c.Bandwidth, c.Blind}
}

func fromArray(a [coefficientCount]float64) Coefficients {
	return Coefficients{Switch: a[0], Compute: a[1], Memory: a[2], Bandwidth: a[3], Blind: a[4]}
}

// pairExcess returns what one neighbour adds to v's slowdown if there is no other.
// Products are converted before each sum, so that no architecture fuses them.
func (c *Coefficients) pairExcess(v, n *load) float64 {
	if !v.known || !n.known {
		return c.Switch + c.Blind
	}
	return c.Switch + float64(c.Compute*float64(v.util*n.util)) + float64(c.Memory*float64(v.util*n.bw)) +
		float64(c.Bandwidth*max(0, v.bw+n.bw-1))
}

// pairTerms returns the factors of the coefficients for one neighbour.
func pairTerms(v, n *load) [coefficientCount]float64 {
	if !v.known || !n.known {
		return [...]float64{1, 0, 0, 0, 1}
	}
	return [...]float64{1, float64(v.util * n.util), float64(v.util * n.bw), max(0, v.bw+n.bw-1), 0}
}

// beyondPairs returns the whole set's demand for bandwidth beyond that of the pairs
// with victim i. max(0, a+x-1) is convex in x and 0 at x = 0, so it is never
// negative, and it grows with each neighbour.
func (c *Coefficients) beyondPairs(g *gang, i int) float64 {
	if g.n < 3 {
		return 0
	}
	return float64(c.Bandwidth * crowd(g, i))
}

func crowd(g *gang, i int) float64 {
	v := &g.loads[i]
	if !v.known {
		return 0
	}
	all, pairs := v.bw, 0.0
	for j := range g.n {
		if j != i && g.loads[j].known {
			all += g.loads[j].bw
			pairs += max(0, v.bw+g.loads[j].bw-1)
		}
	}
	return max(0, max(0, all-1)-pairs)
}

package interfere

// Explanation breaks down the speed of one job of a set.
type Explanation struct {
	Signature string
	Speed     float64
	// Slowdown is 1 + the excess of each neighbour + Crowd; Speed is its
	// inverse, but at least MinSpeed.
	Slowdown   float64
	Neighbours []Neighbour
	// Crowd is the demand for bandwidth beyond the peak that shows only in the
	// whole set, not in any pair of it.
	Crowd float64
}

// Neighbour is the effect of one other job on the explained one.
type Neighbour struct {
	Signature string
	// Switch, Compute, Memory, Bandwidth and Blind are the prior's excess, part by
	// part; see Coefficients.
	Switch, Compute, Memory, Bandwidth, Blind float64
	// Sensitivity of the explained job, Aggression of the neighbour and History
	// of the two together are what was learned, as offsets whose sum bends the
	// prior's slowdown: +0.1 is 10 % slower.
	Sensitivity, Aggression, History float64
	// Together is how many observations of exactly this pair History rests on.
	Together int
	// Excess is what the neighbour adds to the slowdown in total.
	Excess float64
}

// Explain returns for each job of s, in the order of s.Jobs, the parts of the speed
// that Speeds predicts. A set of more than MaxSet jobs has no parts.
func (m *Model) Explain(s Set) []Explanation {
	out := make([]Explanation, len(s.Jobs))
	for i, v := range m.Speeds(s, nil) {
		out[i] = Explanation{Signature: s.Jobs[i].Signature, Speed: v, Slowdown: 1 / v}
	}
	if len(s.Jobs) > MaxSet {
		return out
	}
	if m == nil {
		m = &Model{}
	}
	var g gang
	g.fill(s.Jobs)
	at := m.find(s.GPUType)
	c := m.coefficients(at, s.Mode)
	var known [MaxSet]learned
	if at.class >= 0 {
		for i := range g.n {
			known[i] = m.lookup(&g.loads[i], at, s.Mode)
		}
	}
	for i := range g.n {
		e := &out[g.from[i]]
		e.Crowd = c.beyondPairs(&g, i)
		e.Slowdown = 1 + e.Crowd
		for j := range g.n {
			if j != i {
				n := m.neighbour(&c, &g, [2]int{i, j}, known[:], at)
				n.Signature = s.Jobs[g.from[j]].Signature
				e.Neighbours = append(e.Neighbours, n)
				e.Slowdown += n.Excess
			}
		}
	}
	return out
}

func (m *Model) neighbour(c *Coefficients, g *gang, ij [2]int, known []learned, at place) Neighbour {
	i, j := ij[0], ij[1]
	x, a := pairTerms(&g.loads[i], &g.loads[j]), c.array()
	n := Neighbour{
		Switch: a[0] * x[0], Compute: a[1] * x[1], Memory: a[2] * x[2], Bandwidth: a[3] * x[3], Blind: a[4] * x[4],
	}
	all := m.offset(&known[i], &known[j], at)
	for _, k := range [...]int32{known[i].sig, known[i].fam} {
		if k > 0 {
			n.Sensitivity += float64(m.effects[k-1].sens)
		}
	}
	for _, k := range [...]int32{known[j].sig, known[j].fam} {
		if k > 0 {
			n.Aggression += float64(m.effects[k-1].aggr)
		}
	}
	n.History = all - n.Sensitivity - n.Aggression
	if v, o := known[i].sig, known[j].sig; at.typ >= 0 && v > 0 && o > 0 {
		if p := m.pairAt.find(packPair(uint16(v-1), uint16(o-1), at.typ)); p >= 0 {
			n.Together = int(m.pairs[p].n)
		}
	}
	n.Excess = pairSlowdown(1+c.pairExcess(&g.loads[i], &g.loads[j]), all) - 1
	return n
}

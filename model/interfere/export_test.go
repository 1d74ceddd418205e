package interfere

// Speeds appends to out the prior's speed of each job, in the order of jobs, and
// returns it: above 0 and at most 1, 1 for a lone job, never higher for more
// load or more jobs, and independent of the order of the others. A set of more
// than MaxSet jobs gets MinSpeed throughout.
func (c *Coefficients) Speeds(jobs []Job, out []float64) []float64 {
	if len(jobs) > MaxSet {
		for range jobs {
			out = append(out, MinSpeed)
		}
		return out
	}
	var g gang
	g.fill(jobs)
	var speeds [MaxSet]float64
	for i := range g.n {
		slow := 1 + c.beyondPairs(&g, i)
		for j := range g.n {
			if j != i {
				slow += c.pairExcess(&g.loads[i], &g.loads[j])
			}
		}
		speeds[g.from[i]] = speedOf(slow)
	}
	return append(out, speeds[:g.n]...)
}

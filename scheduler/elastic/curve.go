package elastic

import (
	"math"

	"github.com/berth-scheduler/berth/cluster"
)

const (
	// exchange is the time that very many GPUs take to exchange their gradients in
	// a ring, relative to a step on one, unless runs of the job say more.
	exchange = 0.1
	// worst bounds how bad runs may say it is: two GPUs at half the speed of one.
	worst = 3
	// knee is the least that one more GPU must add to a job's speed, in parts of what one
	// alone gives (Han et al., "MARBLE: A Multi-GPU Aware Job Scheduler for Deep Learning
	// on HPC Systems", CCGrid 2020, ends at the knee of the curve).
	knee = 0.1
)

// NoiseMetric is the metric in which a job reports its gradient noise scale, in
// batches of one GPU (McCandlish et al., "An Empirical Model of Large-Batch
// Training", arXiv:1812.06162).
const NoiseMetric = "grad_noise"

// Curve is how a job's speed grows with its GPUs, in data parallel training: computing
// takes 1/n of the time, and the exchange of gradients in a ring (n-1)/n of what very
// many would take (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
// clusters of workstations", JPDC 2009).
type Curve struct {
	exchange float64
	// noise is the gradient noise scale in batches of one GPU, for a job whose
	// batch grows with its GPUs; 0 is unknown.
	noise float64
	// ones are the times of a step with one GPU, by types, as runs of the job say.
	ones map[string]float64
	// steps are the step times that runs of the job reported, by their number of
	// GPUs.
	steps map[int]float64
}

// CurveOf returns the curve of a job: the one through the step times that its
// attempts with the fewest and the most GPUs of the last type with two numbers
// reported, if they did, otherwise a common one. With more GPUs a step is worth more if the batch grows
// with them.
func CurveOf(j *cluster.Job) Curve {
	c := Curve{exchange: exchange, steps: map[int]float64{}, ones: map[string]float64{}}
	named := j.Spec.Study != nil && j.Spec.Study.Metric == NoiseMetric && j.Spec.BatchScaling == cluster.BatchLinear
	var typ string
	last := map[string]int{} // numbers of GPUs, by types
	for i := range j.Attempts {
		a := &j.Attempts[i]
		n := len(a.Berth.GPUs) * a.Width()
		if named && a.Progress != nil && a.Progress.Seen != nil && a.Progress.Seen.Last > 0 && !math.IsInf(a.Progress.Seen.Last, 0) {
			c.noise = a.Progress.Seen.Last
		}
		if a.Progress == nil || a.Progress.StepTime <= 0 || n == 0 {
			continue
		}
		if a.Estimate.GPUType != typ {
			c.fit()
			typ = a.Estimate.GPUType
			clear(c.steps)
		}
		for _, was := range a.Changes { // it reported a step time at each of its sizes
			if m := len(a.Berth.GPUs) * was.From; was.StepTime > 0 && m > 0 {
				c.steps[m] = was.StepTime.Seconds() / j.Spec.BatchScaling.Worth(m)
			}
		}
		if k := len(a.Changes); k > 0 && a.Progress.At.Sub(a.Changes[k-1].At) < cluster.CostAfter {
			continue // its last report may be of the size before
		}
		c.steps[n] = a.Progress.StepTime.Seconds() / j.Spec.BatchScaling.Worth(n)
		last[typ], c.ones[typ] = n, c.steps[n]
	}
	c.fit()
	for typ, n := range last {
		c.ones[typ] *= c.Speedup(n) / c.efficiency(float64(n))
	}
	return c
}

// fit fits its exchange to its steps, if they are of two numbers of GPUs.
func (c *Curve) fit() {
	least, most := math.MaxInt, 0
	for n := range c.steps {
		least, most = min(least, n), max(most, n)
	}
	if least < most {
		c.exchange = exchangeOf(least, most, c.steps[least]/c.steps[most])
	}
}

// exchangeOf solves a curve for its exchange: with b GPUs it is r times as fast as
// with a.
func exchangeOf(a, b int, r float64) float64 {
	x, y := float64(a), float64(b)
	under := r*x*(y-1) - y*(x-1)
	if under <= 0 { // slower than any exchange makes it
		return worst
	}
	return min(max((y-r*x)/under, 0), worst)
}

// Speedup returns how many times as fast as one GPU n are together.
func (c Curve) Speedup(n int) float64 { return c.speedup(float64(n)) }

func (c Curve) speedup(n float64) float64 {
	return n / (1 + c.exchange*(n-1)) * c.efficiency(n)
}

// efficiency returns what a sample is worth in a batch of n GPUs relative to one in
// a batch of one GPU: the statistical efficiency of Pollux (OSDI 2021, equation 7).
func (c Curve) efficiency(n float64) float64 {
	if c.noise == 0 {
		return 1
	}
	return (c.noise + 1) / (c.noise + n)
}

// fewer returns the least number of GPUs with which runs of a job were about as
// fast as with n, 0 if that is n itself or no run shows it.
func (c Curve) fewer(n int) int {
	if c.steps[n] == 0 {
		return 0
	}
	least := 0
	for m, step := range c.steps {
		if m < n && step/c.efficiency(float64(m)) <= c.steps[n]/c.efficiency(float64(n))*(1+knee) && (least == 0 || m < least) {
			least = m
		}
	}
	return least
}

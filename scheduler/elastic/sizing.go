package elastic

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Sizing decides which job gets one more unit of idle GPUs. A unit that adds less
// than a tenth of what the first one did goes to none, whatever the sizing.
type Sizing string

const (
	// Marginal gives it to the job it speeds up most, and takes nothing from
	// running jobs for others that run. It is what "" stands for.
	Marginal Sizing = "marginal"
	// None leaves all jobs at their least.
	None Sizing = "none"
	// Optimus gives it to the job whose end it advances most for each GPU, and
	// restarts running jobs with more or fewer if that advances all ends together
	// (Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep
	// Learning Clusters", EuroSys 2018).
	Optimus Sizing = "optimus"
	// AFS compares two jobs at a time, as Hwang et al., "Elastic Resource Sharing
	// for Distributed Deep Learning" (NSDI 2021) do: the one that would end first
	// gets it if it is sped up by as large a part of its old speed as the other one
	// would be of its new speed. Both together then end sooner, if the other one
	// has it afterwards.
	AFS Sizing = "afs"
	// Pollux gives it to the job for which it adds most to the harmonic mean of
	// speedups over a fair part of the cluster, steps weighted by their worth (Qiao
	// et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep
	// Learning", OSDI 2021, with p = -1 and its factor for restarts; greedily, not
	// by its genetic algorithm).
	Pollux Sizing = "pollux"
	// Sia chooses the number and the type of GPUs together, so that the sum over
	// all jobs of their goodputs to the power of -0.5 is small (Jayaram Subramanya
	// et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
	// SOSP 2023; by prices of GPUs, see market, not by an integer program).
	Sia Sizing = "sia"
)

// Sizings returns all of them, in order.
func Sizings() []Sizing { return []Sizing{AFS, Marginal, None, Optimus, Pollux, Sia} }

// ParseSizing reads the name of a sizing; "" is Marginal.
func ParseSizing(text string) (Sizing, error) {
	s := Sizing(text)
	if s == "" {
		return Marginal, nil
	}
	if !slices.Contains(Sizings(), s) {
		names := make([]string, 0, len(Sizings()))
		for _, s := range Sizings() {
			names = append(names, string(s))
		}
		return "", fmt.Errorf("is %.40q, want one of %s", text, strings.Join(names, ", "))
	}
	return s, nil
}

// Restart is the assumed cost of a save and a start.
const Restart = time.Minute

// moves reports whether it weighs running jobs against each other and against those
// that start.
func (s Sizing) moves() bool { return s == Optimus || s == AFS || s == Pollux || s == Sia }

// weigh computes what it needs of all jobs together.
func (s Sizing) weigh(all []*claim, spare int) {
	if s != Pollux || len(all) == 0 {
		return
	}
	total := spare
	for _, c := range all {
		total += c.n * c.unit
	}
	for _, c := range all {
		part := min(max(float64(total)/float64(len(all)), float64(c.least*c.unit)), float64(c.most*c.unit))
		c.fair = c.curve.speedup(part)
	}
}

// prefers reports whether a should get one more unit rather than b, both of which
// can.
func (s Sizing) prefers(a, b *claim) bool {
	if s != AFS {
		return s.gain(a) > s.gain(b)
	}
	short, long := a, b
	if b.left/b.speed(b.n) < a.left/a.speed(a.n) {
		short, long = b, a
	}
	was, more := short.speed(short.n), long.speed(long.n+1)
	first := (short.speed(short.n+1)-was)/was/float64(short.unit) >= (more-long.speed(long.n))/more/float64(long.unit)
	return first == (short == a)
}

// gain returns what one more unit brings, for each of its GPUs.
func (s Sizing) gain(c *claim) float64 {
	now, then := c.speed(c.n), c.speed(c.n+1)
	switch s {
	case Optimus:
		return (c.left/now - c.left/then) / float64(c.unit)
	case Pollux:
		return (c.fair/now - c.fair/then) / float64(c.unit)
	}
	return (then - now) / float64(c.unit)
}

// loss returns what a claim loses for each GPU that it leaves others, down to its
// least.
func (s Sizing) loss(c *claim) float64 {
	now, then := c.speed(c.n), c.speed(c.least)
	gpus := float64(max(1, (c.n-c.least)*c.unit))
	switch s {
	case Optimus, AFS:
		return (c.left/then - c.left/now) / gpus
	case Sia:
		return (math.Pow(then, fairness) - math.Pow(now, fairness)) / gpus
	}
	return (1/then - 1/now) / gpus
}

// kept returns the part of its goodput that a job of an age keeps if it restarts once
// more, the factor for restarts of Pollux and Sia.
func (c *claim) kept(age time.Duration) float64 {
	cost := c.restart()
	_, times := c.job.Preempted()
	return max(0, age-time.Duration(times)*cost).Seconds() / (age + cost).Seconds()
}

// better reports whether running jobs gain more than they lose by restarting at
// their current sizes: the ends of all advance or, by Pollux, the harmonic mean of
// their speedups grows, with the cost of restarts deducted.
func (s Sizing) better(all []*claim, now func(c *claim) time.Duration) bool {
	before, after := 0.0, 0.0
	for _, c := range all {
		cost := 0.0
		if c.n != c.had {
			cost = c.restart().Seconds()
		}
		if s != Pollux {
			before += c.left / c.speed(c.had)
			after += c.left/c.speed(c.n) + cost
			continue
		}
		before += c.fair / c.speed(c.had)
		kept := 1.0
		if cost > 0 {
			kept = c.kept(now(c))
		}
		if kept == 0 {
			return false
		}
		after += c.fair / c.speed(c.n) / kept
	}
	return after < before && !math.IsNaN(after)
}

package interfere

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/berth-scheduler/berth/model/gpuspec"
)

// Verdict is what the observed pairs say about whether to share a type of GPU at
// all.
type Verdict uint8

// The verdicts.
const (
	// Unsure: too few pairs, or their sums are close to 1.
	Unsure Verdict = iota
	// Gains: two jobs together get more done than by taking turns.
	Gains
	// Loses: they get less done; never share on this type in this mode.
	Loses
)

// String returns the verdict in words.
func (v Verdict) String() string {
	switch v {
	case Gains:
		return "sharing gains"
	case Loses:
		return "sharing loses"
	}
	return "unsure"
}

const (
	// MinAdvicePairs is the number of different pairs needed for a verdict.
	MinAdvicePairs = 20
	// pairsPerUser is how many of them may come from one user, so that it takes
	// three users, or the site's own measurements, to end sharing on a type.
	pairsPerUser = 7
	// pairsPerJob is how many of them may include one job: a job that is a bad
	// neighbour to all is no reason to stop the others.
	pairsPerJob = 7
)

// Advice compares sharing one type of GPU in one mode with taking turns, where the
// speeds of two jobs add up to 1.
type Advice struct {
	GPUType string // normalized
	Mode    Mode
	Verdict Verdict
	// Pairs is the number of different pairs with both jobs measured, at most 7 of
	// one user and 7 with one job, the newest; Losing is how many of them have
	// speeds that add up to less than 1.
	Pairs, Losing int
	// Jobs is the number of different jobs in these pairs.
	Jobs int
	// MeanSum is the mean over pairs of the sum of both speeds, StdErr its standard
	// error. A verdict needs a distance of two standard errors from 1.
	MeanSum, StdErr float64
}

// String returns the verdict with its numbers.
func (a Advice) String() string {
	return fmt.Sprintf("%s on %s with %s: speeds of two jobs add up to %.2f±%.2f (taking turns: 1) in %d pairs of %d jobs, %d pairs below 1",
		a.Verdict, a.GPUType, a.Mode, a.MeanSum, a.StdErr, a.Pairs, a.Jobs, a.Losing)
}

// judge derives the verdict from the numbers.
func (a *Advice) judge() {
	margin := float64(2 * a.StdErr)
	switch {
	case a.Pairs < MinAdvicePairs:
		a.Verdict = Unsure
	case a.MeanSum+margin < 1:
		a.Verdict = Loses
	case a.MeanSum-margin > 1:
		a.Verdict = Gains
	default:
		a.Verdict = Unsure
	}
}

// Advice returns whether sharing this type in this mode has paid off. It judges the
// pairs that ran, which a scheduler picks for being good: for others it is an upper
// bound.
func (m *Model) Advice(gpuType string, mode Mode) Advice {
	n := gpuspec.Normalize(gpuType)
	if m != nil {
		for _, a := range m.advice {
			if a.GPUType == n && a.Mode == mode {
				return a
			}
		}
	}
	return Advice{GPUType: n, Mode: mode}
}

// AllAdvice returns the advice on every type and mode with a pair measured from
// both sides.
func (m *Model) AllAdvice() []Advice {
	if m == nil {
		return nil
	}
	return slices.Clone(m.advice)
}

// couple is two jobs on one type in one mode; lo and hi are their digests.
type couple struct {
	typ    int
	mode   Mode
	lo, hi uint64
}

type coupleSpeeds struct {
	couple
	sum  [2]float64 // of the speeds of lo and hi
	n    [2]int
	user string // of the newest observation
}

// both returns the sum of the mean speeds; false if one side was not measured.
func (c *coupleSpeeds) both() (float64, bool) {
	if c.lo == c.hi {
		return 2 * c.sum[0] / float64(c.n[0]), true
	}
	if c.n[0] == 0 || c.n[1] == 0 {
		return 0, false
	}
	return c.sum[0]/float64(c.n[0]) + c.sum[1]/float64(c.n[1]), true
}

func (m *Model) advise(obs []Observation) {
	typeAt := m.typeIndex()
	at := make(map[couple]int)
	var all []coupleSpeeds // newest first
	for i := len(obs) - 1; i >= 0; i-- {
		o := &obs[i]
		if len(o.Others) != 1 || o.Job.Signature == "" || o.Others[0].Signature == "" {
			continue
		}
		v, w := identity(&o.Job), identity(&o.Others[0])
		k := couple{typeAt[o.GPUType], o.Mode, min(v, w), max(v, w)}
		j, ok := at[k]
		if !ok {
			j = len(all)
			at[k] = j
			all = append(all, coupleSpeeds{couple: k, user: o.User})
		}
		side := 0
		if v != k.lo {
			side = 1
		}
		all[j].sum[side] += o.Speed
		all[j].n[side]++
	}
	slices.SortStableFunc(all, func(a, b coupleSpeeds) int {
		return cmp.Or(cmp.Compare(a.typ, b.typ), cmp.Compare(a.mode, b.mode))
	})
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].typ == all[0].typ && all[n].mode == all[0].mode {
			n++
		}
		if a := m.adviceOf(all[:n]); a.Pairs > 0 {
			m.advice = append(m.advice, a)
		}
		all = all[n:]
	}
}

func identity(j *Job) uint64 { return mix(digest(j.Signature) ^ mix(digest(j.Family))) }

// adviceOf judges the couples of one type and mode.
func (m *Model) adviceOf(cs []coupleSpeeds) Advice {
	a := Advice{GPUType: m.types[cs[0].typ].name, Mode: cs[0].mode}
	voices, jobs := make(map[string]int), make(map[uint64]int)
	var sum, squares float64
	for i := range cs {
		c := &cs[i]
		s, ok := c.both()
		if !ok || c.user != "" && voices[c.user] == pairsPerUser || max(jobs[c.lo], jobs[c.hi]) == pairsPerJob {
			continue
		}
		voices[c.user]++
		jobs[c.lo]++
		if c.hi != c.lo {
			jobs[c.hi]++
		}
		a.Pairs++
		sum += s
		squares += float64(s * s)
		if s < 1 {
			a.Losing++
		}
	}
	if a.Pairs == 0 {
		return a
	}
	a.Jobs = len(jobs)
	n := float64(a.Pairs)
	a.MeanSum = narrow(sum / n)
	if a.Pairs > 1 {
		a.StdErr = narrow(math.Sqrt(max(0, squares-float64(sum*sum)/n) / (n - 1) / n))
	}
	a.judge()
	return a
}

// Package fragment computes how much of idle GPUs typical jobs cannot use.
package fragment

import (
	"cmp"
	"math"
	"slices"

	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Shape is what a job asks for on the GPUs of one class. Mem and Milli are
// thousandths of each GPU's memory and compute.
type Shape struct {
	GPUs       int
	Alone      bool // takes its GPUs whole
	Mem, Milli int64
	// CPUMilli and HostMiB are what it takes of its node in all.
	CPUMilli, HostMiB int64
}

// CardLeft is what a GPU has left, in thousandths of it.
type CardLeft struct {
	Mem, Milli int64
	Takes      bool // one more share
	Empty      bool
}

// Idle returns what is idle of a GPU: the larger of its two fractions.
func (c *CardLeft) Idle() int64 { return max(c.Mem, c.Milli) }

func (c *CardLeft) holds(s *Shape) bool {
	if s.Alone {
		return c.Empty && c.Takes
	}
	return c.Takes && c.Mem >= s.Mem && c.Milli >= s.Milli
}

// After returns the GPU with one share of a shape added; last means that it takes
// no more after that.
func (c CardLeft) After(s *Shape, last bool) CardLeft {
	if s.Alone {
		return CardLeft{}
	}
	return CardLeft{Mem: max(0, c.Mem-s.Mem), Milli: max(0, c.Milli-s.Milli), Takes: c.Takes && !last}
}

// Steps within which shapes count as alike, and how many are kept.
const (
	stepCard   = 50      // thousandths of a GPU
	stepCPU    = 1000    // thousandths of a core
	stepHost   = 4 << 10 // MiB
	maxShapes  = 32
	coverMilli = 950
)

// alike is the key by which shapes are counted.
type alike struct {
	gpus, mem, milli, cpu, host int64
	alone                       bool
}

// sum is how often similar shapes were asked for, and the sum of what they asked
// for.
type sum struct {
	key    alike
	weight int64
	all    Shape
}

// Mix counts what jobs ask for on one class of GPUs. The zero value is empty.
type Mix struct {
	at     map[alike]int
	sums   []sum
	unable int64 // weight of the jobs that cannot run there
}

// Add counts a shape weight times; a weight below 0 takes back what was added.
func (m *Mix) Add(s Shape, weight int64) {
	up := func(v, step int64) int64 { return (v + step - 1) / step }
	k := alike{int64(s.GPUs), up(s.Mem, stepCard), up(s.Milli, stepCard), up(s.CPUMilli, stepCPU), up(s.HostMiB, stepHost), s.Alone}
	if m.at == nil {
		m.at = map[alike]int{}
	}
	i, ok := m.at[k]
	if !ok {
		i = len(m.sums)
		m.at[k] = i
		m.sums = append(m.sums, sum{key: k})
	}
	x := &m.sums[i]
	x.weight += weight
	x.all.Mem += weight * s.Mem
	x.all.Milli += weight * s.Milli
	x.all.CPUMilli += weight * s.CPUMilli
	x.all.HostMiB += weight * s.HostMiB
}

// AddUnable counts a job that cannot run on the class.
func (m *Mix) AddUnable(weight int64) { m.unable += weight }

// Typical is the most popular shapes of a class of GPUs, those that cover 95 % of
// the jobs, at most 32: the target workload of Weng et al., "Beware of
// Fragmentation" (USENIX ATC 2023), section 4.2. Shapes that differ by less than a
// step are one, with the mean of what they ask for.
type Typical struct {
	shapes  []Shape
	weights []int64
	unable  int64
	total   int64 // 0 if nothing is known
}

// Typical returns the popular shapes of what was counted.
func (m *Mix) Typical() Typical {
	order := make([]int, 0, len(m.sums))
	all := m.unable
	for i := range m.sums {
		if m.sums[i].weight > 0 {
			order = append(order, i)
			all += m.sums[i].weight
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &m.sums[a], &m.sums[b]
		return cmp.Or(cmp.Compare(y.weight, x.weight), cmp.Compare(x.key.gpus, y.key.gpus), rules.CompareBool(x.key.alone, y.key.alone),
			cmp.Compare(x.key.milli, y.key.milli), cmp.Compare(x.key.mem, y.key.mem), cmp.Compare(x.key.cpu, y.key.cpu), cmp.Compare(x.key.host, y.key.host))
	})
	t := Typical{unable: m.unable, total: m.unable}
	for _, i := range order {
		if len(t.shapes) == maxShapes || t.total*1000 >= all*coverMilli {
			break
		}
		x := &m.sums[i]
		t.shapes = append(t.shapes, Shape{
			GPUs: int(x.key.gpus), Alone: x.key.alone, Mem: x.all.Mem / x.weight, Milli: x.all.Milli / x.weight,
			CPUMilli: x.all.CPUMilli / x.weight, HostMiB: x.all.HostMiB / x.weight,
		})
		t.weights = append(t.weights, x.weight)
		t.total += x.weight
	}
	return t
}

// Total returns the weight of all jobs that the typical shapes stand for; 0 means
// that nothing is known.
func (t *Typical) Total() int64 { return t.total }

// Shapes returns the typical shapes, the most popular first. The caller must not
// modify them.
func (t *Typical) Shapes() []Shape { return t.shapes }

// Weight returns how many jobs the k-th shape stands for.
func (t *Typical) Weight(k int) int64 { return t.weights[k] }

// Binds reports whether some shape asks for more cores or host memory than the part
// of the node that goes with its GPUs, given those of one GPU.
func (t *Typical) Binds(cpu, host int64) bool {
	for i := range t.shapes {
		s := &t.shapes[i]
		cards := int64(s.GPUs) * max(1, s.Milli, s.Mem)
		if s.CPUMilli > math.MaxInt64/1000 || s.CPUMilli*1000/cards > cpu || s.HostMiB*1000/cards > host {
			return true
		}
	}
	return false
}

// Measure is the fragmentation of the GPUs of one class on one node, with what is
// needed to compute how it changes.
type Measure struct {
	idle int64
	fit  []int32 // by shape: the GPUs that take it,
	good []int64 // and what those have idle
	frag int64
}

// fragment is equation 3 for one shape: everything idle if the node cannot run it,
// otherwise what is idle on GPUs that cannot.
func fragment(s *Shape, cpu, host, idle, good int64, fit int32) int64 {
	if int(fit) < s.GPUs || cpu < s.CPUMilli || host < s.HostMiB {
		return idle
	}
	return idle - good
}

// Measure computes the fragmentation of GPUs on a node that has so much left of its
// cores and host memory.
func (t *Typical) Measure(m *Measure, cpu, host int64, cards []CardLeft) {
	n := len(t.shapes)
	m.fit, m.good = slices.Grow(m.fit[:0], n)[:n], slices.Grow(m.good[:0], n)[:n]
	m.idle = 0
	for i := range cards {
		m.idle += cards[i].Idle()
	}
	m.frag = t.unable * m.idle
	for k := range t.shapes {
		s := &t.shapes[k]
		fit, good := int32(0), int64(0)
		for i := range cards {
			if cards[i].holds(s) {
				fit++
				good += cards[i].Idle()
			}
		}
		m.fit[k], m.good[k] = fit, good
		m.frag += t.weights[k] * fragment(s, cpu, host, m.idle, good, fit)
	}
}

// Growth returns by how much the expected fragmentation grows, in thousandths of a
// GPU, if GPUs change from was to is, and the node has so much left of its cores
// and host memory. It is below 0 if it shrinks.
func (t *Typical) Growth(m *Measure, cpu, host int64, was, is []CardLeft) int64 {
	if t.total == 0 {
		return 0
	}
	idle := m.idle
	for i := range was {
		idle += is[i].Idle() - was[i].Idle()
	}
	frag := t.unable * idle
	for k := range t.shapes {
		s := &t.shapes[k]
		fit, good := m.fit[k], m.good[k]
		for i := range was {
			if !was[i].holds(s) {
				continue // nor does it with less
			}
			fit--
			good -= was[i].Idle()
			if is[i].holds(s) {
				fit++
				good += is[i].Idle()
			}
		}
		frag += t.weights[k] * fragment(s, cpu, host, idle, good, fit)
	}
	return (frag - m.frag) / t.total
}

// Score maps a growth of fragmentation to a whole number from 0 to 100, more being
// better, as the authors' artefact does: int(100·sigmoid(-Δ/1000)). The rounding
// matters: near ties fall back to first fit, and exact differences do worse than
// first fit.
func Score(growth int64) int8 {
	return int8(100 / (1 + math.Exp(float64(growth)/1000)))
}

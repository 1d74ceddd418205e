package sim

import (
	"math"
	"slices"
	"time"
)

// How neighbours slow each other down. With u_i the utilization that a process requests and U
// the sum over the GPU, both in thousandths, and s the GPU's speed,
//
//	speed_i = s · min(1, 1000/U) / (1 + 0.08·(U−u_i)/1000)
//
// The first factor is time slicing: a GPU has no more than itself to give. The second is the
// cost of sharing caches and memory bandwidth before the GPU is full; published pairs of
// training jobs lie between 5 and 10 % there. A process on several GPUs runs at the speed of
// the slowest.
//
// Under a power limit L below the default L0, the GPU's clock falls to a fraction f, and s to
// 1/(p/f + 1-p): what a GPU draws beyond its idle power P is about proportional to the cube of
// its clock (dynamic power is C·V²·f, and V goes with f), and a part p of the work depends on
// the clock, while the rest waits for memory:
//
//	f = ((L−P)/(L0−P))^(1/3)
const (
	fullLoad     = 1000
	interference = 0.08
	clockPart    = 0.6
)

// Chip temperatures of a simulated GPU, at rest and at full load.
const idleC, loadC = 32, 74

// run is the current work of a client.
type run struct {
	id    uint64
	util  int64
	total float64 // reference nanoseconds
	done  float64
	speed float64 // reference nanoseconds per nanosecond
}

// meter integrates utilization over time without rounding: total holds the whole nanoseconds,
// rest the thousandths of one.
type meter struct {
	total time.Duration
	rest  int64
}

func (m *meter) add(milli int64, dt time.Duration) {
	// Whole seconds first: in thousandths of a nanosecond, a year of a full GPU would not fit
	// in 64 bits.
	sec, ns := int64(dt/time.Second), int64(dt%time.Second)
	m.total += time.Duration(sec * milli * int64(time.Second/fullLoad))
	acc := ns*milli + m.rest
	m.total += time.Duration(acc / fullLoad)
	m.rest = acc % fullLoad
}

// speedOn returns the speed of a process that requests util on c, under its current load.
func (c *card) speedOn(util int64) float64 {
	s := float64(c.model.speedMilli) / fullLoad * c.limited()
	if c.of != nil && util > c.part {
		s *= float64(c.part) / float64(util) // it keeps more of a whole GPU busy than there is
	}
	if c.load > fullLoad {
		s *= fullLoad / float64(c.load)
	}
	return s / (1 + interference*float64(c.load-util)/fullLoad)
}

// limited returns the speed of the GPU under its limit, as a fraction of that without.
func (c *card) limited() float64 {
	if c.set.MilliW == 0 {
		return 1
	}
	rest := 1000 * float64(c.model.idleW)
	f := math.Cbrt(max(float64(c.set.MilliW)-rest, 1) / (1000*float64(c.model.limitW) - rest))
	return 1 / (clockPart/f + 1 - clockPart)
}

// effective returns the part of c that the client's run really gets, in thousandths.
func (cl *client) effective(c *card) int64 {
	if cl.run == nil {
		return 0
	}
	if c.load > fullLoad {
		return cl.run.util * fullLoad / c.load
	}
	return cl.run.util
}

// start begins a run for cl, which has none.
func (b *bank) start(cl *client, r *run) {
	cl.run = r
	for _, t := range cl.cards {
		t.card.load += r.util
	}
	b.reckon()
}

// stop ends the run of cl, if it has one, and returns it.
func (b *bank) stop(cl *client) *run {
	r := cl.run
	if r == nil {
		return nil
	}
	cl.run = nil
	for _, t := range cl.cards {
		t.card.load -= r.util
	}
	b.reckon()
	return r
}

// reckon updates every run's speed after a change of load.
func (b *bank) reckon() {
	for _, cl := range b.clients {
		if cl.run == nil {
			continue
		}
		cl.run.speed = math.Inf(1)
		for _, t := range cl.cards {
			cl.run.speed = min(cl.run.speed, t.card.speedOn(cl.run.util))
		}
	}
}

// left returns the time until r is done at its present speed, at least zero and at most a
// century: slow work on a crowded GPU must not overflow.
func (r *run) left() time.Duration {
	const century = 100 * 365 * 24 * time.Hour
	return time.Duration(min(math.Ceil(max(0, r.total-r.done)/r.speed), float64(century)))
}

// nextEnd returns the time until the first run ends, and whether any is active.
func (b *bank) nextEnd() (time.Duration, bool) {
	first, running := time.Duration(math.MaxInt64), false
	for _, cl := range b.clients {
		if cl.run != nil {
			first, running = min(first, cl.run.left()), true
		}
	}
	return first, running
}

// ended is a completed run and its client.
type ended struct {
	client *client
	run    *run
}

// advance moves time to now, from one end of a run to the next so that every integral is exact,
// and returns the runs that ended, in order.
func (b *bank) advance(now time.Duration) []ended {
	var out []ended
	for {
		next := now
		if d, running := b.nextEnd(); running && d < now-b.now {
			next = b.now + d
		}
		b.integrate(max(0, next-b.now))
		for _, cl := range slices.Clone(b.clients) {
			if cl.run != nil && cl.run.done >= cl.run.total {
				out = append(out, ended{cl, b.stop(cl)})
			}
		}
		if next == now {
			return out
		}
	}
}

// integrate lets dt pass, in which no run ends before the last nanosecond.
func (b *bank) integrate(dt time.Duration) {
	b.now += dt
	for _, c := range b.cards {
		c.busy.add(min(c.load, fullLoad), dt)
	}
	for _, cl := range b.clients {
		r := cl.run
		if r == nil {
			continue
		}
		for _, t := range cl.cards {
			t.busy.add(cl.effective(t.card), dt)
		}
		if d := r.left(); d <= dt {
			r.done = r.total
		} else {
			r.done += r.speed * float64(dt)
		}
	}
}

package elastic

import (
	"cmp"
	"math"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

const (
	// closely is up to how many jobs are compared with all others in pairs, of more
	// each only with some, passes how often at most
	// all of them choose again, and halvings how exact a price is.
	closely, passes, halvings = 16, 8, 24
)

// market is where bidders share GPUs: each has one of its configurations, so that the
// sum of their costs is small. The exact least is an integer program, as Sia solves
// it; here each chooses by prices of GPUs at which about as many are wanted as there
// are, the multipliers of that program's relaxation, and then again and again while
// that lowers the sum.
type market struct {
	free   blocks
	types  []string
	gpus   []*cluster.GPU       // one of each type
	served map[shape][][]*block // by types, for jobs of a shape
	price  []float64            // of a GPU of each type, and of one more of any
	spare  int
	hold   bool
	all    []*bidder
}

func newMarket(free blocks, spare int, hold bool) *market {
	m := &market{free: free, served: map[shape][][]*block{}, spare: spare, hold: hold}
	for _, b := range free.all {
		if !slices.Contains(m.types, b.typ) {
			m.types = append(m.types, b.typ)
			m.gpus = append(m.gpus, &b.node.GPUs[slices.IndexFunc(b.node.GPUs, func(g cluster.GPU) bool { return g.Type == b.typ })])
		}
	}
	m.price = make([]float64, len(m.types)+1)
	return m
}

// serving returns the blocks of a type on which a bidder may run.
func (m *market) serving(b *bidder, typ int) []*block {
	s := b.job.Spec
	of := shape{0, 0, s.GPUType, s.Partition, s.Node, s.Where}
	if m.served[of] == nil {
		m.served[of] = make([][]*block, len(m.types))
		for _, o := range m.free.all {
			if m.free.serves(b.job, o) {
				t := slices.Index(m.types, o.typ)
				m.served[of][t] = append(m.served[of][t], o)
			}
		}
	}
	return m.served[of][typ]
}

// needs returns how many idle GPUs of a block a configuration takes.
func (m *market) needs(b *bidder, k *config, o *block) int {
	each, held := k.n*b.unit, b.had*b.unit
	if b.spans() {
		each, held = b.unit, b.unit
	}
	if m.hold && slices.Contains(b.home, o) {
		return each - held
	}
	return each
}

// more returns how many GPUs it takes there beyond what every job is to have.
func (m *market) more(b *bidder, k *config, place []*block) int {
	n := 0
	for _, o := range place {
		n += m.needs(b, k, o)
	}
	if len(b.home) == 0 && k.n > 0 {
		n -= b.least * b.unit
	}
	return n
}

// fit returns where a bidder that has nothing now can have a configuration: where it
// runs if possible, otherwise where fewest GPUs stay idle; nil for nowhere.
func (m *market) fit(b *bidder, k *config) []*block {
	out, want := make([]*block, 0, 1), 1
	switch {
	case k.n == 0:
		return out
	case b.spans():
		want = k.n
	}
	for _, o := range b.home {
		if len(out) < want && o.typ == m.types[k.typ] && o.idle >= m.needs(b, k, o) {
			out = append(out, o)
		}
	}
	var others []*block
	for _, o := range m.serving(b, k.typ) {
		if len(out) == want {
			break
		}
		if o.idle < m.needs(b, k, o) || slices.Contains(out, o) {
			continue
		}
		if want > 1 || len(others) == 0 {
			others = append(others, o)
		} else if o.idle < others[0].idle {
			others[0] = o
		}
	}
	if len(out)+len(others) < want {
		return nil
	}
	slices.SortStableFunc(others, func(a, b *block) int { return a.idle - b.idle })
	if out = append(out, others[:want-len(out)]...); m.more(b, k, out) > m.spare {
		return nil
	}
	return out
}

// book takes what a bidder has now, or with -1 returns it.
func (m *market) book(b *bidder, sign int) {
	k := &b.configs[b.now]
	m.spare -= sign * m.more(b, k, b.place)
	for _, o := range b.place {
		o.idle -= sign * m.needs(b, k, o)
	}
}

// cheapest returns which configuration of a bidder that has nothing is the cheapest
// that fits, and where; nowhere if none costs less than so much.
func (m *market) cheapest(b *bidder, cost func(*config) float64, least float64) (which int, place []*block) {
	for i := range b.configs {
		if c := cost(&b.configs[i]); c < least {
			if at := m.fit(b, &b.configs[i]); at != nil {
				which, place, least = i, at, c
			}
		}
	}
	return which, place
}

// choose gives a bidder that has nothing the cheapest that fits.
func (m *market) choose(b *bidder, cost func(*config) float64) {
	b.now, b.place = m.cheapest(b, cost, math.Inf(1))
	m.book(b, 1)
}

// move gives a bidder a configuration, and returns how to take it back; nil if it does
// not fit.
func (m *market) move(b *bidder, to *config) (undo func()) {
	was, place := b.now, b.place
	m.book(b, -1)
	b.now = slices.Index(b.configs, *to)
	if b.place = m.fit(b, to); b.place == nil {
		b.now, b.place = was, place
		m.book(b, 1)
		return nil
	}
	m.book(b, 1)
	return func() {
		m.book(b, -1)
		b.now, b.place = was, place
		m.book(b, 1)
	}
}

// cost is what a bidder adds to the sum.
func (b *bidder) cost() float64 { return b.configs[b.now].cost }

// bare is a cost without prices.
func bare(k *config) float64 { return k.cost }

// priced returns a cost with the price of GPUs.
func (m *market) priced(k *config) float64 {
	if k.n == 0 {
		return k.cost
	}
	return k.cost + m.price[k.typ]*float64(k.gpus) + m.price[len(m.types)]*float64(k.more)
}

// divide has bidders choose so that the sum is small: once by prices, the largest
// first, and once as they are, whichever becomes better.
func (m *market) divide() {
	m.improve()
	first := m.sum()
	was := make([]bidder, len(m.all))
	for i, b := range m.all {
		was[i] = *b
		m.book(b, -1)
	}
	m.setPrices()
	wants := map[*bidder]int{}
	for _, b := range m.all {
		wants[b] = m.wanted(b).gpus
	}
	order := slices.Clone(m.all)
	slices.SortStableFunc(order, func(a, b *bidder) int { return cmp.Compare(wants[b], wants[a]) })
	for _, b := range order {
		m.choose(b, m.priced)
	}
	if m.improve(); m.sum() < first {
		return
	}
	for _, b := range m.all {
		m.book(b, -1)
	}
	for i, b := range m.all {
		b.now, b.place = was[i].now, was[i].place
		m.book(b, 1)
	}
}

func (m *market) sum() (all float64) {
	for _, b := range m.all {
		all += b.cost()
	}
	return all
}

// wanted returns what a bidder chooses by prices alone.
func (m *market) wanted(b *bidder) *config {
	best, least := 0, math.Inf(1)
	for i := range b.configs {
		if c := m.priced(&b.configs[i]); c < least {
			best, least = i, c
		}
	}
	return &b.configs[best]
}

// setPrices finds, type after type, the least price at which no more GPUs are wanted
// than are idle. A higher price of one moves bidders to others, so prices only rise.
func (m *market) setPrices() {
	clear(m.price)
	have := make([]int, len(m.price))
	for _, o := range m.free.all {
		have[slices.Index(m.types, o.typ)] += o.idle
	}
	have[len(m.types)] = m.spare
	over := func(t int) bool {
		n := 0
		for _, b := range m.all {
			if k := m.wanted(b); t == len(m.types) {
				n += k.more
			} else if k.typ == t {
				n += k.gpus
			}
		}
		return n > have[t]
	}
	for range passes {
		raised := false
		for t := range m.price {
			if !over(t) {
				continue
			}
			raised = true
			low, high := m.price[t], max(m.price[t], 1e-3)
			for m.price[t] = high; over(t) && high < displaced; m.price[t] = high {
				low, high = high, 2*high
			}
			for range halvings {
				if m.price[t] = (low + high) / 2; over(t) {
					low = m.price[t]
				} else {
					high = m.price[t]
				}
			}
			m.price[t] = high
		}
		if !raised {
			return
		}
	}
}

// improve has bidders choose again, alone and in pairs, while that lowers the sum.
func (m *market) improve() {
	const least = 1e-9
	for range passes {
		before := m.sum()
		for i, a := range m.all {
			m.book(a, -1)
			m.choose(a, bare)
			for _, b := range m.all[max(0, i-closely*closely/len(m.all)):i] {
				m.pair(a, b)
			}
		}
		if m.sum() > before-least {
			return
		}
	}
}

// pair has two choose again together.
func (m *market) pair(a, b *bidder) {
	m.book(a, -1)
	m.book(b, -1)
	is, js, ps, qs := a.now, b.now, a.place, b.place
	least, best := a.cost()+b.cost(), slices.MinFunc(b.configs, func(x, y config) int { return cmp.Compare(x.cost, y.cost) }).cost
	for i := range a.configs {
		if a.configs[i].cost+best >= least {
			continue
		}
		if a.now, a.place = i, m.fit(a, &a.configs[i]); a.place == nil {
			continue
		}
		m.book(a, 1)
		if j, q := m.cheapest(b, bare, least-a.cost()); q != nil {
			is, js, ps, qs, least = i, j, a.place, q, a.cost()+b.configs[j].cost
		}
		m.book(a, -1)
	}
	a.now, b.now, a.place, b.place = is, js, ps, qs
	m.book(a, 1)
	m.book(b, 1)
}

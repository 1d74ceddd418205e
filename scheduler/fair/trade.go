package fair

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// worthMilli is how much more one account must gain by a type than another, in
// thousandths, for the two to trade: less is within what predictions err.
const worthMilli = 1250

// Market is the GPUs of each type among the accounts that have jobs. After Chaudhary et
// al., "Balancing efficiency and fairness in heterogeneous GPU clusters for deep learning"
// (EuroSys 2020): each account is entitled to its part of every type; one whose jobs gain
// little by a type gives GPUs of it to one whose jobs gain much, for more GPUs of another.
// The paper's price is the second highest bid, as users tell what they gain; here that is
// predicted, and the price is the geometric mean of both gains, by which both win alike.
//
// Amounts are thousandths of GPUs. It is not safe for concurrent use.
type Market struct {
	// Types are the GPU types, Trades what was traded, after Deal.
	Types  []string
	Trades []dispatch.Trade

	gpus, free []int64
	owed       []int64 // of each type, to those who hold less than they may and wait
	dealt      []bool  // traded types; on others nobody is bound
	at         map[string]*Trader
	list       []*Trader
}

// Trader is an account in a market.
type Trader struct {
	name        string
	part        float64
	ms          []int64 // run time of all jobs known on all types, on each
	known, all  int64   // what those jobs want, and what all do
	held, waits []int64 // by type
	bound       []int64 // may in whole GPUs
	may, offers []float64
}

// NewMarket returns a market of so many GPUs of each type, of which so many are free.
func NewMarket(types []string, gpus, free []int64) *Market {
	n := len(types)
	return &Market{Types: types, gpus: gpus, free: free, owed: make([]int64, n), dealt: make([]bool, n), at: map[string]*Trader{}}
}

// Trader returns an account, with its part of all shares, which needs only be right
// relative to that of others.
func (m *Market) Trader(name string, part float64) *Trader {
	t := m.at[name]
	if t == nil {
		n := len(m.Types)
		t = &Trader{name: name, part: part, ms: make([]int64, n), held: make([]int64, n), waits: make([]int64, n), bound: make([]int64, n), may: make([]float64, n), offers: make([]float64, n)}
		m.at[name] = t
	}
	return t
}

// Wants counts jobs that wait or run, with the GPUs that all of them want and the time
// that each is predicted to take on each type, nil if that is not known of all types.
func (t *Trader) Wants(milli int64, times []time.Duration) {
	if t.all += milli; times == nil {
		return
	}
	t.known += milli
	for k, d := range times {
		t.ms[k] += d.Milliseconds() * milli / cluster.WholeGPU
	}
}

// Holds counts what a running job has of a type, Waits what a waiting one would take.
func (t *Trader) Holds(k int, milli int64) { t.held[k] += milli }

// Waits counts what a waiting job would take of a type.
func (t *Trader) Waits(k int, milli int64) { t.waits[k] += milli }

// Deal lets the accounts trade, once all are counted.
func (m *Market) Deal() {
	for _, name := range slices.Sorted(maps.Keys(m.at)) {
		m.list = append(m.list, m.at[name])
	}
	if !m.entitle() {
		return // there is enough for all
	}
	for a := range m.Types {
		for b := a + 1; b < len(m.Types); b++ {
			m.trade(a, b)
		}
	}
	for k := range m.Types {
		m.round(k)
		m.owe(k)
	}
}

// round makes whole GPUs of what each may hold of a type: jobs take whole ones more often
// than not, and if all were rounded up, those who go first would have more than they may.
func (m *Market) round(k int) {
	by, left := slices.Clone(m.list), m.gpus[k]
	for _, t := range by {
		t.bound[k] = int64(t.may[k]) / cluster.WholeGPU * cluster.WholeGPU
		left -= t.bound[k]
	}
	slices.SortStableFunc(by, func(a, b *Trader) int {
		return cmp.Compare(b.may[k]-float64(b.bound[k]), a.may[k]-float64(a.bound[k]))
	})
	for i := 0; i < len(by) && left >= cluster.WholeGPU/2; i++ {
		by[i].bound[k], left = by[i].bound[k]+cluster.WholeGPU, left-cluster.WholeGPU
	}
}

// entitle gives each account its part of every type, but of all GPUs no more than it
// wants; false means that they are enough for all.
func (m *Market) entitle() bool {
	total := 0.0
	for _, n := range m.gpus {
		total += float64(n)
	}
	rest, left := slices.Clone(m.list), total
	slices.SortFunc(rest, func(a, b *Trader) int {
		return cmp.Or(cmp.Compare(float64(a.all)/a.part, float64(b.all)/b.part), cmp.Compare(a.name, b.name))
	})
	parts := 0.0
	for _, t := range rest {
		parts += t.part
	}
	scarce := false
	for _, t := range rest {
		fair := left * t.part / parts
		scarce = scarce || float64(t.all) > fair
		fair = min(fair, float64(t.all))
		left, parts = left-fair, parts-t.part
		for k, n := range m.gpus {
			t.may[k] = fair / total * float64(n)
			t.offers[k] = t.may[k] * float64(t.known) / float64(max(1, t.all))
		}
	}
	return scarce
}

// gain returns how many times as fast an account's jobs go on type a as on type b.
func (t *Trader) gain(a, b int) float64 { return float64(t.ms[b]) / float64(t.ms[a]) }

// trade lets accounts exchange two types: the one that gains least by the first gives it
// to the one that gains most, until one of them has no more to give, and so on.
func (m *Market) trade(a, b int) {
	var by []*Trader
	for _, t := range m.list {
		if t.ms[a] > 0 && t.ms[b] > 0 {
			by = append(by, t)
		}
	}
	slices.SortStableFunc(by, func(x, y *Trader) int { return cmp.Compare(x.gain(a, b), y.gain(a, b)) })
	for lo, hi := 0, len(by)-1; lo < hi; {
		seller, buyer := by[lo], by[hi]
		low, high := seller.gain(a, b), buyer.gain(a, b)
		if high*1000 < low*worthMilli {
			return
		}
		price := math.Sqrt(low * high)
		n := min(seller.offers[a], buyer.offers[b]/price)
		if n > 0 {
			m.exchange(seller, buyer, a, b, n, price)
		}
		if n == seller.offers[a] {
			lo++
		} else {
			hi--
		}
		// What one has given it does not get back from the next.
		seller.offers[a], buyer.offers[b] = seller.offers[a]-n, max(0, buyer.offers[b]-n*price)
	}
}

// exchange notes a trade, as one in which the more is given for the less.
func (m *Market) exchange(seller, buyer *Trader, a, b int, n, price float64) {
	seller.may[a], buyer.may[a] = seller.may[a]-n, buyer.may[a]+n
	seller.may[b], buyer.may[b] = seller.may[b]+n*price, buyer.may[b]-n*price
	m.dealt[a], m.dealt[b] = true, true
	t := dispatch.Trade{Seller: seller.name, Buyer: buyer.name, Sold: m.Types[a], Paid: m.Types[b], GPUs: n / cluster.WholeGPU, Price: price}
	if price < 1 {
		t = dispatch.Trade{Seller: buyer.name, Buyer: seller.name, Sold: m.Types[b], Paid: m.Types[a], GPUs: n * price / cluster.WholeGPU, Price: 1 / price}
	}
	m.Trades = append(m.Trades, t)
}

// owe sums up what those are owed of a type who hold less than they may and wait.
func (m *Market) owe(k int) {
	m.owed[k] = 0
	for _, t := range m.list {
		m.owed[k] += min(t.waits[k], max(0, t.bound[k]-t.held[k]))
	}
}

// May returns how many GPUs of a traded type an account may hold while others wait for
// it.
func (m *Market) May(name string, k int) int { return int(m.at[name].bound[k] / cluster.WholeGPU) }

// Keeps reports whether an account may not take so much of a type now: it holds what it
// may, and others, who do not, wait for what is free.
func (m *Market) Keeps(name string, k int, milli int64) bool {
	t := m.at[name]
	return t != nil && m.dealt[k] && t.held[k] >= t.bound[k] && m.free[k]-milli < m.owed[k]
}

// Took counts a start of an account's job, which waited for some types.
func (m *Market) Took(name string, k int, milli int64, waited []int64) {
	t := m.at[name]
	if t == nil {
		return
	}
	for o, n := range waited {
		t.waits[o] -= n
	}
	t.held[k], m.free[k] = t.held[k]+milli, m.free[k]-milli
	for o := range m.Types {
		m.owe(o)
	}
}

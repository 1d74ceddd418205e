package policies_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// Each placement and order once more, as its source states it and in the plainest
// way there is: over lists of cards, without an index, for jobs of one card.

// ncard is a card and who lies on it, in thousandths of its memory and compute.
type ncard struct {
	id   cluster.GPUID
	node int
	on   []nshare
}

type nshare struct {
	mem, milli int64
	lasts, ago time.Duration
	gpus       int
}

func (c *ncard) free() (mem, milli int64) {
	mem, milli = 1000, 1000
	for _, s := range c.on {
		mem, milli = mem-s.mem, milli-s.milli
	}
	return mem, milli
}

// holds: three to a card at most, and no more than all of it.
func (c *ncard) holds(s nshare) bool {
	mem, milli := c.free()
	return len(c.on) < 3 && s.mem <= mem && s.milli <= milli
}

// left is what is left of a card: both fractions, summed.
func (c *ncard) left() int64 {
	mem, milli := c.free()
	return mem + milli
}

// ncluster is nodes of cards that sell 80,000 MiB, in the order of their ids.
type ncluster struct {
	cards []*ncard
	nodes int
	taken map[int]bool // nodes that a gang has already
}

func drawShare(t *rapid.T, what string) nshare {
	return nshare{
		mem: rapid.Int64Range(1, 16).Draw(t, what+" memory") * 50, milli: rapid.Int64Range(1, 16).Draw(t, what+" compute") * 50,
		lasts: time.Duration(rapid.IntRange(20, 200).Draw(t, what+" lasts")) * time.Minute, ago: time.Duration(rapid.IntRange(1, 15).Draw(t, what+" runs")) * time.Minute, gpus: 1,
	}
}

// drawCards lays some jobs on a small cluster and returns it, with the same as a
// scene; job ids are 100 and up.
func drawCards(t *rapid.T) (*ncluster, *scene) {
	c := &ncluster{nodes: rapid.IntRange(1, 3).Draw(t, "nodes")}
	var nodes []*cluster.Node
	for n := range c.nodes {
		k := rapid.IntRange(1, 3).Draw(t, "cards")
		id := cluster.NodeID(fmt.Sprintf("n%d", n))
		nodes = append(nodes, Node(id, k, a100))
		for i := range k {
			c.cards = append(c.cards, &ncard{id: GPU(id, i), node: n})
		}
	}
	s := newScene(nodes...)
	for id := range cluster.JobID(rapid.IntRange(0, 7).Draw(t, "running")) {
		on, sh := rapid.SampledFrom(c.cards).Draw(t, "on"), drawShare(t, "share")
		if on.holds(sh) {
			on.on = append(on.on, sh)
			s.runs(100+id, sh.mem*80, sh.milli, sh.lasts, sh.ago, on.id)
		}
	}
	return c, s
}

func (s nshare) job(id cluster.JobID, opts ...JobOption) *cluster.Job {
	return Job(id, append([]JobOption{Mem(s.mem * 80), Util(s.milli), Lasts(s.lasts)}, opts...)...)
}

func (c *ncluster) holding(s nshare) (out []*ncard) {
	for _, k := range c.cards {
		if k.holds(s) && !c.taken[k.node] {
			out = append(out, k)
		}
	}
	return out
}

func (c *ncluster) onNode(n int) (out []*ncard) {
	for _, k := range c.cards {
		if k.node == n {
			out = append(out, k)
		}
	}
	return out
}

// least is the first of the least.
func least[T any](xs []T, of func(T) float64) (best T, ok bool) {
	for i, x := range xs {
		if i == 0 || of(x) < of(best) {
			best, ok = x, true
		}
	}
	return best, ok
}

// TestPlacementsAsNaive: one job comes to a cluster in use, and lies where the rule
// says, or nowhere when no card will do.
func TestPlacementsAsNaive(t *testing.T) {
	t.Parallel()
	rules := map[string]func(c *ncluster, s nshare) (*ncard, bool){
		"firstfit": (*ncluster).firstFit, "lucid": (*ncluster).lucid, "horus": (*ncluster).horus, "schedtune": (*ncluster).schedTune, "fgd": (*ncluster).fgd,
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := must(t, name, policies.Options{})
			rapid.Check(t, func(t *rapid.T) {
				c, sc := drawCards(t)
				s := drawShare(t, "newcomer")
				if err := sc.w.Check(); err != nil || len(sc.w.Rejected) > 0 {
					t.Fatalf("bad scene: %v %v", err, sc.w.Rejected)
				}
				sc.waits(s.job(1))
				plan := p.Plan(sc.w.Snapshot())
				want, ok := rule(c, s)
				got := startsOf(&plan)
				if !ok && len(got) > 0 || ok && got[1] != string(want.id) {
					t.Fatalf("lies on %q, want %v (%t); cards %s", got[1], want, ok, c)
				}
			})
		})
	}
}

// TestGangsAsNaive: a gang over nodes lies where as many jobs on one node each
// would, that come one after the other and not to a node that one of them has; or
// nowhere when there are too few.
func TestGangsAsNaive(t *testing.T) {
	t.Parallel()
	alone := func(c *ncluster, s nshare) (*ncard, bool) { // see lucid: on several nodes nobody shares
		for _, k := range c.cards {
			c.taken[k.node] = c.taken[k.node] || len(k.on) > 0 && len(slices.DeleteFunc(c.onNode(k.node), func(k *ncard) bool { return len(k.on) > 0 })) == 0
		}
		return c.lucid(s)
	}
	rules := map[string]func(c *ncluster, s nshare) (*ncard, bool){"firstfit": (*ncluster).firstFit, "lucid": alone, "horus": (*ncluster).horus, "fgd": (*ncluster).fgd}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := must(t, name, policies.Options{})
			rapid.Check(t, func(t *rapid.T) {
				c, sc := drawCards(t)
				s, nodes := drawShare(t, "newcomer"), rapid.IntRange(2, 3).Draw(t, "on nodes")
				sc.waits(s.job(1, Nodes(nodes)))
				plan := p.Plan(sc.w.Snapshot())
				var want, got []string
				c.taken = map[int]bool{}
				for range nodes {
					k, ok := rule(c, s)
					if !ok {
						want = nil
						break
					}
					c.taken[k.node] = true
					want = append(want, string(k.id))
				}
				for i := range plan.Starts {
					for _, g := range plan.Starts[i].AllGPUs() {
						got = append(got, string(g.GPU))
					}
				}
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("lies on %v, want %v; cards %s", got, want, c)
				}
			})
		})
	}
}

func (c *ncluster) String() string {
	out := ""
	for _, k := range c.cards {
		mem, milli := k.free()
		out += fmt.Sprintf("%s: %d shares, %d and %d free; ", k.id, len(k.on), mem, milli)
	}
	return out
}

// firstFit is the first card that holds it (Johnson 1973).
func (c *ncluster) firstFit(s nshare) (*ncard, bool) {
	return least(c.holding(s), func(*ncard) float64 { return 0 })
}

// lucid (Hu et al., ASPLOS 2023, section 3.3): an empty card of the node with the
// fewest; else, on the first that will do, beside one whose class and its own add up
// to at most two and who lasts at least half as long.
func (c *ncluster) lucid(s nshare) (*ncard, bool) {
	class := func(s nshare) int {
		switch {
		case s.milli >= 660 || s.mem >= 500:
			return 2
		case s.milli < 250:
			return 0
		}
		return 1
	}
	empties := func(n int) (k float64) {
		for _, x := range c.onNode(n) {
			if len(x.on) == 0 {
				k++
			}
		}
		return k
	}
	var empty []*ncard
	for _, k := range c.cards {
		if len(k.on) == 0 && !c.taken[k.node] {
			empty = append(empty, k)
		}
	}
	if k, ok := least(empty, func(k *ncard) float64 { return empties(k.node) }); ok {
		return k, true
	}
	for _, k := range c.cards {
		if len(k.on) == 1 && k.holds(s) && !c.taken[k.node] && class(s)+class(k.on[0]) <= 2 && s.lasts <= 2*k.on[0].lasts {
			return k, true
		}
	}
	return nil, false
}

// horus (Yeung et al., TPDS 2022, section 4): where the card is over-used least were
// each prediction short by its usual error, 15.4 % of compute and 9 % of memory;
// nowhere if it would be over-used, as it has not waited for five minutes. Of equal
// ones the fuller node, by its card.
func (c *ncluster) horus(s nshare) (*ncard, bool) {
	over := func(k *ncard) float64 {
		if len(k.on) == 0 {
			return 0
		}
		mem, milli := k.free()
		return float64(max(0, (1000-milli+s.milli)*1154/1000-1000) + max(0, (1000-mem+s.mem)*1090/1000-1000))
	}
	var good []*ncard
	for _, k := range c.holding(s) {
		if over(k) == 0 {
			good = append(good, k)
		}
	}
	return least(good, func(k *ncard) float64 { return float64(k.left()) })
}

// schedTune (Albahar et al., CCGrid 2022, equations 1 and 2): to the card where what
// runs there is over soonest; it starts if it fits there, else it waits there though
// another be free.
func (c *ncluster) schedTune(s nshare) (*ncard, bool) {
	k, _ := least(c.cards, func(k *ncard) float64 {
		sum := time.Duration(0)
		for _, o := range k.on {
			sum += o.lasts - o.ago
		}
		return sum.Seconds()
	})
	return k, k.holds(s)
}

// fgd (Weng et al., ATC 2023, equations 1 to 4 and algorithm 1): where the expected
// fragmentation of the node grows least, by the artefact's score, of equals the
// first. The target workload is who runs and who comes, each with the same weight.
func (c *ncluster) fgd(s nshare) (*ncard, bool) {
	var targets []nshare
	for _, k := range c.cards {
		targets = append(targets, k.on...)
	}
	targets = append(targets, s)
	idle := func(k *ncard) int64 { mem, milli := k.free(); return max(mem, milli) }
	// What of the idle GPUs of a node a task cannot use, summed over the tasks.
	fragments := func(n int) (sum int64) {
		for _, task := range targets {
			cards, fits := c.onNode(n), false
			for _, k := range cards {
				fits = fits || k.holds(task)
			}
			for _, k := range cards {
				if !fits || !k.holds(task) {
					sum += idle(k)
				}
			}
		}
		return sum
	}
	return least(c.holding(s), func(k *ncard) float64 {
		before := fragments(k.node)
		k.on = append(k.on, s)
		grows := (fragments(k.node) - before) / int64(len(targets))
		k.on = k.on[:len(k.on)-1]
		return -math.Floor(100 / (1 + math.Exp(float64(grows)/1000)))
	})
}

// TestBestFitAsNaive: no node would be left with less, in sum and within rounding,
// and no card of it that holds the job.
func TestBestFitAsNaive(t *testing.T) {
	t.Parallel()
	p := must(t, "bestfit", policies.Options{})
	rapid.Check(t, func(t *rapid.T) {
		c, sc := drawCards(t)
		s := drawShare(t, "newcomer")
		sc.waits(s.job(1))
		plan := p.Plan(sc.w.Snapshot())
		holding := c.holding(s)
		if len(plan.Starts) != min(1, len(holding)) {
			t.Fatalf("%d starts, %d cards hold it", len(plan.Starts), len(holding))
		}
		if len(holding) == 0 {
			return
		}
		widest := 0
		for n := range c.nodes {
			widest = max(widest, len(c.onNode(n)))
		}
		rest := func(k *ncard) float64 { // of the node, in the fractions of the largest there is
			cards, jobs := 0.0, 0.0
			for _, o := range c.onNode(k.node) {
				cards += float64(o.left())
				jobs += float64(len(o.on))
			}
			cards -= float64(s.mem + s.milli)
			return cards/float64(2*widest) + 1000*(64-jobs-1)/64 + 1000*(512-jobs-1)/512
		}
		got := holding[slices.IndexFunc(holding, func(k *ncard) bool { return string(k.id) == startsOf(&plan)[1] })]
		best, _ := least(holding, rest)
		if rest(got) > rest(best)+4 {
			t.Fatalf("lies on %s, of whose node %.1f thousandths are left; of that of %s %.1f", got.id, rest(got), best.id, rest(best))
		}
		for _, k := range holding {
			if k.node == got.node && k.left() < got.left() {
				t.Fatalf("lies on %s with %d left, %s has %d", got.id, got.left(), k.id, k.left())
			}
		}
	})
}

// TestHorusTakesTheLeastCostly: who has waited for five minutes, where the card is
// over-used least.
func TestHorusTakesTheLeastCostly(t *testing.T) {
	t.Parallel()
	p := must(t, "horus", policies.Options{})
	rapid.Check(t, func(t *rapid.T) {
		c, sc := drawCards(t)
		s := drawShare(t, "newcomer")
		sc.waits(s.job(1, Waited(5*time.Minute)))
		plan := p.Plan(sc.w.Snapshot())
		over := func(k *ncard) int64 {
			if len(k.on) == 0 {
				return 0
			}
			mem, milli := k.free()
			return max(0, (1000-milli+s.milli)*1154/1000-1000) + max(0, (1000-mem+s.mem)*1090/1000-1000)
		}
		holding := c.holding(s)
		if len(plan.Starts) != min(1, len(holding)) {
			t.Fatalf("%d starts, %d cards hold it", len(plan.Starts), len(holding))
		}
		for _, k := range holding {
			got := holding[slices.IndexFunc(holding, func(k *ncard) bool { return string(k.id) == startsOf(&plan)[1] })]
			if over(k) < over(got) || over(k) == over(got) && k.left() < got.left() {
				t.Fatalf("lies on %s, over-used by %d with %d left; %s by %d with %d", got.id, over(got), got.left(), k.id, over(k), k.left())
			}
		}
	})
}

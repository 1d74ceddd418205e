package place

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// horus places a job where it is predicted to overuse a GPU least, and defers pairs
// that are predicted to. Source: Yeung et al., "Horus: Interference-Aware and
// Prediction-Based Scheduling in Deep Learning Systems" (TPDS 2022), section 4:
// cost is by how much the predicted utilization of a GPU exceeds its capacity; jobs
// that only find costly places are de-prioritised. Equal costs go to the fuller
// GPU, to keep GPUs empty.
//
// Our ledger lets no sum of predictions exceed a GPU, so the cost includes the
// predictor's error: by how much the sum would exceed the GPU if each utilization
// were higher by horusError. How long a costly place is deferred, costlyAfter, is
// our constant. Compute and memory count alike.
type horus struct{ now int64 }

// horusError is the root mean squared logarithmic error of the predictor of Yeung
// et al. (HotCloud 2020), in thousandths; horusMemError is the assumed mean error
// of memory.
const (
	horusError    = 154
	horusMemError = 90
	costlyAfter   = 5 * time.Minute
)

// cost returns by how many thousandths of a GPU t and the jobs on c would overuse
// it, compute and memory summed. Alone it costs nothing.
func (horus) cost(p *scene.Scene, t *scene.Task, c *mirror.Card) int64 {
	if c.Use.Shares == 0 {
		return 0
	}
	n := &t.Needs[p.Fleet.Groups[c.Group].Class].Share
	milli := (c.Use.UsedMilli + n.Milli) * (1000 + horusError) / 1000
	mem := (c.Use.UsedMiB + n.MemMiB) * (1000 + horusMemError) / max(1, c.Use.SellableMiB)
	return max(0, milli-cluster.WholeGPU) + max(0, mem-cluster.WholeGPU)
}

func (h horus) Admits(p *scene.Scene, t *scene.Task, c *mirror.Card) bool {
	return h.patient(t) || h.cost(p, t, c) == 0
}

// patient reports whether a job has waited long enough to take a costly place.
func (h horus) patient(t *scene.Task) bool {
	return cluster.Time(h.now).Sub(cluster.Time(t.Since)) >= costlyAfter
}

func (h horus) Tag(t *scene.Task) int64 {
	if h.patient(t) {
		return 1
	}
	return 0
}

func (h horus) Choose(p *scene.Scene, t *scene.Task) []int32 {
	var best []int32
	least, room := int64(rules.Forever), int64(rules.Forever)
	for gi := range p.Fleet.Groups {
		if !p.MayHold(t, int32(gi)) {
			continue
		}
		cards := p.Pick(t, int32(gi), func(a, b *mirror.Card) int {
			if x, y := h.cost(p, t, a), h.cost(p, t, b); x != y {
				return int(x - y)
			}
			return p.Fuller(a, b)
		})
		if cards == nil {
			continue
		}
		cost, left := int64(0), int64(0)
		for _, ci := range cards {
			cost += h.cost(p, t, &p.Fleet.Cards[ci])
			left += scene.LeftOf(&p.Fleet.Cards[ci])
		}
		if cost < least || cost == least && left < room {
			best, least, room = p.Keep(cards), cost, left
		}
	}
	return best
}

package learner

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/interfere"
)

// Company knows how jobs that share a GPU affect each other: what the state machine
// holds of it, decoded once, and the same as plain numbers for the scheduler.
type Company struct {
	fsm *fsm.FSM
	log *slog.Logger

	mu      sync.Mutex
	version uint64
	model   *interfere.Model // nil before anything was learned, or if it cannot be read
	cards   []Card           // of the cluster, when numbers was computed
	names   map[uint64]struct{}
	seen    map[string]struct{}    // signatures that were looked up
	numbers *dispatch.Interference // immutable; replaced when a signature is added
}

// Card is a kind of GPU: what makes GPUs alike as far as neighbours go.
type Card struct {
	GPUType string
	Mode    interfere.Mode
}

// maxSeen bounds the signatures that are remembered.
const maxSeen = 1 << 17

// current returns the model in use, nil when nothing was learned. c.mu is
// held.
func (c *Company) current() *interfere.Model {
	in := c.fsm.Interference()
	if in.Version == c.version {
		return c.model
	}
	c.version, c.model, c.cards, c.numbers, c.seen = in.Version, nil, nil, nil, nil
	if in.Version == 0 {
		return nil
	}
	m, err := interfere.Decode(in.Blob)
	if err != nil {
		c.log.Error("what was learned of sharing cannot be used; the built-in coefficients are", "index", in.Version, "err", err)
		return nil
	}
	c.model = m
	return m
}

// Model returns the model in use; a nil one answers by the built-in
// coefficients.
func (c *Company) Model() *interfere.Model {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current()
}

// ForScheduler returns the numbers for the GPUs of nodes and for all of the jobs,
// nil if nothing was learned.
func (c *Company) ForScheduler(nodes []*cluster.Node, jobs ...[]*cluster.Job) *dispatch.Interference {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.current()
	if m == nil {
		return nil
	}
	if cards := KindsOf(nodes); c.numbers == nil || len(c.seen) > maxSeen || !slices.Equal(cards, c.cards) {
		c.cards = cards
		c.reckon(m)
	}
	news := map[string]dispatch.Temper{}
	for _, js := range jobs {
		for _, j := range js {
			sig := j.Spec.Signature
			if _, ok := c.seen[sig]; ok || j.Spec.GPUs == 0 {
				continue
			}
			c.seen[sig] = struct{}{}
			if t := c.temper(j.Spec); t != (dispatch.Temper{}) {
				news[sig] = t
			}
		}
	}
	if len(news) > 0 {
		next := *c.numbers
		next.Jobs = make(map[string]dispatch.Temper, len(c.numbers.Jobs)+len(news))
		maps.Copy(next.Jobs, c.numbers.Jobs)
		maps.Copy(next.Jobs, news)
		c.numbers = &next
	}
	return c.numbers
}

// Newest returns the last numbers computed: for the fast path, whose jobs a pass
// has seen before.
func (c *Company) Newest() *dispatch.Interference {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current() == nil {
		return nil
	}
	return c.numbers
}

// reckon recomputes the numbers. c.mu is held.
func (c *Company) reckon(m *interfere.Model) {
	c.seen, c.names = map[string]struct{}{}, map[uint64]struct{}{}
	x := &dispatch.Interference{
		Jobs: map[string]dispatch.Temper{}, MaxBend: interfere.MaxBend, BandwidthPerUtil: interfere.BandwidthPerUtil,
	}
	for _, k := range c.cards {
		if s, ok := SharingOf(m, k); ok {
			x.Cards = append(x.Cards, s)
			for id := range s.Effects {
				c.names[id] = struct{}{}
			}
		}
	}
	c.numbers = x
}

// SharingOf returns in plain numbers what a model knows of one kind of GPU; ok is
// false if that is nothing.
func SharingOf(m *interfere.Model, k Card) (s dispatch.Sharing, ok bool) {
	t, a := m.Terms(k.GPUType, k.Mode), m.Advice(k.GPUType, k.Mode)
	if k.Mode == interfere.MIG || t.Observations == 0 {
		return s, false
	}
	s = dispatch.Sharing{
		GPUType: k.GPUType, MPS: k.Mode == interfere.MPS, Never: a.Verdict == interfere.Loses, Pairs: a.Pairs, SpeedSum: a.MeanSum,
		Switch: t.Coefficients.Switch, Compute: t.Coefficients.Compute, Memory: t.Coefficients.Memory, Bandwidth: t.Coefficients.Bandwidth,
		Effects: make(map[uint64]dispatch.Effect, len(t.Effects)), Histories: t.Histories,
	}
	for id, e := range t.Effects {
		s.Effects[id] = dispatch.Effect(e)
	}
	return s, true
}

// temper returns what was learned of a job, zero if nothing. c.mu is held.
func (c *Company) temper(spec *cluster.Spec) dispatch.Temper {
	t := dispatch.Temper{Self: interfere.ID(spec.Signature), Family: interfere.ID(FamilyIn(spec))}
	if t.Family == t.Self {
		t.Family = 0
	}
	if _, ok := c.names[t.Self]; !ok {
		t.Self = 0
	}
	if _, ok := c.names[t.Family]; !ok {
		t.Family = 0
	}
	return t
}

// FamilyIn returns the family of a job by its features, "" if it has none.
func FamilyIn(spec *cluster.Spec) string {
	if len(spec.Features) == 0 {
		return ""
	}
	f, err := model.DecodeFeatures(spec.Features)
	if err != nil {
		return "" // of another version
	}
	return familyOf(&f)
}

// KindsOf lists the kinds of GPUs that jobs can share, sorted.
func KindsOf(nodes []*cluster.Node) []Card {
	have := map[Card]struct{}{}
	var out []Card
	for _, n := range nodes {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			k := Card{g.Type, ModeOf(g.CapMode)}
			if _, ok := have[k]; !ok && g.Shareable() {
				have[k] = struct{}{}
				out = append(out, k)
			}
		}
	}
	slices.SortFunc(out, func(a, b Card) int {
		return cmp.Or(cmp.Compare(a.GPUType, b.GPUType), cmp.Compare(a.Mode, b.Mode))
	})
	return out
}

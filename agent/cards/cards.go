// Package cards is what an agent knows of the cards of its node and does with them:
// which it offers, how each is, what they show, what attempts are given of them, and
// whether they pass the checks of the site.
package cards

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// State is how an agent finds a card; see the wire's GPUState. Of several
// that hold at once the highest is told, with all the reasons.
type State = nodev1.GPUState

// The states of a card, in the order in which one hides another.
const (
	OK          = nodev1.GPUState_GPU_STATE_OK
	Unknown     = nodev1.GPUState_GPU_STATE_UNKNOWN
	Quarantined = nodev1.GPUState_GPU_STATE_QUARANTINED
	Failing     = nodev1.GPUState_GPU_STATE_FAILING
	Lost        = nodev1.GPUState_GPU_STATE_LOST
)

// Config is what Cards need; every field but Log may be empty.
type Config struct {
	// GPUs is nil on a node without any, Devices where cards have no device nodes.
	GPUs    gpu.Provider
	Devices Devices
	// Only names the cards that are Berth's; empty is all.
	Only gpu.Offer
	// Choose says how the shares of a card are enforced; nil is CapMode for all.
	Choose  func(gpu.Card) caps.Choice
	CapMode string
	// Watch is when an attempt above its share is ended.
	Watch caps.WatchConfig
	Log   *slog.Logger
}

// Cards are those of a node: which of them are offered, how they are, what they
// show and what attempts are given of them. They are safe for concurrent use.
type Cards struct {
	cfg     Config
	log     *slog.Logger
	States  *States
	Sampler *Sampler
	Mem     *MemWatch
	strays  *strayWatch
	recheck chan struct{} // see WatchDevices

	mu sync.Mutex
	// usable is the memory of each card less the driver's reserve, by UUID, as
	// the last hello had it; replaced, never changed.
	usable map[string]int64
	// modes are how the shares of each card are enforced, likewise.
	modes map[string]caps.Mode
	// foreign are the cards that are not Berth's, likewise; nil before the first
	// hello.
	foreign map[string]struct{}
	kept    map[string]string // why a card is kept from the offer, by UUID
}

// New makes those that s looks at.
func New(cfg Config, s *Sampler) *Cards {
	nc := &Cards{cfg: cfg, log: cfg.Log, States: newCardStates(), Sampler: s, Mem: newMemWatch(cfg.Watch), recheck: make(chan struct{}, 1)}
	nc.strays = newStrayWatch(cfg.Log, nc.States.Again)
	return nc
}

// FollowStrays has the sampler tell of processes that nobody started here.
func (nc *Cards) FollowStrays() { nc.Follow(nc.strays.observe) }

// Follow has the sampler tell f of the cards that are Berth's; see Sampler.Observe.
func (nc *Cards) Follow(f func(now time.Time, usage []gpu.Usage)) {
	nc.Sampler.Observe(func(now time.Time, usage []gpu.Usage) { f(now, nc.oursUsed(usage)) })
}

// Usable is the memory of a card less the driver's reserve, 0 for one that is not
// offered.
func (nc *Cards) Usable(uuid string) int64 {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	return nc.usable[uuid]
}

// Offer adds to a hello what the node offers of its cards, how each is, and what is
// wrong with the node.
func (nc *Cards) Offer(ctx context.Context, h *nodev1.Hello) {
	if nc.cfg.GPUs == nil {
		return
	}
	cards, err := nc.cfg.GPUs.Inventory(ctx)
	if err != nil {
		// A card that cannot be read is not offered; the others are.
		nc.log.ErrorContext(ctx, "cannot read every GPU", "err", err)
	}
	h.Gpus = nc.sell(ctx, nc.offered(ctx, caps.Sold(nc.ours(ctx, cards))))
	nc.describeCards(h)
}

// States gathers what different watchers find of the cards: each speaks for
// itself under a name, and takes back only what it said. It is safe for
// concurrent use and never blocks.
type States struct {
	// changed holds a token when the leader does not know the newest.
	Changed chan struct{}

	mu      sync.Mutex
	found   map[string]map[string]finding // by card, then by who says so
	problem map[string]string             // of the node, by who says so
}

type finding struct {
	state State
	why   string
}

func newCardStates() *States {
	return &States{
		Changed: make(chan struct{}, 1), found: map[string]map[string]finding{}, problem: map[string]string{},
	}
}

// Set records what who finds of a card; GPUOK takes it back. It reports
// whether that is news.
func (c *States) Set(uuid, who string, state State, why string) bool {
	why = strings.ToValidUTF8(why, "?") // a program may have said it
	c.mu.Lock()
	defer c.mu.Unlock()
	was, had := c.found[uuid][who]
	switch {
	case state <= OK && !had, had && was == finding{state, why}:
		return false
	case state <= OK:
		delete(c.found[uuid], who)
	default:
		if c.found[uuid] == nil {
			c.found[uuid] = map[string]finding{}
		}
		c.found[uuid][who] = finding{state, why}
	}
	c.tell()
	return true
}

// SetProblem records what who finds wrong with the node as a whole; "" takes
// it back.
func (c *States) SetProblem(who, why string) {
	why = strings.ToValidUTF8(why, "?")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem[who] == why {
		return
	}
	if c.problem[who] = why; why == "" {
		delete(c.problem, who)
	}
	c.tell()
}

func (c *States) tell() {
	select {
	case c.Changed <- struct{}{}:
	default:
	}
}

// Again has the leader told anew how the cards are.
func (c *States) Again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell()
}

// TakeChanged takes the token of changed; false when there was none.
func (c *States) TakeChanged() bool {
	select {
	case <-c.Changed:
		return true
	default:
		return false
	}
}

// Get returns the state of a card and why.
func (c *States) Get(uuid string) (State, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []finding
	for _, f := range c.found[uuid] {
		all = append(all, f)
	}
	if len(all) == 0 {
		return OK, ""
	}
	slices.SortFunc(all, func(a, b finding) int { return cmp.Or(cmp.Compare(b.state, a.state), cmp.Compare(a.why, b.why)) })
	var why []string
	for _, f := range all {
		if f.why != "" && !slices.Contains(why, f.why) {
			why = append(why, f.why)
		}
	}
	return all[0].state, strings.Join(why, "; ")
}

// saidBy returns the cards of which who says something, sorted.
func (c *States) saidBy(who string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for uuid, all := range c.found {
		if _, ok := all[who]; ok {
			out = append(out, uuid)
		}
	}
	slices.Sort(out)
	return out
}

// Count counts the node's cards by state, those that are there now.
func (nc *Cards) Count() map[string]int {
	out := map[string]int{"ok": 0, "unknown": 0, "quarantined": 0, "failing": 0, "lost": 0}
	nc.mu.Lock()
	usable := nc.usable
	nc.mu.Unlock()
	for uuid := range usable {
		state, _ := nc.States.Get(uuid)
		out[strings.ToLower(strings.TrimPrefix(state.String(), "GPU_STATE_"))]++
	}
	return out
}

// problems returns what is wrong with the node, "" for nothing.
func (c *States) problems() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, why := range c.problem {
		out = append(out, why)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// describeCards adds to h how the cards are.
func (nc *Cards) describeCards(h *nodev1.Hello) {
	h.Problem = nc.States.problems()
	for _, g := range h.Gpus {
		if g.State, g.StateReason = nc.States.Get(g.Uuid); g.State == OK {
			g.State = nodev1.GPUState_GPU_STATE_UNSPECIFIED
		}
	}
}

// WatchProvider follows what the provider says of its cards, where it does.
func (nc *Cards) WatchProvider(ctx context.Context) error {
	src, ok := nc.cfg.GPUs.(gpu.StateSource)
	if !ok {
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		for _, s := range src.States() {
			state := OK
			switch s.State {
			case gpu.StateUnknown:
				state = Unknown
			case gpu.StateLost:
				state = Lost
			}
			if nc.States.Set(s.UUID, "driver", state, s.Reason) {
				nc.log.WarnContext(ctx, "state of a GPU changed", "gpu", s.UUID, "state", s.State.String(), "why", s.Reason)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-src.Changed():
			nc.States.Again() // the inventory may be what changed
		}
	}
}

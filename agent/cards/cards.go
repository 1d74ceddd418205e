// Package cards manages the GPUs of an agent's node: which are offered, the state of each,
// their usage, what attempts are granted, and whether they pass the site's checks.
package cards

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// State is the state of a GPU as the agent sees it; see the wire's GPUState. If several apply
// at once, the highest is reported, with all the reasons.
type State = nodev1.GPUState

// The states of a GPU, each hiding those before it.
const (
	OK          = nodev1.GPUState_GPU_STATE_OK
	Unknown     = nodev1.GPUState_GPU_STATE_UNKNOWN
	Quarantined = nodev1.GPUState_GPU_STATE_QUARANTINED
	Failing     = nodev1.GPUState_GPU_STATE_FAILING
	Lost        = nodev1.GPUState_GPU_STATE_LOST
)

// Config configures Cards; every field but Log may be empty.
type Config struct {
	// GPUs is nil on a node without GPUs, Devices where GPUs have no device nodes.
	GPUs    gpu.Provider
	Devices Devices
	// Only names the GPUs that Berth may use; empty means all.
	Only gpu.Offer
	// Recut lets the leader replace the instances of GPUs in MIG mode.
	Recut bool
	// Choose returns how the shares of a GPU are enforced; nil means CapMode for all.
	Choose  func(gpu.Card) caps.Choice
	CapMode string
	// Watch says when an attempt above its share is ended.
	Watch caps.WatchConfig
	Log   *slog.Logger
}

// Cards are the GPUs of a node: which are offered, their state, their usage and what attempts
// are granted. It is safe for concurrent use.
type Cards struct {
	cfg     Config
	log     *slog.Logger
	States  *States
	Sampler *Sampler
	Mem     *MemWatch
	strays  *strayWatch
	recheck chan struct{} // see WatchDevices

	mu sync.Mutex
	// usable is the memory of each GPU less the driver's reserve, by UUID, as in the last
	// hello; replaced, never changed.
	usable map[string]int64
	// modes is how the shares of each GPU are enforced, likewise.
	modes map[string]caps.Mode
	// foreign are the GPUs that Berth may not use, likewise; nil before the first hello.
	foreign map[string]struct{}
	kept    map[string]string // why a GPU is withheld from the offer, by UUID
}

// New returns the Cards that s samples.
func New(cfg Config, s *Sampler) *Cards {
	nc := &Cards{cfg: cfg, log: cfg.Log, States: newCardStates(), Sampler: s, Mem: newMemWatch(cfg.Watch), recheck: make(chan struct{}, 1)}
	nc.strays = newStrayWatch(cfg.Log, nc.States.Again)
	return nc
}

// FollowStrays has the sampler report processes that were not started here.
func (nc *Cards) FollowStrays() { nc.Follow(nc.strays.observe) }

// Follow has the sampler call f with the GPUs that Berth may use; see Sampler.Observe.
func (nc *Cards) Follow(f func(now time.Time, usage []gpu.Usage)) {
	nc.Sampler.Observe(func(now time.Time, usage []gpu.Usage) { f(now, nc.oursUsed(usage)) })
}

// Usable returns the memory of a GPU less the driver's reserve, 0 for one that is not offered.
func (nc *Cards) Usable(uuid string) int64 {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	return nc.usable[uuid]
}

// Offer adds to a hello what the node offers of its GPUs, the state of each, and what is wrong
// with the node.
func (nc *Cards) Offer(ctx context.Context, h *nodev1.Hello) {
	if nc.cfg.GPUs == nil {
		return
	}
	cards, err := nc.cfg.GPUs.Inventory(ctx)
	if err != nil {
		// A GPU that cannot be read is not offered; the others are.
		nc.log.ErrorContext(ctx, "cannot read every GPU", "err", err)
	}
	cards = nc.ours(ctx, cards)
	h.Gpus, h.MigCards = nc.sell(ctx, nc.offered(ctx, caps.Sold(cards))), nc.migCards(cards)
	if len(cards) > 0 && cards[0].Driver != gpu.DriverSimulated {
		h.Driver = cards[0].Driver // one for all
	}
	nc.describeCards(h)
}

// States collects what different watchers report about the GPUs: each reports under its own
// name, and revokes only its own reports. It is safe for concurrent use and never blocks.
type States struct {
	// Changed holds a token when the leader does not know the latest.
	Changed chan struct{}

	mu      sync.Mutex
	found   map[string]map[string]finding // by GPU, then by watcher
	problem map[string]string             // of the node, by watcher
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

// Set records who's finding about a GPU; GPUOK revokes it. It reports whether that is news.
func (c *States) Set(uuid, who string, state State, why string) bool {
	why = plain(why)
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

// SetProblem records who's finding about the node as a whole; "" revokes it.
func (c *States) SetProblem(who, why string) {
	why = plain(why)
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

// plain returns what may come from a program as printable text of one line.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

func (c *States) tell() { wait.Poke(c.Changed) }

// Again has the state of the GPUs reported to the leader again.
func (c *States) Again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell()
}

// TakeChanged takes the token of Changed; false when there was none.
func (c *States) TakeChanged() bool {
	select {
	case <-c.Changed:
		return true
	default:
		return false
	}
}

// Get returns the state of a GPU and the reason.
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

// saidBy returns the GPUs with a finding by who, sorted.
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

// Count returns the number of present GPUs in each state.
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

// describeCards adds the state of the GPUs to h.
func (nc *Cards) describeCards(h *nodev1.Hello) {
	h.Problem = nc.States.problems()
	for _, g := range h.Gpus {
		if g.State, g.StateReason = nc.States.Get(g.Uuid); g.State == OK {
			g.State = nodev1.GPUState_GPU_STATE_UNSPECIFIED
		}
	}
}

// WatchProvider follows the GPU states that the provider reports, if it does.
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
			nc.States.Again() // the inventory may have changed
		}
	}
}

package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/berth-scheduler/berth/agent/gpu"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// GPUState is how an agent finds a card; see the wire's GPUState. Of several
// that hold at once the highest is told, with all the reasons.
type GPUState = nodev1.GPUState

// The states of a card, in the order in which one hides another.
const (
	GPUOK          = nodev1.GPUState_GPU_STATE_OK
	GPUUnknown     = nodev1.GPUState_GPU_STATE_UNKNOWN
	GPUQuarantined = nodev1.GPUState_GPU_STATE_QUARANTINED
	GPUFailing     = nodev1.GPUState_GPU_STATE_FAILING
	GPULost        = nodev1.GPUState_GPU_STATE_LOST
)

// cardStates gathers what different watchers find of the cards: each speaks for
// itself under a name, and takes back only what it said. It is safe for
// concurrent use and never blocks.
type cardStates struct {
	// changed holds a token when the leader does not know the newest.
	changed chan struct{}

	mu      sync.Mutex
	found   map[string]map[string]finding // by card, then by who says so
	problem map[string]string             // of the node, by who says so
}

type finding struct {
	state GPUState
	why   string
}

func newCardStates() *cardStates {
	return &cardStates{
		changed: make(chan struct{}, 1), found: map[string]map[string]finding{}, problem: map[string]string{},
	}
}

// set records what who finds of a card; GPUOK takes it back. It reports
// whether that is news.
func (c *cardStates) set(uuid, who string, state GPUState, why string) bool {
	why = strings.ToValidUTF8(why, "?") // a program may have said it
	c.mu.Lock()
	defer c.mu.Unlock()
	was, had := c.found[uuid][who]
	switch {
	case state <= GPUOK && !had, had && was == finding{state, why}:
		return false
	case state <= GPUOK:
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

// setProblem records what who finds wrong with the node as a whole; "" takes
// it back.
func (c *cardStates) setProblem(who, why string) {
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

func (c *cardStates) tell() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// again has the leader told anew how the cards are.
func (c *cardStates) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell()
}

// takeChanged takes the token of changed; false when there was none.
func (c *cardStates) takeChanged() bool {
	select {
	case <-c.changed:
		return true
	default:
		return false
	}
}

// get returns the state of a card and why.
func (c *cardStates) get(uuid string) (GPUState, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []finding
	for _, f := range c.found[uuid] {
		all = append(all, f)
	}
	if len(all) == 0 {
		return GPUOK, ""
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
func (c *cardStates) saidBy(who string) []string {
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

// CardStates counts the node's cards by state, those that are there now.
func (a *Agent) CardStates() map[string]int {
	out := map[string]int{"ok": 0, "unknown": 0, "quarantined": 0, "failing": 0, "lost": 0}
	a.mu.Lock()
	usable := a.usable
	a.mu.Unlock()
	for uuid := range usable {
		state, _ := a.cards.get(uuid)
		out[strings.ToLower(strings.TrimPrefix(state.String(), "GPU_STATE_"))]++
	}
	return out
}

// problems returns what is wrong with the node, "" for nothing.
func (c *cardStates) problems() string {
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
func (a *Agent) describeCards(h *nodev1.Hello) {
	h.Problem = a.cards.problems()
	for _, g := range h.Gpus {
		if g.State, g.StateReason = a.cards.get(g.Uuid); g.State == GPUOK {
			g.State = nodev1.GPUState_GPU_STATE_UNSPECIFIED
		}
	}
}

// helloStream is the sending side of a session.
type helloStream interface {
	Send(*nodev1.SessionRequest) error
}

// sendHello tells the leader anew what the node has.
func (a *Agent) sendHello(ctx context.Context, s helloStream) error {
	h, err := a.hello(ctx)
	if err != nil {
		return err
	}
	if err := s.Send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: h}}); err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	return nil
}

// watchProvider follows what the provider says of its cards, where it does.
func (a *Agent) watchProvider(ctx context.Context) error {
	src, ok := a.cfg.GPUs.(gpu.StateSource)
	if !ok {
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		for _, s := range src.States() {
			state := GPUOK
			switch s.State {
			case gpu.StateUnknown:
				state = GPUUnknown
			case gpu.StateLost:
				state = GPULost
			}
			if a.cards.set(s.UUID, "driver", state, s.Reason) {
				a.log.WarnContext(ctx, "state of a GPU changed", "gpu", s.UUID, "state", s.State.String(), "why", s.Reason)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-src.Changed():
			a.cards.again() // the inventory may be what changed
		}
	}
}

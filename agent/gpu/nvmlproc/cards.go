package nvmlproc

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// cards is what is known of every GPU that the driver ever listed. It is safe for
// concurrent use.
type cards struct {
	log     *slog.Logger
	misses  int // consecutive looks without the GPU before it is unknown or lost
	events  *eventQueue
	changed chan struct{}

	mu   sync.Mutex
	by   map[string]*cardInfo
	news bool // the driver listed other GPUs or instances than the inventory
}

// cardInfo is one GPU.
type cardInfo struct {
	card   gpu.Card
	state  gpu.CardState
	missed int
	warned bool // about its persistence mode

}

func newCards(misses int, log *slog.Logger) *cards {
	return &cards{log: log, misses: misses, changed: make(chan struct{}, 1), by: map[string]*cardInfo{}}
}

// look takes over an inventory.
func (c *cards) look(found []gpu.Card, faults []fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make(map[string]struct{}, len(found))
	for i := range found {
		card := found[i]
		seen[card.UUID] = struct{}{}
		in := c.by[card.UUID]
		if in == nil {
			in = &cardInfo{state: gpu.CardState{UUID: card.UUID}}
			c.by[card.UUID] = in
		}
		if !reflect.DeepEqual(in.card, card) {
			c.tell()
		}
		in.card = card
		if card.Persistence == gpu.ModeOff && !in.warned {
			in.warned = true
			c.log.Warn("persistence mode is off: the driver forgets the card's settings and is slow when the last process ends; enable nvidia-persistenced",
				"gpu", card.UUID)
		}
	}
	c.news = false
	c.settle(seen, faults)
}

// glance takes over which GPUs the driver answered for.
func (c *cards) glance(uuids []string, faults []fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make(map[string]struct{}, len(uuids))
	parts := 0
	for _, in := range c.by {
		parts += len(in.card.Instances)
	}
	for _, uuid := range uuids {
		seen[uuid] = struct{}{}
		if c.of(uuid) != nil {
			if c.by[uuid] == nil {
				parts--
			}
			continue
		}
		if !c.news {
			c.news = true
			c.tell()
		}
	}
	if parts > 0 && len(faults) == 0 && !c.news { // an instance is gone
		c.news = true
		c.tell()
	}
	c.settle(seen, faults)
}

// of returns the GPU with the given UUID, or the one with that instance, or nil. The caller
// holds c.mu.
func (c *cards) of(uuid string) *cardInfo {
	if in := c.by[uuid]; in != nil {
		return in
	}
	for _, in := range c.by {
		if slices.ContainsFunc(in.card.Instances, func(i gpu.Instance) bool { return i.UUID == uuid }) {
			return in
		}
	}
	return nil
}

// settle evaluates a completed look: a GPU that was seen is OK, one that the driver reports
// as lost is lost, and one that is missing several times in a row is unknown if there was
// an error, and lost if there was none.
func (c *cards) settle(seen map[string]struct{}, faults []fault) {
	named := make(map[string]fault, len(faults))
	var nameless []fault
	for _, f := range faults {
		if f.UUID != "" {
			named[f.UUID] = f
		} else {
			nameless = append(nameless, f)
		}
	}
	for uuid, in := range c.by {
		if _, ok := seen[uuid]; ok {
			in.missed = 0
			c.set(in, gpu.StateOK, "")
			continue
		}
		in.missed++
		f, ok := named[uuid]
		if !ok && len(nameless) > 0 {
			// The driver named no GPU: it is one of those that are missing.
			f, ok = nameless[0], true
			for _, n := range nameless {
				f.Lost = f.Lost && n.Lost
			}
		}
		switch {
		case ok && f.Lost:
			c.set(in, gpu.StateLost, "the driver says: "+oneLine(f.Text, 256))
		case in.missed < c.misses:
		case ok:
			c.set(in, gpu.StateUnknown, fmt.Sprintf("could not be read %d times in a row: %s", in.missed, oneLine(f.Text, 256)))
		default:
			c.set(in, gpu.StateLost, "the driver no longer shows it")
		}
	}
}

// silent makes every GPU unknown except lost ones.
func (c *cards) silent(why string) {
	why = oneLine(why, 256)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, in := range c.by {
		if in.state.State == gpu.StateOK {
			c.set(in, gpu.StateUnknown, why)
		}
	}
}

// set changes the state of a GPU. The caller holds c.mu.
func (c *cards) set(in *cardInfo, to gpu.State, why string) {
	if in.state.State == to {
		return
	}
	in.state = gpu.CardState{UUID: in.card.UUID, State: to, Reason: why}
	c.log.Warn("state of a GPU", "gpu", in.card.UUID, "state", to.String(), "why", why)
	if to == gpu.StateLost {
		c.events.put(gpu.Event{At: time.Now(), UUID: in.card.UUID, Kind: gpu.EventLost, Detail: why})
	}
	c.tell()
}

func (c *cards) tell() { wait.Poke(c.changed) }

// inventory returns every GPU, those that answer in the driver's order, then the others.
func (c *cards) inventory() []gpu.Card {
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := func(in *cardInfo) int { return int(min(in.state.State, 1)) }
	ins := slices.SortedFunc(maps.Values(c.by), func(a, b *cardInfo) int {
		return cmp.Or(silent(a)-silent(b), a.card.Index-b.card.Index, cmp.Compare(a.card.UUID, b.card.UUID))
	})
	out := make([]gpu.Card, 0, len(ins))
	for _, in := range ins {
		card := in.card
		card.Instances = slices.Clone(card.Instances)
		out = append(out, card)
	}
	return out
}

// unseen joins an error for each GPU that is not OK.
func (c *cards) unseen() error {
	var errs []error
	for _, s := range c.states() {
		switch s.State {
		case gpu.StateUnknown:
			errs = append(errs, fmt.Errorf("%w: %s: %s", gpu.ErrSilent, s.UUID, s.Reason))
		case gpu.StateLost:
			errs = append(errs, fmt.Errorf("%w: %s: %s", gpu.ErrLost, s.UUID, s.Reason))
		}
	}
	return errors.Join(errs...)
}

// states returns the state of every GPU, by UUID.
func (c *cards) states() []gpu.CardState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]gpu.CardState, 0, len(c.by))
	for _, in := range c.by {
		out = append(out, in.state)
		for _, part := range in.card.Instances {
			s := in.state
			s.UUID = part.UUID
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b gpu.CardState) int { return cmp.Compare(a.UUID, b.UUID) })
	return out
}

// usable says why no attempt may start on a GPU.
func (c *cards) usable(uuid string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.of(uuid)
	switch {
	case in == nil:
		return fmt.Errorf("%w: %s, which the driver does not show", gpu.ErrUnknownCard, uuid)
	case in.state.State == gpu.StateLost:
		return fmt.Errorf("%w: %s: %s", gpu.ErrLost, uuid, in.state.Reason)
	case in.state.State == gpu.StateUnknown:
		return fmt.Errorf("%w: %s: %s", gpu.ErrSilent, uuid, in.state.Reason)
	}
	return nil
}

// eventQueue passes events to one reader and drops the oldest when the reader is slow. Its
// methods are safe for concurrent use.
type eventQueue struct {
	mu     sync.Mutex
	out    chan gpu.Event
	closed bool
}

// queuedEvents is more than a node with healthy GPUs has in a year.
const queuedEvents = 256

func newEventQueue() *eventQueue { return &eventQueue{out: make(chan gpu.Event, queuedEvents)} }

func (q *eventQueue) put(e gpu.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		select {
		case q.out <- e:
			return
		default:
		}
		select {
		case <-q.out:
		default:
		}
	}
}

func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	close(q.out)
}

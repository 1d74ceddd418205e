package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/sim/wire"
)

// block divides every account, so that every figure in MiB is exact.
const block = wire.Block

// maxClients bounds the processes of one attempt.
const maxClients = 64

// bank keeps the accounts of a node's GPUs. It is a pure state machine: it has no clock, no
// lock and no I/O, and only advance moves time.
type bank struct {
	now    time.Duration // since the bank was opened
	cards  []*card
	grants map[string]*grant
	// unenforced lets attempts take more than their share while memory is left.
	unenforced bool
	clients    []*client // in order of arrival, so that equal histories give equal accounts
}

// card is one simulated GPU.
//
//	used = Σ held of its tallies = Σ contexts and allocations of its clients
//	used ≤ capacity
type card struct {
	info     gpu.Card
	of       *card     // the GPU of which it is an instance, nil for a GPU
	piece    gpu.Piece // which instance it is
	part     int64     // of the GPU's compute, in thousandths
	model    model
	capacity int64 // bytes available to processes
	context  int64 // bytes that each client's context takes
	used     int64
	load     int64 // Σ requested utilization, may exceed 1000
	busy     meter
	tallies  []*tally // of the grants on it
	set      setting
	// counted is the energy in millijoules beyond idle consumption under earlier limits: up to
	// upTo milliseconds of full load.
	counted, upTo int64
}

// grant is an admitted attempt.
type grant struct {
	gpu.Grant
	tallies []*tally // in the order of Grant.Cards
	clients int
}

// tally is the account of one attempt on one GPU.
type tally struct {
	grant *grant
	card  *card
	// cap is the most it may hold, contexts included; 0 means that only the GPU limits it.
	cap int64
	// most is what it may hold while that memory is promised to no other attempt; 0 means cap.
	most       int64
	loose      bool // the cap is only a promise: see bank.unenforced
	held, peak int64
	since      time.Duration
	busy       meter
	oom        bool
}

// client is one process on one or more GPUs.
type client struct {
	pid    int
	grant  *grant
	cards  []*tally // as its hello named them
	held   []int64  // per entry of cards
	allocs map[uint32]wire.Alloc
	run    *run
}

// refusal is a request that the bank did not grant.
type refusal struct {
	code wire.Code
	msg  string
	mem  *wire.Memory
}

func refuse(code wire.Code, format string, args ...any) *refusal {
	return &refusal{code: code, msg: fmt.Sprintf(format, args...)}
}

// admit opens the accounts of g. Repeating the same grant changes nothing.
func (b *bank) admit(g gpu.Grant) error {
	if err := g.Validate(); err != nil {
		return err
	}
	if old, ok := b.grants[g.Attempt]; ok {
		if old.UID == g.UID && slices.Equal(old.Cards, g.Cards) {
			return nil
		}
		return fmt.Errorf("%s is admitted with another grant; retire it first", g.Attempt)
	}
	gr := &grant{Grant: g}
	gr.Cards = slices.Clone(g.Cards)
	for _, gc := range gr.Cards {
		c := b.card(gc.UUID)
		if c == nil {
			return fmt.Errorf("%w: %s asks for %s, which this node does not have", gpu.ErrUnknownCard, g.Attempt, gc.UUID)
		}
		t := &tally{grant: gr, card: c, since: b.now}
		if !gc.Exclusive {
			t.cap, t.most = gc.MemMiB<<20, gc.GrantedMiB<<20
		}
		t.loose = b.unenforced
		if err := c.fits(t, gc); err != nil {
			return err
		}
		gr.tallies = append(gr.tallies, t)
	}
	for _, t := range gr.tallies {
		t.card.tallies = append(t.card.tallies, t)
	}
	b.grants[g.Attempt] = gr
	return nil
}

// regrant changes the caps of an admitted attempt, on all its GPUs or on none.
func (b *bank) regrant(g gpu.Grant) error {
	if err := g.Validate(); err != nil {
		return err
	}
	gr := b.grants[g.Attempt]
	if gr == nil {
		return nil
	}
	same := func(a, b gpu.GrantCard) bool { return a.UUID == b.UUID }
	if gr.UID != g.UID || !slices.EqualFunc(gr.Cards, g.Cards, same) {
		return fmt.Errorf("%s has other cards, or another user, than it is to be granted anew; retire it first", g.Attempt)
	}
	caps := make([]int64, len(gr.tallies))
	for i, t := range gr.tallies {
		if !g.Cards[i].Exclusive {
			caps[i] = g.Cards[i].MemMiB << 20
		}
		if err := t.card.fits(&tally{grant: gr, cap: caps[i]}, g.Cards[i]); err != nil {
			return err
		}
	}
	gr.Cards = slices.Clone(g.Cards)
	for i, t := range gr.tallies {
		t.cap, t.most = caps[i], gr.Cards[i].GrantedMiB<<20
	}
	return nil
}

// limit returns the most that an attempt may hold of its GPU now; 0 means that only the GPU
// limits it.
func (t *tally) limit() int64 {
	if t.cap == 0 || t.most <= t.cap {
		return t.cap
	}
	room := t.card.capacity
	for _, o := range t.card.tallies {
		if o != t {
			room -= max(o.cap, o.held)
		}
	}
	return min(t.most, max(t.cap, room))
}

// fits refuses a grant that could take memory promised to another: caps are worthless when
// their sum exceeds the GPU.
func (c *card) fits(t *tally, gc gpu.GrantCard) error {
	sum := t.cap
	for _, o := range c.tallies {
		if o.grant == t.grant {
			continue // it is granted again
		}
		if o.cap == 0 || gc.Exclusive {
			return fmt.Errorf("%w: %s on %s: exclusive use beside %s", gpu.ErrOvercommit, t.grant.Attempt, gc.UUID, o.grant.Attempt)
		}
		sum += max(o.cap, o.held) // one whose share was cut may hold more than its cap
	}
	if sum > c.capacity {
		return fmt.Errorf("%w: %s asks for %d MiB of %s: with %d other grants that is %d MiB of %d",
			gpu.ErrOvercommit, t.grant.Attempt, gc.MemMiB, gc.UUID, len(c.tallies), sum>>20, c.capacity>>20)
	}
	return nil
}

// retire closes the accounts of an attempt and ends its clients, which it returns.
func (b *bank) retire(attempt string) []*client {
	gr, ok := b.grants[attempt]
	if !ok {
		return nil
	}
	var ended []*client
	for _, cl := range slices.Clone(b.clients) {
		if cl.grant == gr {
			b.leave(cl)
			ended = append(ended, cl)
		}
	}
	for _, t := range gr.tallies {
		t.card.tallies = slices.DeleteFunc(t.card.tallies, func(o *tally) bool { return o == t })
	}
	delete(b.grants, attempt)
	return ended
}

// join opens a client with a context on each GPU, and restores what h restates: all or nothing.
func (b *bank) join(pid int, h *wire.Hello) (*client, *refusal) {
	gr, ok := b.grants[h.Attempt]
	if !ok {
		return nil, refuse(wire.CodeUnknown, "attempt %s is not known here", h.Attempt)
	}
	if gr.clients >= maxClients {
		return nil, refuse(wire.CodeDenied, "attempt %s already has %d processes on its cards", h.Attempt, maxClients)
	}
	cl := &client{pid: pid, grant: gr, allocs: map[uint32]wire.Alloc{}}
	for _, uuid := range h.Cards {
		i := slices.IndexFunc(gr.tallies, func(t *tally) bool { return t.card.info.UUID == uuid })
		if i < 0 || slices.Contains(cl.cards, gr.tallies[i]) {
			return nil, refuse(wire.CodeDenied, "GPU %s is not granted to %s, or named twice", uuid, h.Attempt)
		}
		cl.cards = append(cl.cards, gr.tallies[i])
	}
	cl.held = make([]int64, len(cl.cards))
	b.clients = append(b.clients, cl)
	gr.clients++
	for i, t := range cl.cards {
		if ref := cl.take(i, t.card.context); ref != nil {
			b.leave(cl)
			return nil, ref
		}
	}
	for _, a := range h.Held {
		if ref := cl.alloc(a); ref != nil {
			b.leave(cl)
			return nil, ref
		}
	}
	return cl, nil
}

// leave ends a client and returns all memory that it held.
func (b *bank) leave(cl *client) {
	i := slices.Index(b.clients, cl)
	if i < 0 {
		return // already gone, by retire
	}
	b.stop(cl)
	b.clients = slices.Delete(b.clients, i, i+1)
	cl.grant.clients--
	for i, n := range cl.held {
		cl.give(i, n)
	}
	clear(cl.allocs)
}

// alloc makes one allocation for a client.
func (cl *client) alloc(a wire.Alloc) *refusal {
	if a.Card >= len(cl.cards) {
		return refuse(wire.CodeBad, "card %d of %d", a.Card, len(cl.cards))
	}
	if _, dup := cl.allocs[a.ID]; dup {
		return refuse(wire.CodeBad, "allocation %d exists", a.ID)
	}
	if len(cl.allocs) >= wire.MaxAllocs {
		return refuse(wire.CodeBad, "a process has at most %d allocations", wire.MaxAllocs)
	}
	if ref := cl.take(a.Card, roundUp(a.Bytes)); ref != nil {
		return ref
	}
	cl.allocs[a.ID] = a
	return nil
}

// free ends one allocation and returns its GPU's position.
func (cl *client) free(id uint32) (int, *refusal) {
	a, ok := cl.allocs[id]
	if !ok {
		return 0, refuse(wire.CodeBad, "no allocation %d", id)
	}
	delete(cl.allocs, id)
	cl.give(a.Card, roundUp(a.Bytes))
	return a.Card, nil
}

// take charges n bytes to the client, its attempt and the GPU, or to none of them.
func (cl *client) take(i int, n int64) *refusal {
	t := cl.cards[i]
	c := t.card
	over := ""
	switch {
	case t.cap != 0 && !t.loose && t.held+n > t.limit():
		over = "the job's cap"
	case c.used+n > c.capacity:
		over = "the card"
	}
	if over != "" {
		t.oom = true
		ref := refuse(wire.CodeOOM, "out of memory: %d bytes are more than %s has left", n, over)
		ref.mem = cl.memory(i)
		ref.mem.AskedBytes = n
		return ref
	}
	cl.held[i] += n
	t.held += n
	c.used += n
	t.peak = max(t.peak, t.held)
	return nil
}

func (cl *client) give(i int, n int64) {
	t := cl.cards[i]
	cl.held[i] -= n
	t.held -= n
	t.card.used -= n
	if cl.held[i] < 0 || t.held < 0 || t.card.used < 0 {
		panic("sim: an account below zero")
	}
}

// memory describes GPU i as the client's attempt sees it.
func (cl *client) memory(i int) *wire.Memory {
	t := cl.cards[i]
	return &wire.Memory{
		Card:       i,
		TotalBytes: t.card.info.MemMiB << 20,
		FreeBytes:  t.card.capacity - t.card.used,
		HeldBytes:  t.held,
		CapBytes:   t.limit(),
	}
}

func (b *bank) card(uuid string) *card {
	i := slices.IndexFunc(b.cards, func(c *card) bool { return c.info.UUID == uuid })
	if i < 0 {
		return nil
	}
	return b.cards[i]
}

var errNoAttempt = errors.New("attempt is not admitted")

func (b *bank) account(attempt string) ([]gpu.Account, error) {
	gr, ok := b.grants[attempt]
	if !ok {
		return nil, fmt.Errorf("%s: %w", attempt, errNoAttempt)
	}
	var out []gpu.Account
	for _, t := range gr.tallies {
		out = append(out, gpu.Account{
			UUID: t.card.info.UUID, MemMiB: t.held >> 20, PeakMiB: t.peak >> 20,
			Busy: t.busy.total, Elapsed: b.now - t.since, OOM: t.oom,
		})
	}
	return out, nil
}

// usage reports every GPU.
func (b *bank) usage() []gpu.Usage {
	var out []gpu.Usage
	for _, c := range b.cards {
		util := min(c.load, fullLoad)
		u := gpu.Usage{
			UUID: c.info.UUID, UsedMiB: c.used >> 20, UtilMilli: util,
			PowerW: c.model.idleW + (c.limitW()-c.model.idleW)*util/fullLoad, TemperatureC: idleC + (loadC-idleC)*util/fullLoad,
			MemActivityMilli: gpu.Unknown,
			EnergyMJ:         c.energyMJ(b.now),
		}
		seen := map[*tally]struct{}{}
		for _, cl := range b.clients {
			for i, t := range cl.cards {
				if t.card != c {
					continue
				}
				seen[t] = struct{}{}
				u.Processes = append(u.Processes, gpu.Process{
					PID: cl.pid, Attempt: cl.grant.Attempt, MemMiB: cl.held[i] >> 20,
					UtilMilli: cl.effective(c), PeakMiB: t.peak >> 20, OOM: t.oom, Kinds: gpu.Compute,
				})
			}
		}
		for _, t := range c.tallies {
			if _, live := seen[t]; !live && (t.peak > 0 || t.oom) {
				u.Processes = append(u.Processes, gpu.Process{Attempt: t.grant.Attempt, PeakMiB: t.peak >> 20, OOM: t.oom})
			}
		}
		slices.SortStableFunc(u.Processes, func(a, b gpu.Process) int { return a.PID - b.PID })
		out = append(out, u)
	}
	return out
}

func roundUp(n int64) int64 { return (n + block - 1) / block * block }

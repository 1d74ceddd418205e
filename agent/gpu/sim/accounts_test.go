package sim

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/sim/wire"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// fataler is what a *testing.T and a *rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func mustBank(t fataler, specs ...Spec) *bank {
	t.Helper()
	b, err := newBank("n1", specs)
	if err != nil {
		t.Fatalf("open bank: %v", err)
	}
	return b
}

func mustAdmit(t fataler, b *bank, attempt string, cards ...gpu.GrantCard) {
	t.Helper()
	if err := b.admit(gpu.Grant{Attempt: attempt, Cards: cards}); err != nil {
		t.Fatalf("admit %s: %v", attempt, err)
	}
}

func mustJoin(t fataler, b *bank, attempt string, cards ...string) *client {
	t.Helper()
	cl, ref := b.join(7, &wire.Hello{Attempt: attempt, Cards: cards})
	if ref != nil {
		t.Fatalf("join %s: %v", attempt, ref)
	}
	return cl
}

func shared(i int, mib int64) gpu.GrantCard {
	return gpu.GrantCard{UUID: UUID("n1", i), MemMiB: mib, Milli: 300}
}

func TestCapsProtectTheNeighbour(t *testing.T) {
	t.Parallel()
	b := mustBank(t, Spec{Type: "T4", Count: 1})
	mustAdmit(t, b, "j1-a1", shared(0, 4096))
	mustAdmit(t, b, "j2-a1", shared(0, 8192))
	greedy := mustJoin(t, b, "j1-a1", UUID("n1", 0))
	modest := mustJoin(t, b, "j2-a1", UUID("n1", 0))

	if ref := greedy.alloc(wire.Alloc{ID: 1, Bytes: (4096 - 290) << 20}); ref != nil {
		t.Fatalf("a job was refused its own share: %v", ref)
	}
	ref := greedy.alloc(wire.Alloc{ID: 2, Bytes: 1})
	if ref == nil || ref.code != wire.CodeOOM || ref.mem.CapBytes != 4096<<20 {
		t.Fatalf("a job over its share was not refused: %+v", ref)
	}
	if ref := modest.alloc(wire.Alloc{ID: 1, Bytes: (8192 - 290) << 20}); ref != nil {
		t.Fatalf("the neighbour was refused its share: %v", ref)
	}
	want := []gpu.Account{{UUID: UUID("n1", 0), MemMiB: 4096, PeakMiB: 4096, OOM: true}}
	got, err := b.account("j1-a1")
	if err != nil {
		t.Fatalf("account: %v", err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("account of the greedy job (-want +got):\n%s", d)
	}
}

func TestEachProcessPaysItsContextFromTheShare(t *testing.T) {
	t.Parallel()
	b := mustBank(t, Spec{Type: "T4", Count: 1})
	mustAdmit(t, b, "j1-a1", shared(0, 781))
	mustJoin(t, b, "j1-a1", UUID("n1", 0))
	second := mustJoin(t, b, "j1-a1", UUID("n1", 0))
	if ref := second.alloc(wire.Alloc{ID: 1, Bytes: 200 << 20}); ref != nil {
		t.Fatalf("refused what the second context left: %v", ref)
	}
	if _, ref := b.join(9, &wire.Hello{Attempt: "j1-a1", Cards: []string{UUID("n1", 0)}}); ref == nil || ref.code != wire.CodeOOM {
		t.Fatalf("a third context passed the share: %+v", ref)
	}
	if got := len(b.clients); got != 2 {
		t.Errorf("a refused process is still counted: %d clients", got)
	}
}

func TestExclusiveHasTheCard(t *testing.T) {
	t.Parallel()
	b := mustBank(t, Spec{Type: "T4", Count: 1})
	mustAdmit(t, b, "j1-a1", gpu.GrantCard{UUID: UUID("n1", 0), MemMiB: 10, Exclusive: true})
	cl := mustJoin(t, b, "j1-a1", UUID("n1", 0))
	room := b.cards[0].capacity - b.cards[0].used
	if ref := cl.alloc(wire.Alloc{ID: 1, Bytes: room}); ref != nil {
		t.Fatalf("the card's only job was refused its memory: %v", ref)
	}
	if ref := cl.alloc(wire.Alloc{ID: 2, Bytes: 1}); ref == nil || ref.mem.FreeBytes != 0 || ref.mem.CapBytes != 0 {
		t.Fatalf("more memory than the card has: %+v", ref)
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	whole := gpu.GrantCard{UUID: UUID("n1", 0), Milli: 1000, Exclusive: true}
	for _, tc := range []struct {
		name          string
		first, second gpu.Grant
		want          error  // of the second, nil for none
		msg           string // part of its message
	}{
		{
			name:   "same again",
			first:  gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{shared(0, 100)}},
			second: gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{shared(0, 100)}},
		},
		{
			name:   "same attempt, other grant",
			first:  gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{shared(0, 100)}},
			second: gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{shared(0, 200)}},
			msg:    "retire it first",
		},
		{
			name:   "two shares that fill the card",
			first:  gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{shared(0, 7000)}},
			second: gpu.Grant{Attempt: "j2-a1", Cards: []gpu.GrantCard{shared(0, 15360-446-7000)}},
		},
		{
			name:   "two shares that pass the card",
			first:  gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{shared(0, 7000)}},
			second: gpu.Grant{Attempt: "j2-a1", Cards: []gpu.GrantCard{shared(0, 15360-446-7000+1)}},
			want:   gpu.ErrOvercommit, msg: "14915 MiB of 14914",
		},
		{
			name:   "beside an exclusive one",
			first:  gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{whole}},
			second: gpu.Grant{Attempt: "j2-a1", Cards: []gpu.GrantCard{shared(0, 1)}},
			want:   gpu.ErrOvercommit, msg: "exclusive use beside j1-a1",
		},
		{
			name:   "exclusive beside a shared one",
			first:  gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{shared(0, 1)}},
			second: gpu.Grant{Attempt: "j2-a1", Cards: []gpu.GrantCard{whole}},
			want:   gpu.ErrOvercommit, msg: "exclusive use",
		},
		{
			name:   "no such card",
			second: gpu.Grant{Attempt: "j2-a1", Cards: []gpu.GrantCard{shared(5, 1)}},
			want:   gpu.ErrUnknownCard, msg: "does not have",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := mustBank(t, Spec{Type: "T4", Count: 1})
			if tc.first.Attempt != "" {
				mustAdmit(t, b, tc.first.Attempt, tc.first.Cards...)
			}
			err := b.admit(tc.second)
			if tc.msg == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.msg) || (tc.want != nil && !errors.Is(err, tc.want)) {
				t.Fatalf("got error %v, want %v with %q", err, tc.want, tc.msg)
			}
		})
	}
}

func TestSpeed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		typ   string
		utils []int64
		want  []float64 // speed of each
	}{
		{"alone on the reference card", "A100-SXM4-80GB", []int64{1000}, []float64{1}},
		{"alone on a slower card", "RTX-3090", []int64{400}, []float64{0.6}},
		{"two that fit", "A100-SXM4-80GB", []int64{400, 500}, []float64{1 / 1.04, 1 / 1.032}},
		{"two that do not", "A100-SXM4-80GB", []int64{800, 800}, []float64{0.625 / 1.064, 0.625 / 1.064}},
		{"three on a slow card", "T4", []int64{1000, 1000, 500}, []float64{0.25 * 0.4 / 1.12, 0.25 * 0.4 / 1.12, 0.25 * 0.4 / 1.16}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := mustBank(t, Spec{Type: tc.typ, Count: 1})
			for i, u := range tc.utils {
				mustAdmit(t, b, fmt.Sprintf("j%d-a1", i+1), shared(0, 1000))
				b.start(mustJoin(t, b, fmt.Sprintf("j%d-a1", i+1), UUID("n1", 0)), &run{util: u, total: 1e12})
			}
			for i, cl := range b.clients {
				if got := cl.run.speed; math.Abs(got-tc.want[i]) > 1e-12 {
					t.Errorf("process %d: speed %v, want %v", i, got, tc.want[i])
				}
			}
		})
	}
}

// Two processes on one card: the second starts late and ends first. All times
// follow from the formula, to the nanosecond that a run's end is rounded up.
func TestAdvanceGoesFromEndToEnd(t *testing.T) {
	t.Parallel()
	b := mustBank(t, Spec{Type: "A100-SXM4-80GB", Count: 1})
	mustAdmit(t, b, "j1-a1", shared(0, 1000))
	mustAdmit(t, b, "j2-a1", shared(0, 1000))
	long, short := mustJoin(t, b, "j1-a1", UUID("n1", 0)), mustJoin(t, b, "j2-a1", UUID("n1", 0))

	b.start(long, &run{id: 1, util: 600, total: 10e9})
	if ends := b.advance(4 * time.Second); len(ends) != 0 {
		t.Fatalf("%d runs ended early", len(ends))
	}
	b.start(short, &run{id: 2, util: 400, total: 1e9})
	ends := b.advance(100 * time.Second) // one step over both ends
	if len(ends) != 2 || ends[0].client != short || ends[1].client != long {
		t.Fatalf("ends in the wrong order: %+v", ends)
	}
	// short: 1 s at 1/1.048. long meanwhile at 1/1.032, then alone.
	together := 1.048
	alone := 6 - together/1.032
	busy := 4*0.6 + together*1.0 + alone*0.6
	if got := b.cards[0].busy.total.Seconds(); math.Abs(got-busy) > 1e-7 {
		t.Errorf("card busy %.9f s, want %.9f", got, busy)
	}
	acc, err := b.account("j2-a1")
	if err != nil {
		t.Fatalf("account: %v", err)
	}
	if got, want := acc[0].Busy.Seconds(), together*0.4; math.Abs(got-want) > 1e-7 || acc[0].Elapsed != 100*time.Second {
		t.Errorf("short job: busy %.9f s of %v, want %.9f s of 100 s", got, acc[0].Elapsed, want)
	}
}

func TestMeterNeitherRoundsNorOverflows(t *testing.T) {
	t.Parallel()
	var odd meter
	for range 3000 {
		odd.add(333, 1)
	}
	if odd.total != 999 || odd.rest != 0 {
		t.Errorf("3000 ns at 333: %d ns and %d/1000, want 999 and 0", odd.total, odd.rest)
	}
	var long meter
	century := 100 * 365 * 24 * time.Hour
	long.add(1000, century)
	if long.total != century {
		t.Errorf("a century of a full card: %v, want %v", long.total, century)
	}
}

// requireBalance checks what must hold after every step.
func requireBalance(t *rapid.T, b *bank) {
	for i, c := range b.cards {
		var clients, tallies, load int64
		for _, cl := range b.clients {
			held := make([]int64, len(cl.cards))
			for j, tl := range cl.cards {
				held[j] += tl.card.context
			}
			for _, a := range cl.allocs {
				held[a.Card] += roundUp(a.Bytes)
			}
			for j, tl := range cl.cards {
				if held[j] != cl.held[j] {
					t.Fatalf("client's account says %d, its context and allocations are %d", cl.held[j], held[j])
				}
				if tl.card == c {
					clients += held[j]
					if cl.run != nil {
						load += cl.run.util
					}
				}
			}
		}
		for _, tl := range c.tallies {
			tallies += tl.held
			if tl.cap != 0 && tl.held > tl.cap {
				t.Fatalf("%s holds %d of %d on card %d", tl.grant.Attempt, tl.held, tl.cap, i)
			}
			if tl.held > tl.peak {
				t.Fatalf("peak %d below %d", tl.peak, tl.held)
			}
			if tl.busy.total > c.busy.total {
				t.Fatalf("%s was busier than its card: %v > %v", tl.grant.Attempt, tl.busy.total, c.busy.total)
			}
		}
		if clients != c.used || tallies != c.used || c.used > c.capacity || load != c.load {
			t.Fatalf("card %d: used %d, clients %d, attempts %d, capacity %d, load %d of %d",
				i, c.used, clients, tallies, c.capacity, c.load, load)
		}
		if c.busy.total > b.now {
			t.Fatalf("card %d was busy %v of %v", i, c.busy.total, b.now)
		}
	}
	for i, u := range b.usage() {
		var mem, util int64
		for _, p := range u.Processes {
			mem += p.MemMiB
			util += p.UtilMilli
		}
		if mem != u.UsedMiB || util > u.UtilMilli {
			t.Fatalf("card %d: processes use %d MiB and %d‰, the card %d MiB and %d‰", i, mem, util, u.UsedMiB, u.UtilMilli)
		}
	}
}

func TestAccountsBalance(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := mustBank(t, Spec{Type: "T4", Count: 2}, Spec{Type: "A100-SXM4-80GB", Count: 1})
		var nextID uint32
		step := map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				g := gpu.Grant{Attempt: fmt.Sprintf("j%d-a1", rapid.IntRange(1, 6).Draw(t, "job"))}
				for i := range 3 {
					if rapid.Bool().Draw(t, "on") {
						g.Cards = append(g.Cards, gpu.GrantCard{
							UUID: UUID("n1", i), MemMiB: rapid.Int64Range(1, 9000).Draw(t, "mib"),
							Exclusive: rapid.IntRange(0, 4).Draw(t, "excl") == 0,
						})
					}
				}
				_ = b.admit(g) // refusals are fine; the balance is checked
			},
			"retire": func(t *rapid.T) { b.retire(fmt.Sprintf("j%d-a1", rapid.IntRange(1, 6).Draw(t, "job"))) },
			"join": func(t *rapid.T) {
				gr, ok := b.grants[fmt.Sprintf("j%d-a1", rapid.IntRange(1, 6).Draw(t, "job"))]
				if !ok || len(gr.Cards) == 0 {
					t.Skip("no such attempt")
				}
				h := wire.Hello{Attempt: gr.Attempt}
				for _, c := range gr.Cards {
					h.Cards = append(h.Cards, c.UUID)
				}
				for range rapid.IntRange(0, 3).Draw(t, "held") {
					nextID++
					h.Held = append(h.Held, wire.Alloc{ID: nextID, Card: rapid.IntRange(0, len(h.Cards)-1).Draw(t, "card"), Bytes: rapid.Int64Range(1, 4<<30).Draw(t, "bytes")})
				}
				b.join(rapid.IntRange(2, 9).Draw(t, "pid"), &h)
			},
			"alloc": func(t *rapid.T) {
				cl := drawClient(t, b)
				nextID++
				cl.alloc(wire.Alloc{ID: nextID, Card: rapid.IntRange(0, len(cl.cards)).Draw(t, "card"), Bytes: rapid.Int64Range(1, 8<<30).Draw(t, "bytes")})
			},
			"free": func(t *rapid.T) {
				cl := drawClient(t, b)
				cl.free(rapid.Uint32Range(1, nextID+1).Draw(t, "id"))
			},
			"run": func(t *rapid.T) {
				cl := drawClient(t, b)
				if cl.run != nil {
					t.Skip("busy")
				}
				b.start(cl, &run{util: rapid.Int64Range(1, 1000).Draw(t, "util"), total: float64(rapid.Int64Range(0, 20e9).Draw(t, "work"))})
			},
			"stop":    func(t *rapid.T) { b.stop(drawClient(t, b)) },
			"leave":   func(t *rapid.T) { b.leave(drawClient(t, b)) },
			"advance": func(t *rapid.T) { b.advance(b.now + time.Duration(rapid.Int64Range(0, 10e9).Draw(t, "dt"))) },
			"":        func(t *rapid.T) { requireBalance(t, b) },
		}
		t.Repeat(step)
		for len(b.clients) > 0 {
			b.leave(b.clients[0])
		}
		for i, c := range b.cards {
			if c.used != 0 || c.load != 0 {
				t.Fatalf("card %d keeps %d bytes and load %d with nobody on it", i, c.used, c.load)
			}
		}
	})
}

func drawClient(t *rapid.T, b *bank) *client {
	if len(b.clients) == 0 {
		t.Skip("no client")
	}
	return b.clients[rapid.IntRange(0, len(b.clients)-1).Draw(t, "client")]
}

// Dividing time into other steps must not change what happened in it.
func TestAdvanceDoesNotDependOnSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		utils := rapid.SliceOfN(rapid.Int64Range(1, 1000), 1, 4).Draw(t, "utils")
		works := rapid.SliceOfN(rapid.Int64Range(1, 5e9), len(utils), len(utils)).Draw(t, "works")
		cuts := rapid.SliceOfN(rapid.Int64Range(0, 30e9), 0, 20).Draw(t, "cuts")
		outcome := func(cuts []int64) (order []uint64, busy time.Duration) {
			b := mustBank(t, Spec{Type: "A100-SXM4-80GB", Count: 1})
			for i, u := range utils {
				name := fmt.Sprintf("j%d-a1", i+1)
				mustAdmit(t, b, name, shared(0, 1000))
				b.start(mustJoin(t, b, name, UUID("n1", 0)), &run{id: uint64(i), util: u, total: float64(works[i])})
			}
			for _, c := range append(cuts, 60e9) {
				for _, e := range b.advance(max(b.now, time.Duration(c))) {
					order = append(order, e.run.id)
				}
			}
			return order, b.cards[0].busy.total
		}
		order, busy := outcome(nil)
		gotOrder, gotBusy := outcome(cuts)
		if len(order) != len(utils) || len(gotOrder) != len(utils) {
			t.Fatalf("%d and %d of %d runs ended", len(order), len(gotOrder), len(utils))
		}
		// Ends round up to the nanosecond, so a few may differ.
		if d := (busy - gotBusy).Abs(); d > time.Microsecond {
			t.Fatalf("busy %v in one step, %v in %d", busy, gotBusy, len(cuts)+1)
		}
	})
}

package sim

import (
	"testing"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/sim/wire"
)

// TestUnenforcedCaps: without enforcement an attempt takes what the card has,
// at its neighbour's cost, and the accounts stay true.
func TestUnenforcedCaps(t *testing.T) {
	t.Parallel()
	b := mustBank(t, Spec{Type: "T4", Count: 1})
	b.unenforced = true
	mustAdmit(t, b, "j1-a1", shared(0, 2048))
	mustAdmit(t, b, "j2-a1", shared(0, 8192))
	greedy := mustJoin(t, b, "j1-a1", UUID("n1", 0))
	modest := mustJoin(t, b, "j2-a1", UUID("n1", 0))
	card := b.cards[0]
	room := card.capacity - card.used
	if ref := greedy.alloc(wire.Alloc{ID: 1, Bytes: room - 100<<20}); ref != nil {
		t.Fatalf("the card has room, the greedy one is refused: %v", ref)
	}
	if ref := modest.alloc(wire.Alloc{ID: 1, Bytes: 1 << 30}); ref == nil || ref.code != wire.CodeOOM {
		t.Errorf("the card is full, the modest one got %v", ref)
	}
	acc, err := b.account("j1-a1")
	if err != nil || acc[0].PeakMiB <= 2048 || acc[0].OOM {
		t.Errorf("account of the greedy one: %+v, %v", acc, err)
	}
	if used := greedy.held[0] + modest.held[0]; card.used != used || used > card.capacity {
		t.Errorf("used %d of %d, its clients hold %d", card.used, card.capacity, used)
	}
	// Grants are still refused when their sum passes the card.
	if err := b.admit(grantOf("j3-a1", 8192)); err == nil {
		t.Error("more was granted than the card has")
	}
}

// TestRegrant: a share that is cut makes room for others, what is held stays,
// and nothing more is granted than the card has.
func TestRegrant(t *testing.T) {
	t.Parallel()
	b := mustBank(t, Spec{Type: "T4", Count: 1})
	whole := shared(0, 8192)
	whole.Exclusive = true
	mustAdmit(t, b, "j1-a1", whole)
	cl := mustJoin(t, b, "j1-a1", UUID("n1", 0))
	if ref := cl.alloc(wire.Alloc{ID: 1, Bytes: 1 << 30}); ref != nil {
		t.Fatal(ref)
	}
	if err := b.admit(grantOf("j2-a1", 4096)); err == nil {
		t.Fatal("one was admitted beside an exclusive grant")
	}
	if err := b.regrant(grantOf("j1-a1", 2048)); err != nil {
		t.Fatalf("cut: %v", err)
	}
	mustAdmit(t, b, "j2-a1", shared(0, 8192))
	if ref := cl.alloc(wire.Alloc{ID: 2, Bytes: 1 << 30}); ref == nil || ref.code != wire.CodeOOM {
		t.Errorf("above the share that it was cut to it got %v", ref)
	}
	if cl.held[0] < 1<<30 {
		t.Errorf("it holds %d, what it held before is gone", cl.held[0])
	}
	if err := b.regrant(gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{whole}}); err == nil {
		t.Error("it was given the whole card back, on which there is another")
	}
	if err := b.regrant(grantOf("j1-a1", 4096)); err != nil {
		t.Errorf("back to what is free: %v", err)
	}
	if ref := cl.alloc(wire.Alloc{ID: 2, Bytes: 1 << 30}); ref != nil {
		t.Errorf("within the share that it has now: %v", ref)
	}
	if err := b.regrant(grantOf("j9-a1", 1024)); err != nil || b.grants["j9-a1"] != nil {
		t.Errorf("one that is not admitted: %v", err)
	}
	if err := b.regrant(gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-other", MemMiB: 1}}}); err == nil {
		t.Error("it was given another card")
	}
}

// TestCutShareGrows: an attempt whose share was cut may hold what it was granted, as far
// as nobody else is promised that, and never takes what is another's.
func TestCutShareGrows(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	b := mustBank(t, Spec{Type: "T4", Count: 1})
	room := (b.cards[0].capacity >> 20) - 8192
	mustAdmit(t, b, "j1-a1", shared(0, 8192))
	cl := mustJoin(t, b, "j1-a1", UUID("n1", 0))
	cut := gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: UUID("n1", 0), MemMiB: 2048, Milli: shared(0, 1).Milli, GrantedMiB: 8192}}}
	if err := b.regrant(cut); err != nil {
		t.Fatal(err)
	}
	if ref := cl.alloc(wire.Alloc{ID: 1, Bytes: 4 * gib}); ref != nil {
		t.Errorf("above what was left to it, with nobody beside it: %v", ref)
	}
	if ref := cl.alloc(wire.Alloc{ID: 2, Bytes: 4 * gib}); ref == nil || ref.mem.CapBytes != 8*gib {
		t.Errorf("above what it was granted: %v", ref)
	}
	if err := b.admit(grantOf("j2-a1", room+8192-4096)); err == nil {
		t.Error("what it holds was granted to another")
	}
	mustAdmit(t, b, "j2-a1", shared(0, room+2048))
	other := mustJoin(t, b, "j2-a1", UUID("n1", 0))
	if ref := cl.alloc(wire.Alloc{ID: 3, Bytes: 3 * gib}); ref == nil {
		t.Error("it took what another was granted")
	}
	if ref := cl.alloc(wire.Alloc{ID: 3, Bytes: gib}); ref != nil {
		t.Errorf("what is nobody's: %v", ref)
	}
	if ref := other.alloc(wire.Alloc{ID: 1, Bytes: room<<20 + gib}); ref != nil {
		t.Errorf("the other one is refused what it was granted: %v", ref)
	}
}

func grantOf(attempt string, mib int64) gpu.Grant {
	return gpu.Grant{Attempt: attempt, Cards: []gpu.GrantCard{shared(0, mib)}}
}

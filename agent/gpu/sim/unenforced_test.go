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

func grantOf(attempt string, mib int64) gpu.Grant {
	return gpu.Grant{Attempt: attempt, Cards: []gpu.GrantCard{shared(0, mib)}}
}

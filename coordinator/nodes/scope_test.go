package nodes

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

// TestScopesWaitForAllCoordinators: while an older coordinator may lead, cards
// that are shared among some users only are not shared at all.
func TestScopesWaitForAllCoordinators(t *testing.T) {
	t.Parallel()
	node := func() *cluster.Node {
		return &cluster.Node{ID: "n1", State: cluster.NodeReady, CPUMilli: 1, MemMiB: 1, GPUs: []cluster.GPU{
			{ID: "a", Type: "T4", MemMiB: 1, SellableMiB: 1, MaxShares: 3, CapMode: "watch", Scope: cluster.ScopeSameUser, CapReason: "dmem: no"},
			{ID: "b", Type: "T4", MemMiB: 1, SellableMiB: 1, MaxShares: 3, CapMode: "sim"},
		}}
	}
	for _, tc := range []struct {
		version uint32
		scope   cluster.Scope
		shares  int
		reason  string
	}{{7, cluster.ScopeAnyone, 1, ""}, {8, cluster.ScopeSameUser, 3, "dmem: no"}} {
		n := node()
		untilAgreed(n, tc.version)
		if g := n.GPUs[0]; g.Scope != tc.scope || g.MaxShares != tc.shares || g.CapReason != tc.reason {
			t.Errorf("version %d: %+v", tc.version, g)
		}
		if g := n.GPUs[1]; g.MaxShares != 3 {
			t.Errorf("version %d: a card for anyone %+v", tc.version, g)
		}
	}
}

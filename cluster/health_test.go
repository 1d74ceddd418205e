package cluster

import (
	"fmt"
	"testing"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		gpu   GPU
		order *GPUOrder
		why   string
	}{
		{"a sound card", GPU{ID: "g"}, nil, ""},
		{"one that was resumed", GPU{ID: "g"}, &GPUOrder{GPU: "g", Resumed: 9}, ""},
		{"another one is drained", GPU{ID: "g"}, &GPUOrder{GPU: "h", Drain: true}, ""},
		{"drained", GPU{ID: "g"}, &GPUOrder{GPU: "g", Drain: true}, "drained"},
		{"drained for a reason", GPU{ID: "g", State: GPULost}, &GPUOrder{GPU: "g", Drain: true, Reason: "fans"}, "drained: fans"},
		{"unknown", GPU{ID: "g", State: GPUUnknown}, nil, "unknown"},
		{"failing", GPU{ID: "g", State: GPUFailing, StateReason: "Xid 79"}, nil, "failing: Xid 79"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &Node{ID: "n", State: NodeReady, CPUMilli: 1000, MemMiB: 1000, GPUs: []GPU{tc.gpu}}
			n.GPUs[0].SellableMiB, n.GPUs[0].MaxShares, n.GPUs[0].CapMode = 1000, 3, "sim"
			if tc.order != nil {
				n.Orders = []GPUOrder{*tc.order}
			}
			if got := n.Why(&n.GPUs[0]); got != tc.why || n.Open(&n.GPUs[0]) != (tc.why == "") {
				t.Errorf("open %t, because %q, want %q", n.Open(&n.GPUs[0]), got, tc.why)
			}
			led := NewLedger([]*Node{n})
			b := &Berth{Node: "n", GPUs: []GPUShare{{GPU: "g", Share: Share{MemMiB: 10, Milli: 10}}}}
			if r := led.Fits(b); (r.Code == "") != (tc.why == "") {
				t.Errorf("fits: %s", r)
			}
			// What lies there stays there, and the account balances.
			led.Take(b)
			if u, _ := led.GPU("g"); u.Shares != 1 || u.Closed != (tc.why != "") || u.Idle() {
				t.Errorf("account %+v", u)
			}
			if err := led.Check(); err != nil {
				t.Error(err)
			}
			led.Release(b)
			if !led.Equal(NewLedger([]*Node{n})) {
				t.Error("the ledger is another one after a release")
			}
		})
	}
}

func TestHistoryRemembers(t *testing.T) {
	t.Parallel()
	var h []NodeEvent
	for i := range 3 * MaxHistory {
		before := h
		h = Remember(h, NodeEvent{At: Time(i), Kind: fmt.Sprint(i)})
		if len(before) > 0 && before[len(before)-1].At != Time(i-1) {
			t.Fatal("the old history was changed")
		}
	}
	if len(h) != MaxHistory || h[0].At != 2*MaxHistory || h[MaxHistory-1].At != 3*MaxHistory-1 {
		t.Errorf("%d events from %d to %d", len(h), h[0].At, h[len(h)-1].At)
	}
}

package dispatch

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
)

// testNode has GPUs <id>-0, <id>-1, … of 1,000 sellable MiB for 3 jobs each.
func testNode(id cluster.NodeID, gpus int) *cluster.Node {
	n := &cluster.Node{ID: id, State: cluster.NodeReady, CPUMilli: 8000, MemMiB: 4096}
	for i := range gpus {
		n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(fmt.Sprintf("%s-%d", id, i)), Type: "T", MemMiB: 1100, SellableMiB: 1000, MaxShares: 3, CapMode: "sim"})
	}
	return n
}

func berthOf(node cluster.NodeID, shares ...cluster.GPUShare) *cluster.Berth {
	return &cluster.Berth{Node: node, GPUs: shares, CPUMilli: 1000, MemMiB: 512}
}

func part(gpu cluster.GPUID, mib, milli int64) cluster.GPUShare {
	return cluster.GPUShare{GPU: gpu, Share: cluster.Share{MemMiB: mib, Milli: milli, Exclusive: false}}
}

func alone(gpu cluster.GPUID) cluster.GPUShare {
	return cluster.GPUShare{GPU: gpu, Share: cluster.Share{MemMiB: 1000, Milli: cluster.WholeGPU, Exclusive: true}}
}

func TestFits(t *testing.T) {
	t.Parallel()
	shared, unshared, drained, silent := testNode("a", 2), testNode("b", 1), testNode("c", 1), testNode("d", 1)
	unshared.GPUs[0].CapMode = "none"
	drained.Drain = true
	silent.State = cluster.NodeUnreachable
	taken := []*cluster.Berth{berthOf("a", part("a-0", 600, 400))}
	for _, tt := range []struct {
		name  string
		taken []*cluster.Berth
		b     cluster.Berth
		want  cluster.ReasonCode
		says  string
	}{
		{name: "empty GPU", b: *berthOf("a", part("a-0", 1000, 1000))},
		{name: "no GPU", b: *berthOf("a")},
		{name: "beside another", taken: taken, b: *berthOf("a", part("a-0", 400, 600))},
		{name: "two GPUs", taken: taken, b: *berthOf("a", part("a-0", 400, 600), part("a-1", 1000, 1000))},
		{name: "one MiB too much", taken: taken, b: *berthOf("a", part("a-0", 401, 600)), want: cluster.ReasonGPUMem, says: "GPU a-0: 400 MiB free, needs 401"},
		{name: "compute", taken: taken, b: *berthOf("a", part("a-0", 400, 601)), want: cluster.ReasonGPUCompute, says: "60 %"},
		{name: "alone beside another", taken: taken, b: *berthOf("a", alone("a-0")), want: cluster.ReasonExclusive, says: "1 jobs on it"},
		{name: "beside one that is alone", taken: []*cluster.Berth{berthOf("a", alone("a-0"))}, b: *berthOf("a", part("a-0", 0, 0)), want: cluster.ReasonGPUSlots},
		{
			name: "fourth of three", taken: []*cluster.Berth{berthOf("a", part("a-0", 1, 1)), berthOf("a", part("a-0", 1, 1)), berthOf("a", part("a-0", 1, 1))},
			b: *berthOf("a", part("a-0", 1, 1)), want: cluster.ReasonGPUSlots, says: "at most 3",
		},
		{name: "second on a card without caps", taken: []*cluster.Berth{berthOf("b", part("b-0", 1, 1))}, b: *berthOf("b", part("b-0", 1, 1)), want: cluster.ReasonGPUSlots},
		{name: "cores", b: cluster.Berth{Node: "a", CPUMilli: 8001}, want: cluster.ReasonCPU, says: "8 cores free, needs 8.0"},
		{name: "host memory", taken: taken, b: cluster.Berth{Node: "a", MemMiB: 4096}, want: cluster.ReasonHostMem, says: "3584 MiB of host memory free, needs 4096"},
		{name: "sum of cores would overflow", taken: taken, b: cluster.Berth{Node: "a", CPUMilli: math.MaxInt64}, want: cluster.ReasonCPU},
		{name: "sum of memory would overflow", taken: taken, b: cluster.Berth{Node: "a", MemMiB: math.MaxInt64}, want: cluster.ReasonHostMem},
		{name: "negative cores", b: cluster.Berth{Node: "a", CPUMilli: -1}, want: cluster.ReasonStale},
		{name: "negative memory", b: cluster.Berth{Node: "a", MemMiB: -1}, want: cluster.ReasonStale},
		{name: "negative share", b: *berthOf("a", part("a-0", -1, 0)), want: cluster.ReasonStale},
		{name: "negative compute", b: *berthOf("a", part("a-0", 0, -1)), want: cluster.ReasonStale},
		{name: "more than a whole GPU", b: *berthOf("a", part("a-0", 0, 1001)), want: cluster.ReasonStale},
		{name: "unknown node", b: *berthOf("z"), want: cluster.ReasonNodeDown, says: "not registered"},
		{name: "drained node", b: *berthOf("c"), want: cluster.ReasonNodeDown, says: "drained or silent"},
		{name: "silent node", b: *berthOf("d"), want: cluster.ReasonNodeDown, says: "drained or silent"},
		{name: "unknown GPU", b: *berthOf("a", part("zz", 1, 1)), want: cluster.ReasonStale},
		{name: "GPU of another node", b: *berthOf("a", part("b-0", 1, 1)), want: cluster.ReasonStale, says: "node a has no GPU b-0"},
		{name: "one GPU twice", b: *berthOf("a", part("a-0", 1, 1), part("a-0", 1, 1)), want: cluster.ReasonStale, says: "not sorted or repeat"},
		{name: "GPUs not sorted", b: *berthOf("a", part("a-1", 1, 1), part("a-0", 1, 1)), want: cluster.ReasonStale},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := NewLedger([]*cluster.Node{shared, unshared, drained, silent})
			for _, b := range tt.taken {
				if !l.Take(b) {
					t.Fatalf("cannot take %+v", b)
				}
			}
			if got := l.Fits(&tt.b); got.Code != tt.want || !strings.Contains(got.Detail, tt.says) {
				t.Fatalf("Fits = %q, want code %q with %q", got, tt.want, tt.says)
			}
		})
	}
}

func TestFree(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name               string
		g                  GPUUse
		mib, milli, shares int64
	}{
		{"empty", GPUUse{SellableMiB: 10, MaxShares: 3, Shareable: true}, 10, 1000, 3},
		{"in part", GPUUse{SellableMiB: 10, MaxShares: 3, Shareable: true, UsedMiB: 4, UsedMilli: 300, Shares: 1}, 6, 700, 2},
		{"alone", GPUUse{SellableMiB: 10, MaxShares: 3, Shareable: true, Shares: 1, Exclusive: true}, 0, 0, 0},
		{"not to be shared", GPUUse{SellableMiB: 10, MaxShares: 3}, 10, 1000, 1},
		{"shrunk under its jobs", GPUUse{SellableMiB: 10, MaxShares: 1, Shareable: true, UsedMiB: 40, UsedMilli: 1200, Shares: 3}, 0, 0, 0},
		{"gone", GPUUse{UsedMiB: 40, Shares: 1}, 0, 1000, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if a, b, c := tt.g.FreeMiB(), tt.g.FreeMilli(), int64(tt.g.FreeShares()); a != tt.mib || b != tt.milli || c != tt.shares {
				t.Fatalf("free %d MiB, %d milli, %d shares, want %d, %d, %d", a, b, c, tt.mib, tt.milli, tt.shares)
			}
		})
	}
}

func TestTakeUnknownTakesNothing(t *testing.T) {
	t.Parallel()
	l := NewLedger([]*cluster.Node{testNode("a", 1)})
	want := l.Clone()
	for _, b := range []*cluster.Berth{berthOf("z"), berthOf("a", part("a-0", 1, 1), part("zz", 1, 1))} {
		if l.Take(b) || l.Release(b) {
			t.Fatalf("took or released %+v", b)
		}
	}
	if !l.Equal(want) {
		t.Fatal("accounts changed")
	}
}

// What comes to a ledger later is not in copies of it.
func TestLedgerCopiesAreApart(t *testing.T) {
	t.Parallel()
	l := NewLedger([]*cluster.Node{testNode("a", 1)})
	before := l.Clone()
	l.SetNode(testNode("b", 1))
	if _, ok := before.Node("b"); ok {
		t.Error("the copy knows a node of later")
	}
	if _, ok := before.GPU("b-0"); ok {
		t.Error("the copy knows a GPU of later")
	}
	before.SetNode(testNode("c", 1))
	if _, ok := l.Node("c"); ok {
		t.Error("the ledger knows a node of its copy")
	}
}

// A card that moves to another node is that node's, and gone when that has it no more.
func TestMovedGPU(t *testing.T) {
	t.Parallel()
	a, b := testNode("a", 1), testNode("b", 1)
	l := NewLedger([]*cluster.Node{a, b})
	b.GPUs = append(b.GPUs, a.GPUs...)
	l.SetNode(b)
	if g, _ := l.GPU("a-0"); g.Node != "b" {
		t.Fatalf("the card is of node %s, want b", g.Node)
	}
	l.SetNode(testNode("a", 0))
	l.SetNode(testNode("b", 1))
	if g, ok := l.GPU("a-0"); ok {
		t.Errorf("the card that is gone has an account: %+v", g)
	}
	if want := NewLedger([]*cluster.Node{testNode("a", 0), testNode("b", 1)}); !l.Equal(want) {
		t.Error("not the ledger of what is there")
	}
}

// A card that vanishes under a job keeps its account until the job ends.
func TestVanishedGPU(t *testing.T) {
	t.Parallel()
	l := NewLedger([]*cluster.Node{testNode("a", 2)})
	b := berthOf("a", part("a-0", 600, 400), part("a-1", 10, 10))
	l.Take(b)
	l.SetNode(testNode("a", 1)) // a-1 is gone
	clone := l.Clone()
	g, ok := l.GPU("a-1")
	if !ok || g.UsedMiB != 10 || g.SellableMiB != 0 || g.FreeShares() != 0 {
		t.Fatalf("account of the vanished GPU: %+v, %t", g, ok)
	}
	if r := l.Fits(berthOf("a", part("a-1", 0, 0))); r.Code == "" {
		t.Fatal("a job fits on a GPU that is gone")
	}
	if err := l.Check(); err == nil {
		t.Fatal("Check allows shares on a GPU that is gone")
	}
	if !l.Release(b) {
		t.Fatal("release failed")
	}
	if !l.Equal(NewLedger([]*cluster.Node{testNode("a", 1)})) {
		t.Fatalf("something is left: %+v", l)
	}
	if g, ok := clone.GPU("a-1"); !ok || g.Shares != 1 {
		t.Fatalf("the clone's account changed: %+v, %t", g, ok)
	}
	if !clone.Release(b) || !clone.Equal(l) {
		t.Fatal("the clone does not balance")
	}
}

func TestRemember(t *testing.T) {
	t.Parallel()
	l := NewLedger([]*cluster.Node{testNode("a", 1)})
	l.Remember("a", "a-0") // is there: nothing to do
	if g, _ := l.GPU("a-0"); g.SellableMiB != 1000 {
		t.Fatalf("an account was replaced: %+v", g)
	}
	l.Remember("a", "old")
	b := berthOf("a", part("old", 5, 5))
	if !l.Take(b) {
		t.Fatal("cannot take on a remembered GPU")
	}
	if !l.Release(b) {
		t.Fatal("cannot release on a remembered GPU")
	}
	if _, ok := l.GPU("old"); ok {
		t.Fatal("the remembered account stays open when it holds nothing")
	}
	if !l.Equal(NewLedger([]*cluster.Node{testNode("a", 1)})) {
		t.Fatal("accounts differ from the start")
	}
}

func TestGPUMovesToAnotherNode(t *testing.T) {
	t.Parallel()
	l := NewLedger([]*cluster.Node{testNode("a", 2), testNode("b", 0)})
	l.SetNode(testNode("a", 1))
	b := testNode("b", 0)
	b.GPUs = testNode("a", 2).GPUs[1:]
	l.SetNode(b)
	if r := l.Fits(berthOf("b", part("a-1", 10, 10))); r.Code != "" {
		t.Fatal(r)
	}
	if r := l.Fits(berthOf("a", part("a-1", 10, 10))); r.Code != cluster.ReasonStale {
		t.Fatal(r)
	}
}

func TestSetNodeShrinks(t *testing.T) {
	t.Parallel()
	l := NewLedger([]*cluster.Node{testNode("a", 1)})
	b := berthOf("a", part("a-0", 600, 400))
	l.Take(b)
	n := testNode("a", 1)
	n.CPUMilli, n.MemMiB, n.GPUs[0].SellableMiB = 500, 100, 300
	l.SetNode(n)
	if err := l.Check(); err == nil {
		t.Fatal("Check is content with more taken than there is")
	}
	if r := l.Fits(berthOf("a")); r.Code != cluster.ReasonCPU || !strings.Contains(r.Detail, "0 cores free") {
		t.Fatalf("Fits = %q", r)
	}
	l.Release(b)
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	if u, _ := l.Node("a"); u.UsedCPU != 0 || u.UsedMem != 0 || u.CPUMilli != 500 {
		t.Fatalf("account of the node: %+v", u)
	}
}

func TestRemoveNode(t *testing.T) {
	t.Parallel()
	l := NewLedger([]*cluster.Node{testNode("a", 2), testNode("b", 1), testNode("c", 2)})
	b := berthOf("c", part("c-1", 7, 7))
	l.Take(b)
	old := l.Clone()
	l.RemoveNode("b")
	l.RemoveNode("nobody")
	if _, ok := l.Node("b"); ok {
		t.Fatal("the node is still there")
	}
	if _, ok := l.GPU("b-0"); ok {
		t.Fatal("its GPU is still there")
	}
	want := NewLedger([]*cluster.Node{testNode("c", 2), testNode("a", 2)})
	want.Take(b)
	if !l.Equal(want) {
		t.Fatal("the others' accounts changed")
	}
	if _, ok := old.GPU("b-0"); !ok {
		t.Fatal("the clone lost a GPU")
	}
}

func TestCheckNamesTheFault(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		spoil func(*Ledger)
		want  string
	}{
		{"sound", func(*Ledger) {}, ""},
		{"cores below zero", func(l *Ledger) { l.nodes.edit(0).UsedCPU = -1 }, "node a"},
		{"memory below zero", func(l *Ledger) { l.nodes.edit(0).UsedMem = -1 }, "node a"},
		{"cores", func(l *Ledger) { l.nodes.edit(0).UsedCPU = 8001 }, "node a"},
		{"memory", func(l *Ledger) { l.nodes.edit(0).UsedMem = 4097 }, "node a"},
		{"GPU memory below zero", func(l *Ledger) { l.gpus.edit(0).UsedMiB = -1 }, "GPU a-0"},
		{"GPU memory", func(l *Ledger) { l.gpus.edit(0).UsedMiB = 1001 }, "GPU a-0"},
		{"compute", func(l *Ledger) { l.gpus.edit(0).UsedMilli = 1001 }, "GPU a-0"},
		{"compute below zero", func(l *Ledger) { l.gpus.edit(0).UsedMilli = -1 }, "GPU a-0"},
		{"shares", func(l *Ledger) { l.gpus.edit(0).Shares = 4 }, "GPU a-0"},
		{"shares below zero", func(l *Ledger) { l.gpus.edit(0).Shares = -1 }, "GPU a-0"},
		{"alone with two", func(l *Ledger) { l.gpus.edit(0).Shares, l.gpus.edit(0).Exclusive = 2, true }, "GPU a-0"},
		{"alone with nobody", func(l *Ledger) { l.gpus.edit(0).Exclusive = true }, "GPU a-0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := NewLedger([]*cluster.Node{testNode("a", 1)})
			tt.spoil(l)
			err := l.Check()
			if tt.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Check = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestLedgerEqual(t *testing.T) {
	t.Parallel()
	base := []*cluster.Node{testNode("a", 1), testNode("b", 2)}
	for _, tt := range []struct {
		name   string
		change func(*Ledger)
		want   bool
	}{
		{"nothing", func(*Ledger) {}, true},
		{"another order", func(l *Ledger) { *l = *NewLedger([]*cluster.Node{base[1], base[0]}) }, true},
		{"something is taken", func(l *Ledger) { l.Take(berthOf("a")) }, false},
		{"a share is taken", func(l *Ledger) { l.Take(&cluster.Berth{Node: "a", GPUs: []cluster.GPUShare{part("a-0", 1, 0)}}) }, false},
		{"a node more", func(l *Ledger) { l.SetNode(testNode("c", 0)) }, false},
		{"a GPU less", func(l *Ledger) { l.SetNode(testNode("b", 1)) }, false},
		{"another node", func(l *Ledger) { l.RemoveNode("a"); l.SetNode(testNode("c", 1)) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l, m := NewLedger(base), NewLedger(base)
			tt.change(m)
			if l.Equal(m) != tt.want || m.Equal(l) != tt.want {
				t.Fatalf("Equal = %t, %t, want %t", l.Equal(m), m.Equal(l), tt.want)
			}
		})
	}
}

func TestNodeUseIsACopy(t *testing.T) {
	t.Parallel()
	l := NewLedger([]*cluster.Node{testNode("a", 1)})
	u, _ := l.Node("a")
	u.UsedCPU = 99
	g, _ := l.GPU("a-0")
	g.Shares = 99
	v, _ := l.Node("a")
	if d := cmp.Diff(NodeUse{ID: "a", CPUMilli: 8000, MemMiB: 4096, Schedulable: true}, v); d != "" {
		t.Fatal(d)
	}
	if _, ok := l.Node("z"); ok {
		t.Fatal("an unknown node has an account")
	}
	if g, ok := l.GPU("z"); ok || g != (GPUUse{}) {
		t.Fatal("an unknown GPU has an account")
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		gpu   cluster.GPU
		order *cluster.GPUOrder
		why   string
	}{
		{"a sound card", cluster.GPU{ID: "g"}, nil, ""},
		{"one that was resumed", cluster.GPU{ID: "g"}, &cluster.GPUOrder{GPU: "g", Resumed: 9}, ""},
		{"another one is drained", cluster.GPU{ID: "g"}, &cluster.GPUOrder{GPU: "h", Drain: true}, ""},
		{"drained", cluster.GPU{ID: "g"}, &cluster.GPUOrder{GPU: "g", Drain: true}, "drained"},
		{"drained for a reason", cluster.GPU{ID: "g", State: cluster.GPULost}, &cluster.GPUOrder{GPU: "g", Drain: true, Reason: "fans"}, "drained: fans"},
		{"unknown", cluster.GPU{ID: "g", State: cluster.GPUUnknown}, nil, "unknown"},
		{"failing", cluster.GPU{ID: "g", State: cluster.GPUFailing, StateReason: "Xid 79"}, nil, "failing: Xid 79"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &cluster.Node{ID: "n", State: cluster.NodeReady, CPUMilli: 1000, MemMiB: 1000, GPUs: []cluster.GPU{tc.gpu}}
			n.GPUs[0].SellableMiB, n.GPUs[0].MaxShares, n.GPUs[0].CapMode = 1000, 3, "sim"
			if tc.order != nil {
				n.Orders = []cluster.GPUOrder{*tc.order}
			}
			if got := n.Why(&n.GPUs[0]); got != tc.why || n.Open(&n.GPUs[0]) != (tc.why == "") {
				t.Errorf("open %t, because %q, want %q", n.Open(&n.GPUs[0]), got, tc.why)
			}
			led := NewLedger([]*cluster.Node{n})
			b := &cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: "g", Share: cluster.Share{MemMiB: 10, Milli: 10}}}}
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
			if !led.Equal(NewLedger([]*cluster.Node{n})) {
				t.Error("the ledger is another one after a release")
			}
		})
	}
}

func TestQuantitiesInWords(t *testing.T) {
	t.Parallel()
	for v, want := range map[int64]string{0: "0", 1000: "1", 1500: "1.5", -3: "0", 64_000: "64"} {
		if got := milli(v); got != want {
			t.Errorf("milli(%d) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[int64]string{0: "0 %", 4: "0 %", 5: "1 %", 1000: "100 %"} {
		if got := percent(v); got != want {
			t.Errorf("percent(%d) = %q, want %q", v, got, want)
		}
	}
	if got := cluster.Time(0).Add(time.Second); got != 1_000_000 {
		t.Errorf("a second is %d µs", got)
	}
}

// TestStartHidesItsSecret: a start that is printed tells nobody how to speak for its attempt.
func TestStartHidesItsSecret(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, Start{Secret: "0123456789abcdef"}); strings.Contains(text, "0123456789abcdef") {
			t.Errorf("%s prints the secret: %s", verb, text)
		}
	}
}

package cells

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
)

// TestUsageByHand: what of a tenant's cells is in use, what it borrowed, and the
// widest job that they could hold now.
func TestUsageByHand(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{node("a", 8), node("b", 8)}
	tenants := []Tenant{tenant("x", "4=2", "2=1"), tenant("y", "4=1")}
	own := func(id cluster.JobID, g ...cluster.GPUID) Job { return Job{ID: id, Tenant: "x", GPUs: g} }
	for _, c := range []struct {
		name string
		jobs []Job
		want Usage
	}{
		{"nothing", nil, Usage{GPUType: "g", GPUs: 10, Largest: 4}},
		{"one of four: the other holds four", []Job{own(1, gpus("a", 0)...)}, Usage{GPUType: "g", GPUs: 10, Used: 1, Largest: 4}},
		{"three take a cell of four", []Job{own(1, gpus("a", 0, 1, 2)...), own(2, gpus("b", 0, 1, 2)...)}, Usage{GPUType: "g", GPUs: 10, Used: 6, Largest: 2}},
		{"small ones go into the smallest that holds them", []Job{own(1, gpus("a", 0)...), own(2, gpus("a", 1)...)}, Usage{GPUType: "g", GPUs: 10, Used: 2, Largest: 4}},
		{"packed by width, whatever came first", []Job{own(1, gpus("a", 0)...), own(2, gpus("a", 1)...), own(3, gpus("a", 4, 5, 6, 7)...), own(4, gpus("b", 0, 1, 2, 3)...)},
			Usage{GPUType: "g", GPUs: 10, Used: 10}},
		{"the widest first, so that it is true that nothing is left", []Job{own(1, gpus("a", 0, 1, 2)...), own(2, gpus("a", 3)...), own(3, gpus("a", 4)...), own(4, gpus("b", 0, 1, 2)...), own(5, gpus("b", 3)...), own(6, gpus("b", 4)...)},
			Usage{GPUType: "g", GPUs: 10, Used: 10}},
		{"shares of one card count once", []Job{own(1, gpus("a", 0)...), own(2, gpus("a", 0)...)}, Usage{GPUType: "g", GPUs: 10, Used: 1, Largest: 4}},
		{"who ends uses nothing", []Job{{ID: 1, Tenant: "x", Ending: true, GPUs: gpus("a", 0, 1, 2, 3)}}, Usage{GPUType: "g", GPUs: 10, Largest: 4}},
		{"what may be ended counts as its own as far as the cells go, the first to come first",
			[]Job{{ID: 1, Tenant: "x", Preemptible: true, Since: 3, GPUs: gpus("a", 0, 1, 2, 3)}, {ID: 2, Tenant: "x", Preemptible: true, Since: 2, GPUs: gpus("a", 4, 5, 6, 7)},
				{ID: 3, Tenant: "x", Preemptible: true, Since: 1, GPUs: gpus("b", 0, 1, 2, 3)}},
			Usage{GPUType: "g", GPUs: 10, Used: 8, Borrowed: 4, Largest: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := Bind(nodes, tenants, c.jobs).Usage("x")
			if d := cmp.Diff([]Usage{c.want}, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	b := Bind(nodes, tenants, []Job{{ID: 1, Tenant: "x", Preemptible: true, Since: 3, GPUs: gpus("a", 0, 1, 2, 3)}, {ID: 2, Tenant: "x", Preemptible: true, Since: 2, GPUs: gpus("a", 4, 5, 6, 7)},
		{ID: 3, Tenant: "x", Preemptible: true, Since: 1, GPUs: gpus("b", 0, 1, 2, 3)}})
	if b.Own(1) || !b.Own(2) || !b.Own(3) {
		t.Errorf("safe are 1: %t, 2: %t, 3: %t; want the first two to come", b.Own(1), b.Own(2), b.Own(3))
	}
	for who, want := range map[string]int{"x": 4, "y": 4, "nobody": 0} {
		if got := b.Widest(who, "g"); got != want {
			t.Errorf("the widest of %s is %d, want %d", who, got, want)
		}
	}
}

// TestWhoMakesRoom: of those who borrowed the cells, and of the cells.
func TestWhoMakesRoom(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{node("a", 4), node("b", 4)}
	tenants := []Tenant{tenant("x", "4=1"), tenant("y", "4=1")}
	lent := func(id cluster.JobID, since cluster.Time, g ...cluster.GPUID) Job {
		return Job{ID: id, Tenant: "z", Preemptible: true, Since: since, GPUs: g}
	}
	firm := Job{ID: 1, Tenant: "y", GPUs: gpus("b", 0)}
	for _, c := range []struct {
		name string
		jobs []Job
		req  Request
		want Answer
	}{
		{"of equals the last to come", []Job{firm, lent(2, 5, gpus("a", 0)...), lent(3, 9, gpus("a", 1)...)}, Request{GPUs: 3}, Answer{GPUs: gpus("a", 1, 2, 3), Victims: []cluster.JobID{3}, Guaranteed: true}},
		{"whatever their ids", []Job{firm, lent(3, 5, gpus("a", 0)...), lent(2, 9, gpus("a", 1)...)}, Request{GPUs: 3}, Answer{GPUs: gpus("a", 1, 2, 3), Victims: []cluster.JobID{2}, Guaranteed: true}},
		{"one who frees enough before two who do", []Job{firm, lent(2, 9, gpus("a", 0)...), lent(3, 9, gpus("a", 1)...), lent(4, 1, gpus("a", 2, 3)...)}, Request{GPUs: 2}, Answer{GPUs: gpus("a", 2, 3), Victims: []cluster.JobID{4}, Guaranteed: true}},
		// Each frees one card, 3 and 4 together a third: 2, which is the least and came first
		// to mind, is not needed any more.
		{"nobody who turns out not to be needed", []Job{firm, lent(2, 9, gpus("a", 0)...), lent(3, 9, gpus("a", 1, 3)...), lent(4, 9, gpus("a", 2, 3)...)}, Request{GPUs: 3}, Answer{GPUs: gpus("a", 1, 2, 3), Victims: []cluster.JobID{3, 4}, Guaranteed: true}},
		{"all of them for all", []Job{firm, lent(2, 9, gpus("a", 0, 1)...), lent(3, 9, gpus("a", 2)...)}, Request{GPUs: 4}, Answer{GPUs: gpus("a", 0, 1, 2, 3), Victims: []cluster.JobID{2, 3}, Guaranteed: true}},
		{"nobody where there is room", []Job{firm, lent(2, 9, gpus("a", 0, 1)...)}, Request{GPUs: 2}, Answer{GPUs: gpus("a", 2, 3), Now: true, Guaranteed: true}},
		{"nobody for more than the cells hold", []Job{firm, lent(2, 9, gpus("a", 0, 1)...)}, Request{GPUs: 5}, Answer{}},
		{"nobody who may not be ended", []Job{firm, {ID: 2, Tenant: "x", GPUs: gpus("a", 0)}}, Request{GPUs: 4}, Answer{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.req.ID, c.req.Tenant, c.req.GPUType = 99, "x", "g"
			got := Bind(nodes, tenants, c.jobs).Place(c.req, nil)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("answer (-want +got):\n%s", d)
			}
		})
	}
}

// TestWhereOthersLie: who has no claim lies where nobody has one, and in cells that
// stand idle only if it may be ended there.
func TestWhereOthersLie(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{node("a", 4), node("b", 4)}
	tenants := []Tenant{tenant("x", "4=1")} // a node is nobody's
	for _, c := range []struct {
		name string
		jobs []Job
		req  Request
		want []cluster.GPUID
	}{
		{"where nobody has a claim", nil, Request{Tenant: "z", GPUs: 2}, gpus("b", 0, 1)},
		{"even if it may be ended", nil, Request{Tenant: "z", GPUs: 2, Preemptible: true}, gpus("b", 0, 1)},
		{"in an idle cell if it may be ended", []Job{{ID: 1, Tenant: "z", GPUs: gpus("b", 0, 1, 2, 3)}}, Request{Tenant: "z", GPUs: 2, Preemptible: true}, gpus("a", 0, 1)},
		{"and not else", []Job{{ID: 1, Tenant: "z", GPUs: gpus("b", 0, 1, 2, 3)}}, Request{Tenant: "z", GPUs: 2}, nil},
		{"of no tenant at all", []Job{{ID: 1, Tenant: "z", GPUs: gpus("b", 0, 1, 2, 3)}}, Request{Tenant: "", GPUs: 1, Preemptible: true}, gpus("a", 0)},
		{"beside others of a broken pair, so that whole ones stay", []Job{{ID: 1, Tenant: "z", GPUs: gpus("b", 1)}}, Request{Tenant: "z", GPUs: 1}, gpus("b", 0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.req.ID, c.req.GPUType = 99, "g"
			got := Bind(nodes, tenants, c.jobs).Place(c.req, nil)
			if d := cmp.Diff(c.want, got.GPUs); d != "" || len(got.Victims) > 0 || got.Guaranteed {
				t.Errorf("answer %+v (-want +got):\n%s", got, d)
			}
		})
	}
}

// TestBuddies: cells are cut out of the smallest block that holds them, on nodes of
// any size, and not of nodes that are away.
func TestBuddies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		sizes []int
		cells []string
		jobs  []Job
		want  []cluster.GPUID // of x, in order
	}{
		{"the smaller node", []int{8, 2}, []string{"2=1"}, nil, gpus("b", 0, 1)},
		{"a node of six is four and two", []int{6, 8}, []string{"2=1"}, nil, gpus("a", 4, 5)},
		{"and holds no eight", []int{6, 8}, []string{"8=1"}, nil, gpus("b", 0, 1, 2, 3, 4, 5, 6, 7)},
		{"of a node of six four", []int{6, 8}, []string{"4=1"}, nil, gpus("a", 0, 1, 2, 3)},
		{"where its jobs lie", []int{4, 4}, []string{"4=1"}, []Job{{ID: 1, Tenant: "x", GPUs: gpus("b", 3)}}, gpus("b", 0, 1, 2, 3)},
		{"not where others lie who stay", []int{4, 4}, []string{"4=1"}, []Job{{ID: 1, Tenant: "z", GPUs: gpus("a", 3)}}, gpus("b", 0, 1, 2, 3)},
		{"who may be ended is no bar, but avoided", []int{4, 4}, []string{"4=1"}, []Job{{ID: 1, Tenant: "z", Preemptible: true, GPUs: gpus("a", 3)}}, gpus("b", 0, 1, 2, 3)},
		{"two of different sizes do not overlap", []int{4}, []string{"2=1", "1=2"}, nil, gpus("a", 0, 1, 2, 3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var nodes []*cluster.Node
			for i, n := range c.sizes {
				nodes = append(nodes, node(string(rune('a'+i)), n))
			}
			b := Bind(nodes, []Tenant{tenant("x", c.cells...)}, c.jobs)
			if len(b.Short()) > 0 {
				t.Fatalf("short of %v", b.Short())
			}
			var got []cluster.GPUID
			for _, n := range nodes {
				for i := range n.GPUs {
					if who, ok := b.Holder(n.GPUs[i].ID); ok && who == "x" {
						got = append(got, n.GPUs[i].ID)
					}
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// buddies cuts powers of two out of blocks, the largest first, each out of the
// smallest that holds it. For sizes that divide each other nothing does better.
func buddies(blocks, cells []int) bool {
	blocks, cells = slices.Clone(blocks), slices.Clone(cells)
	slices.Sort(cells)
	for i := len(cells) - 1; i >= 0; i-- {
		slices.Sort(blocks)
		k := slices.IndexFunc(blocks, func(b int) bool { return b >= cells[i] })
		if k < 0 {
			return false
		}
		for blocks[k] > cells[i] {
			blocks[k] /= 2
			blocks = append(blocks, blocks[k])
		}
		blocks = slices.Delete(blocks, k, k+1)
	}
	return true
}

// TestFitAsBuddies: guarantees are taken if and only if buddy allocation has room
// for all of them in the nodes and in what the largest nodes of each rack are together.
func TestFitAsBuddies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*cluster.Node
		var blocks, cells []int
		largest, full := 1, map[string]int{} // a power of two; how many of a rack have that
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			n := rapid.IntRange(1, 9).Draw(t, "cards")
			for 2*largest <= n {
				largest *= 2
			}
			nodes = append(nodes, inRack(node(string(rune('a'+i)), n), rapid.SampledFrom([]string{"", "r1", "r1"}).Draw(t, "rack")))
		}
		for _, n := range nodes {
			left := len(n.GPUs)
			if left == largest {
				full[strings.Join(n.Features, "")]++
				continue
			}
			for p := 8; p >= 1; p /= 2 { // 7 is 4, 2 and 1
				if left >= p {
					blocks, left = append(blocks, p), left-p
				}
			}
			if left > 0 { // of nine
				blocks = append(blocks, left)
			}
		}
		for _, n := range full {
			for p := 8; p >= 1; p /= 2 { // as many nodes together
				if n >= p {
					blocks, n = append(blocks, p*largest), n-p
				}
			}
		}
		var tenants []Tenant
		for _, name := range []string{"x", "y"} {
			tn := Tenant{Name: name}
			for range rapid.IntRange(0, 4).Draw(t, "kinds") {
				c := Cell{"g", 1 << rapid.IntRange(0, 5).Draw(t, "level"), rapid.IntRange(1, 3).Draw(t, "count")}
				tn.Cells = append(tn.Cells, c)
				for range c.Count {
					cells = append(cells, c.GPUs)
				}
			}
			tenants = append(tenants, tn)
		}
		if got, want := fit(nodes, tenants), buddies(blocks, cells); got != want {
			t.Fatalf("cells %v in blocks %v: taken %t, want %t", cells, blocks, got, want)
		}
	})
}

package cells

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
)

// node returns a node of cards of type "g".
func node(name string, gpus int) *cluster.Node {
	n := &cluster.Node{ID: cluster.NodeID(name), State: cluster.NodeReady}
	for i := range gpus {
		n.GPUs = append(n.GPUs, cluster.GPU{ID: gpu(name, i), Index: i, Type: "g", MemMiB: 1000, SellableMiB: 1000, MaxShares: 3, CapMode: "sim"})
	}
	return n
}

// inRack says in which rack a node is; "" is to say nothing.
func inRack(n *cluster.Node, rack string) *cluster.Node {
	if rack == "" {
		return n
	}
	return with(n, cluster.RackFeature+rack)
}

// with says where a node is, in a feature; "" is to say nothing.
func with(n *cluster.Node, feature string) *cluster.Node {
	if feature != "" {
		n.Features = []string{"big", feature}
	}
	return n
}

func gpu(node string, i int) cluster.GPUID { return cluster.GPUID(fmt.Sprintf("%s-%02d", node, i)) }

func gpus(node string, is ...int) []cluster.GPUID {
	var out []cluster.GPUID
	for _, i := range is {
		out = append(out, gpu(node, i))
	}
	return out
}

// tenant reads cells of type "g" from "8=2".
func tenant(name string, cells ...string) Tenant {
	t := Tenant{Name: name}
	for _, s := range cells {
		c, err := ParseCell("g:" + s)
		if err != nil {
			panic(err)
		}
		t.Cells = append(t.Cells, c)
	}
	return t
}

func TestParseCell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want Cell
		bad  string
	}{
		{in: "A100-SXM4-80GB:8=2", want: Cell{"A100-SXM4-80GB", 8, 2}},
		{in: "a:b=c:1=4", want: Cell{"a:b=c", 1, 4}},
		{in: "g:3=1", bad: "power of two"},
		{in: "g:0=1", bad: "power of two"},
		{in: "g:8192=1", bad: "1 to 4096"},
		{in: "g:8", bad: "TYPE:GPUS=COUNT"},
		{in: ":8=2", bad: "TYPE:GPUS=COUNT"},
		{in: "g:8=0", bad: "1 to 100000"},
		{in: "g:8=x", bad: "1 to 100000"},
		{in: "", bad: "TYPE:GPUS=COUNT"},
	} {
		got, err := ParseCell(c.in)
		switch {
		case c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)):
			t.Errorf("%q: %v, want an error with %q", c.in, err, c.bad)
		case c.bad == "" && (err != nil || got != c.want):
			t.Errorf("%q: %v, %v, want %v", c.in, got, err, c.want)
		case c.bad == "" && got.String() != c.in:
			t.Errorf("%q is written as %q", c.in, got)
		}
	}
}

func FuzzParseCell(f *testing.F) {
	for _, s := range []string{"A100-SXM4-80GB:8=2", "g:1=1", ":=", "g:8=", "g:-8=1", "x=y:2=3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCell(s)
		if err != nil {
			return
		}
		again, err := ParseCell(c.String())
		if err != nil || again != c {
			t.Fatalf("%q is %v, and read again %v, %v", s, c, again, err)
		}
	})
}

func TestShort(t *testing.T) {
	t.Parallel()
	eight := []*cluster.Node{node("a", 8), node("b", 8)}
	racks := []*cluster.Node{inRack(node("a", 8), "r1"), inRack(node("b", 8), "r2"), inRack(node("c", 8), "r1")}
	tree := []*cluster.Node{with(node("a", 8), "switch=core:l1"), with(node("b", 8), "switch=core:l2"), with(node("c", 8), "switch=core:l1")}
	for _, n := range tree {
		n.Features = append(n.Features, "rack=r"+string(n.ID)) // which counts where no switch is named
	}
	odd := []*cluster.Node{node("a", 6), node("b", 12)}
	for _, c := range []struct {
		name    string
		nodes   []*cluster.Node
		tenants []Tenant
		want    string
	}{
		{"all of it", eight, []Tenant{tenant("x", "8=1"), tenant("y", "4=1", "2=1", "1=2")}, ""},
		{"one too many", eight, []Tenant{tenant("x", "8=1"), tenant("y", "4=1", "2=2", "1=1")}, "tenant y: 1 of its 1 cells of 1 GPUs (g) cannot be kept"},
		{"two nodes together", eight, []Tenant{tenant("x", "16=1")}, ""},
		{"larger than both nodes", eight, []Tenant{tenant("x", "32=1")}, "tenant x: 1 of its 1 cells of 32 GPUs (g) cannot be kept"},
		{"two nodes of two racks", racks[:2], []Tenant{tenant("x", "16=1")}, "tenant x: 1 of its 1 cells of 16 GPUs (g) cannot be kept"},
		{"two nodes of one of two racks", racks, []Tenant{tenant("x", "16=1"), tenant("y", "8=1")}, ""},
		{"two nodes of one switch", tree, []Tenant{tenant("x", "16=1"), tenant("y", "8=1")}, ""},
		{"two nodes of two switches", tree[:2], []Tenant{tenant("x", "16=1")}, "tenant x: 1 of its 1 cells of 16 GPUs (g) cannot be kept"},
		{"nodes of other sizes are none of it", []*cluster.Node{node("a", 8), node("b", 4), node("c", 4)}, []Tenant{tenant("x", "16=1")}, "tenant x: 1 of its 1 cells of 16 GPUs (g) cannot be kept"},
		{"six is four and two", odd, []Tenant{tenant("x", "8=1", "4=2", "2=1")}, ""},
		{"six is not three twos of four", odd, []Tenant{tenant("x", "4=5")}, "tenant x: 1 of its 5 cells of 4 GPUs (g) cannot be kept"},
		{"no such type", eight, []Tenant{{Name: "x", Cells: []Cell{{"h", 1, 1}}}}, "tenant x: 1 of its 1 cells of 1 GPUs (h) cannot be kept"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			for _, s := range Bind(c.nodes, c.tenants, nil).Short() {
				got += s.String()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestQuotaIsNotEnough is the example that HiveD begins with (OSDI 2020,
// section 2): two tenants with a node of 8 each. When both count GPUs alone,
// as Slurm's GrpTRES does, the one with small jobs lies on both nodes, and the
// other waits within its quota. With cells it never does.
func TestQuotaIsNotEnough(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{node("a", 8), node("b", 8)}
	tenants := []Tenant{tenant("small", "8=1"), tenant("wide", "8=1")}
	// Small's jobs came and went; by its quota of 8 the last may lie anywhere.
	for _, c := range []struct {
		name     string
		quota    bool
		wantWait bool
	}{{"by quotas", true, true}, {"by cells", false, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var jobs []Job
			next := cluster.JobID(1)
			start := func(n int) Answer {
				b := Bind(nodes, tenants, jobs)
				a := b.Place(Request{ID: next, Tenant: "small", GPUType: "g", GPUs: n}, nil)
				if c.quota { // the emptiest node, as quotas forbid nothing
					a = Answer{GPUs: emptiest(nodes, jobs, n)}
				}
				jobs = append(jobs, Job{ID: next, Tenant: "small", Since: cluster.Time(next), GPUs: a.GPUs})
				next++
				return a
			}
			for range 4 {
				if a := start(1); len(a.GPUs) == 0 {
					t.Fatal("a job within the quota waits")
				}
			}
			wide := Request{ID: 99, Tenant: "wide", GPUType: "g", GPUs: 8}
			wait := false
			if c.quota {
				wait = len(emptiest(nodes, jobs, 8)) == 0
			} else {
				a := Bind(nodes, tenants, jobs).Place(wide, nil)
				wait = !a.Now
			}
			if wait != c.wantWait {
				t.Errorf("wide waits: %v, want %v", wait, c.wantWait)
			}
		})
	}
}

// emptiest returns n free cards of the node with the most, none when no node
// has so many.
func emptiest(nodes []*cluster.Node, jobs []Job, n int) []cluster.GPUID {
	used := map[cluster.GPUID]bool{}
	for _, j := range jobs {
		for _, g := range j.GPUs {
			used[g] = true
		}
	}
	var best []cluster.GPUID
	for _, nd := range nodes {
		var can []cluster.GPUID
		for i := range nd.GPUs {
			if !used[nd.GPUs[i].ID] {
				can = append(can, nd.GPUs[i].ID)
			}
		}
		if len(can) >= n && len(can) > len(best) {
			best = can
		}
	}
	if len(best) < n {
		return nil
	}
	return best[:n]
}

func TestPlace(t *testing.T) {
	t.Parallel()
	two := []*cluster.Node{node("a", 8), node("b", 8)}
	tenants := []Tenant{tenant("x", "8=1"), tenant("y", "4=1")} // 4 are nobody's
	xs := gpus("a", 0, 1, 2, 3, 4, 5, 6, 7)
	for _, c := range []struct {
		name string
		jobs []Job
		req  Request
		want Answer
	}{
		{"an empty cluster", nil, Request{ID: 9, Tenant: "x", GPUs: 8}, Answer{GPUs: xs, Now: true, Guaranteed: true}},
		{"beyond the guarantee where nobody is promised anything",
			[]Job{{ID: 1, Tenant: "y", GPUs: gpus("b", 0, 1, 2, 3)}}, Request{ID: 9, Tenant: "y", GPUs: 4}, Answer{GPUs: gpus("b", 4, 5, 6, 7), Now: true}},
		{"beyond the guarantee with nothing left over",
			[]Job{{ID: 1, Tenant: "y", GPUs: gpus("b", 0, 1, 2, 3)}, {ID: 2, Tenant: "y", GPUs: gpus("b", 4, 5, 6, 7)}},
			Request{ID: 9, Tenant: "y", GPUs: 1}, Answer{}},
		{"the same borrows when it may be ended",
			[]Job{{ID: 1, Tenant: "y", GPUs: gpus("b", 0, 1, 2, 3)}, {ID: 2, Tenant: "y", GPUs: gpus("b", 4, 5, 6, 7)}},
			Request{ID: 9, Tenant: "y", GPUs: 1, Preemptible: true}, Answer{GPUs: gpus("a", 0), Now: true}},
		{"who borrowed leaves, and nobody else",
			[]Job{{ID: 1, Tenant: "y", GPUs: gpus("b", 0, 1, 2, 3)}, {ID: 2, Tenant: "y", GPUs: gpus("b", 4, 5, 6, 7)},
				{ID: 3, Tenant: "z", Preemptible: true, GPUs: gpus("a", 0, 1)}, {ID: 4, Tenant: "z", Preemptible: true, GPUs: gpus("a", 4)}},
			Request{ID: 9, Tenant: "x", GPUs: 4}, Answer{GPUs: gpus("a", 2, 3, 5, 6), Now: true, Guaranteed: true}},
		{"the fewest leave",
			[]Job{{ID: 1, Tenant: "y", GPUs: gpus("b", 0, 1, 2, 3)}, {ID: 2, Tenant: "y", GPUs: gpus("b", 4, 5, 6, 7)},
				{ID: 3, Tenant: "z", Preemptible: true, GPUs: gpus("a", 0, 1)}, {ID: 4, Tenant: "z", Preemptible: true, GPUs: gpus("a", 2, 3, 4)}},
			Request{ID: 9, Tenant: "x", GPUs: 5}, Answer{GPUs: gpus("a", 0, 1, 5, 6, 7), Victims: []cluster.JobID{3}, Guaranteed: true}},
		{"a tenant's own job that may be ended keeps its cell",
			[]Job{{ID: 1, Tenant: "x", Preemptible: true, GPUs: xs}, {ID: 2, Tenant: "z", GPUs: gpus("b", 0, 1, 2, 3)}},
			Request{ID: 9, Tenant: "x", GPUs: 8}, Answer{}},
		{"who ends already is waited for",
			[]Job{{ID: 1, Tenant: "z", Preemptible: true, Ending: true, GPUs: xs}, {ID: 2, Tenant: "z", GPUs: gpus("b", 0)}},
			Request{ID: 9, Tenant: "x", GPUs: 8}, Answer{GPUs: xs, Guaranteed: true}},
		{"no more than a node", nil, Request{ID: 9, Tenant: "x", GPUs: 9}, Answer{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.req.GPUType = "g"
			got := Bind(two, tenants, c.jobs).Place(c.req, nil)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("answer (-want +got):\n%s", d)
			}
		})
	}
}

// TestChoiceOfCells needs the search: a tenant beyond its guarantee lies on
// two nodes, and only one of them leaves the other tenant its cell.
func TestChoiceOfCells(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{node("a", 8), node("b", 8)}
	jobs := []Job{
		{ID: 1, Tenant: "x", GPUs: gpus("a", 0, 1, 2, 3)},
		{ID: 2, Tenant: "x", GPUs: gpus("b", 0)}, {ID: 3, Tenant: "x", GPUs: gpus("b", 4)},
	}
	b := Bind(nodes, []Tenant{tenant("x", "8=1"), tenant("y", "4=1")}, jobs)
	if s := b.Short(); len(s) > 0 {
		t.Fatalf("short of %v", s)
	}
	if who, _ := b.Holder(gpu("a", 4)); who != "y" {
		t.Errorf("a's second half is %q's, want y's", who)
	}
}

func TestBadHardware(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{node("a", 8), node("b", 8)}
	nodes[1].State = cluster.NodeUnreachable
	b := Bind(nodes, []Tenant{tenant("x", "8=1"), tenant("y", "8=1"), tenant("z", "1=1")}, nil)
	var got []string
	for _, s := range b.Short() {
		got = append(got, s.String())
	}
	want := []string{"tenant y: 1 of its 1 cells of 8 GPUs (g) cannot be kept", "tenant z: 1 of its 1 cells of 1 GPUs (g) cannot be kept"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("short (-want +got):\n%s", d)
	}
	if a := b.Place(Request{ID: 1, Tenant: "x", GPUType: "g", GPUs: 8}, nil); !a.Now {
		t.Errorf("the tenant whose cell is kept got %v", a)
	}
}

func TestNUMA(t *testing.T) {
	t.Parallel()
	n := node("a", 4)
	for i := range n.GPUs {
		n.GPUs[i].NUMA = i % 2 // 0 and 2 are near each other
	}
	b := Bind([]*cluster.Node{n}, []Tenant{tenant("x", "2=2")}, nil)
	a := b.Place(Request{ID: 1, Tenant: "x", GPUType: "g", GPUs: 2}, nil)
	if d := cmp.Diff(gpus("a", 0, 2), a.GPUs); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

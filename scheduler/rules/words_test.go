package rules_test

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestNeverFitsNamesWhatLacks: the first thing that no node has, and the most that
// could be had of it from those nodes that have all before it.
func TestNeverFitsNamesWhatLacks(t *testing.T) {
	t.Parallel()
	small := schedtest.Node("a", 2, "T4", schedtest.Host(8_000, 16_384))
	large := schedtest.Node("b", 4, "A100-SXM4-80GB", schedtest.Host(32_000, 65_536))
	bare := schedtest.Node("c", 0, "", schedtest.Host(128_000, 262_144))
	small.Features, large.Features = []string{"eth"}, []string{"ib", "nvme"}
	mixed := func(id cluster.NodeID, of ...string) *cluster.Node {
		n := schedtest.Node(id, len(of), "")
		for i := range of {
			n.GPUs[i].Type, n.GPUs[i].SellableMiB = of[i], 15_000
		}
		return n
	}
	all := []*cluster.Node{bare, large, small} // in no order
	where := func(w cluster.Where) schedtest.JobOption { return func(j *cluster.Job) { j.Spec.Where = &w } }
	power := func(j *cluster.Job) { j.Spec.MaxPowerW = 250 }
	draws := func(j *cluster.Job) { j.Estimates[0].PowerW = 300 }
	for _, c := range []struct {
		name  string
		nodes []*cluster.Node
		opts  []schedtest.JobOption
		want  string // "" when it fits
	}{
		{"no node at all", nil, []schedtest.JobOption{schedtest.GPUs(9)}, ""},
		{"it fits", all, nil, ""},
		{"a node that is not there", all, []schedtest.JobOption{schedtest.On("z")}, "node z is not registered"},
		{"no GPU anywhere", all[:1], nil, "no node has a GPU"},
		{"no GPU on that node", all, []schedtest.JobOption{schedtest.On("c")}, "node c has no GPU"},
		{"another type", all, []schedtest.JobOption{schedtest.Type("H100")}, "no GPU of type H100; the types are A100-SXM4-80GB, T4"},
		{"another type on that node", all, []schedtest.JobOption{schedtest.Type("H100"), schedtest.On("a")}, "no GPU of type H100 on node a; the types are T4"},
		{"memory", all, []schedtest.JobOption{schedtest.Mem(80_001)}, "80001 MiB of GPU memory; the largest GPU sells 80000 MiB (A100-SXM4-80GB, node b)"},
		{"memory of a type", all, []schedtest.JobOption{schedtest.Mem(15_001), schedtest.Type("T4")}, "15001 MiB of GPU memory; the largest GPU sells 15000 MiB (T4, node a)"},
		{"predicted memory", all[2:], []schedtest.JobOption{schedtest.Predict("T4", 20_000, 100, time.Hour)}, "19.5 GiB of GPU memory (predicted; declare the memory to overrule it); the largest GPU sells 14.6 GiB (T4, node a)"},
		{"GPUs", all, []schedtest.JobOption{schedtest.GPUs(5)}, "5 GPUs on one node; the largest is node b with 4 × A100-SXM4-80GB"},
		{"GPUs with so much", all, []schedtest.JobOption{schedtest.GPUs(5), schedtest.Mem(20_000)}, "5 GPUs with 19.5 GiB on one node; the largest is node b with 4 × A100-SXM4-80GB"},
		{"GPUs that two nodes have", []*cluster.Node{large, small, mixed("d", "A100-SXM4-80GB", "T4", "T4")}, []schedtest.JobOption{schedtest.GPUs(4), schedtest.Type("T4")}, "4 GPUs on one node; the largest is node a with 2 × T4; as a job on 2 nodes with 2 GPUs on each it fits (--nodes 2, -N 2 of sbatch)"},
		{"GPUs that too few nodes have", []*cluster.Node{large, small, mixed("d", "T4", "T4")}, []schedtest.JobOption{schedtest.GPUs(6)}, "6 GPUs on one node; the largest is node b with 4 × A100-SXM4-80GB"},
		{"GPUs that do not divide over the nodes", []*cluster.Node{large, small, mixed("d", "T4", "T4")}, []schedtest.JobOption{schedtest.GPUs(5)}, "5 GPUs on one node; the largest is node b with 4 × A100-SXM4-80GB"},
		{"GPUs of a type", all, []schedtest.JobOption{schedtest.GPUs(3), schedtest.Type("T4")}, "3 GPUs on one node; the largest is node a with 2 × T4"},
		{"cores", all, []schedtest.JobOption{schedtest.Cores(40_000)}, "40 cores beside 1 GPU; the most is node b with 32 cores"},
		{"cores alone", all, []schedtest.JobOption{schedtest.GPUs(0), schedtest.Cores(129_000)}, "129 cores; the most is node c with 128 cores"},
		{"memory beside GPUs", all, []schedtest.JobOption{schedtest.HostMem(70_000)}, "68.4 GiB of host memory beside 1 GPU and 1 core; the most is node b with 64.0 GiB"},
		{"memory of those with the cores", all, []schedtest.JobOption{schedtest.GPUs(0), schedtest.Cores(9_000), schedtest.HostMem(300_000)}, "293.0 GiB of host memory beside 9 cores; the most is node c with 256.0 GiB"},
		{"power", all[1:2], []schedtest.JobOption{schedtest.Predict("A100-SXM4-80GB", 100, 100, time.Hour), power, draws}, "on A100-SXM4-80GB it is predicted to draw 300 W on A100-SXM4-80GB, at most 250 W are allowed (--max-power)"},
		{"power, where others are left out for another reason", all, []schedtest.JobOption{schedtest.Type("A100-SXM4-80GB"), schedtest.Predict("A100-SXM4-80GB", 100, 100, time.Hour), power, draws}, "on A100-SXM4-80GB it is predicted to draw 300 W on A100-SXM4-80GB, at most 250 W are allowed (--max-power)"},
		{"power, beside cards of another type", []*cluster.Node{mixed("m", "T4", "L4")}, []schedtest.JobOption{schedtest.Type("T4"), schedtest.Predict("T4", 100, 100, time.Hour), power, draws}, "on T4 it is predicted to draw 300 W on T4, at most 250 W are allowed (--max-power)"},
		{"two nodes with two of a type, but not the same", []*cluster.Node{mixed("m", "T4", "T4", "L4"), mixed("o", "T4", "L4", "L4")}, []schedtest.JobOption{schedtest.GPUs(2), schedtest.Nodes(2)}, "2 nodes with 2 GPUs of one type on each; the largest set is 1 node with 2 GPUs of L4"},
		{"nodes at once", all, []schedtest.JobOption{schedtest.Nodes(2)}, "2 nodes with 1 GPU of one type on each; the largest set is 1 node with 1 GPU of A100-SXM4-80GB"},
		{"nodes without GPUs at once", all, []schedtest.JobOption{schedtest.GPUs(0), schedtest.Nodes(3), schedtest.Cores(9_000)}, "3 nodes at once; the largest set that has what it needs on each is 2 nodes"},
		{"a named node among others", all, []schedtest.JobOption{schedtest.GPUs(0), schedtest.Nodes(2), schedtest.Cores(9_000), where(cluster.Where{Nodes: hostList(t, "a")})}, "node a, which it asks for, with all that it needs"},
		{"named nodes that are not there", all, []schedtest.JobOption{where(cluster.Where{Nodes: hostList(t, "z")})}, "no node of z is registered, or in its partition"},
		{"all are excluded", all, []schedtest.JobOption{where(cluster.Where{Exclude: hostList(t, "a,b,c")})}, "all nodes are excluded (a,b,c)"},
		{"a feature that none has", all, []schedtest.JobOption{where(cluster.Where{Features: featuresOf(t, "tpu")})}, "no node has the features tpu; there are eth, ib, nvme"},
		{"features that none has at once", all, []schedtest.JobOption{where(cluster.Where{Features: featuresOf(t, "ib&eth")})}, "no node that it may use has the features ib&eth all at once; there are eth, ib, nvme"},
		{"a feature where none has any", all[:1], []schedtest.JobOption{where(cluster.Where{Features: featuresOf(t, "ib")})}, "no node has the features ib; none has any (features in the configuration of agents)"},
		{"a data set where none has any", all, []schedtest.JobOption{where(cluster.Where{Features: featuresOf(t, "ib&data=coco")})}, "no node has the data set coco; none has any (node.data of their agents)"},
		{"a data set that none has", []*cluster.Node{schedtest.Node("d", 1, "T4", schedtest.Has("data=coco"))}, []schedtest.JobOption{where(cluster.Where{Features: featuresOf(t, "data=imagenet")})}, "no node has the data set imagenet; there are coco"},
		{"one data set or another", []*cluster.Node{schedtest.Node("d", 1, "T4", schedtest.Has("data=coco"))}, []schedtest.JobOption{where(cluster.Where{Features: featuresOf(t, "data=x|data=y")})}, "no node has the features data=x|data=y; there are data=coco"},
	} {
		got := ""
		if err := rules.NeverFits(c.nodes, schedtest.Job(1, c.opts...), rules.Default()); err != nil {
			got = err.Msg
		}
		if want := c.want; want != "" {
			c.want = "never satisfiable: " + want
		}
		if got != c.want {
			t.Errorf("%s:\n %q, want\n %q", c.name, got, c.want)
		}
	}
}

// TestVetoInWords: the words name what the card has and what the job wants, by kind
// of veto, with the code that a user sees.
func TestVetoInWords(t *testing.T) {
	t.Parallel()
	g := schedtest.Node("n", 1, "T4").GPUs[0]
	pol := rules.Default()
	pol.Prices = &rules.Prices{PerHourMilli: map[string]int64{"T4": 1000}}
	for _, c := range []struct {
		name   string
		change func(*cluster.Job)
		code   cluster.ReasonCode
		words  string
	}{
		{"type", func(j *cluster.Job) { j.Spec.GPUType = "A100" }, cluster.ReasonGPUType, "wants A100, this is T4"},
		{"declared", func(j *cluster.Job) { j.Spec.GPUMemMiB = 20_480 }, cluster.ReasonNeverFits, "needs 20.0 GiB, T4 sells 14.6 GiB"},
		{"predicted", func(j *cluster.Job) { j.Estimates[0].GPUMemMiB = 20_480 }, cluster.ReasonNeverFits, "is predicted to need 20.0 GiB, T4 sells 14.6 GiB; declare its memory to overrule the prediction"},
		{"power", func(j *cluster.Job) { j.Spec.MaxPowerW = 139; j.Spec.Nodes = 2 }, cluster.ReasonNeverFits, "is predicted to draw 140 W on T4, at most 139 W are allowed (--max-power)"},
		{"cost", func(j *cluster.Job) { j.Spec.MaxCostMilli = 199 }, cluster.ReasonNeverFits, "is predicted to take ~2 h, 70 W, 0.14 kWh, price 0.20 on T4, a price of at most 0.199 is allowed (--max-cost)"},
	} {
		j := schedtest.Job(1, schedtest.Predict("T4", 1500, 100, 2*time.Hour))
		j.Estimates[0].PowerW = 70
		c.change(j)
		if _, _, got := rules.ShareOn(j, &g, pol); got.Code != c.code || got.Detail != c.words {
			t.Errorf("%s: %s %q, want %s %q", c.name, got.Code, got.Detail, c.code, c.words)
		}
	}
}

// TestNoCardIsLeftForOneTooSmall: a card that a job may outgrow is left alone only
// for one that also sells what the job was seen to need.
func TestNoCardIsLeftForOneTooSmall(t *testing.T) {
	t.Parallel()
	n := schedtest.Node("n", 2, "A")
	n.GPUs[0].SellableMiB, n.GPUs[1].SellableMiB, n.GPUs[1].Type = 100, 60, "B"
	j := schedtest.Job(1)
	j.MinGPUMemMiB = 80
	j.Estimates = []cluster.Estimate{
		{GPUType: "A", GPUMemMiB: 90, GPUMemP95MiB: 110, ConfidenceMilli: 900}, {GPUType: "B", GPUMemMiB: 40, GPUMemP95MiB: 50, ConfidenceMilli: 900},
	}
	pol := rules.Default()
	s := rules.SparingOf(rules.PlacesOf([]*cluster.Node{n}), j, &pol)
	for i, want := range []rules.Veto{rules.VetoNone, rules.VetoObserved} {
		nd := rules.NeedOn(j, &n.GPUs[i], &j.Estimates[i], &pol)
		if got := s.Veto(&n.GPUs[i], &nd); got != want {
			t.Errorf("%s: veto %d, want %d", n.GPUs[i].Type, got, want)
		}
	}
}

// TestNamedNodesOfOneType: a gang has cards of one type, so that a node which it names and
// which has another type keeps it from those of which there are enough.
func TestNamedNodesOfOneType(t *testing.T) {
	t.Parallel()
	kinds := map[cluster.NodeID]string{"n0": "A", "n1": "B", "n2": "B"}
	var nodes []*cluster.Node
	for _, id := range []cluster.NodeID{"n0", "n1", "n2"} {
		nodes = append(nodes, &cluster.Node{ID: id, CPUMilli: 4000, MemMiB: 4096, GPUs: []cluster.GPU{{ID: cluster.GPUID(id), Type: kinds[id], SellableMiB: 1000, MaxShares: 3, CapMode: "sim"}}})
	}
	for name, never := range map[string]bool{"n0": true, "n1": false, "n[0-1]": true, "n[1-2]": false} {
		j := &cluster.Job{Spec: &cluster.Spec{GPUs: 1, Nodes: 2, CPUMilli: 1000, MemMiB: 1024, GPUMemMiB: 500, Where: &cluster.Where{}}}
		j.Spec.Where.Nodes, _ = cluster.ParseHostList(name)
		if err := rules.NeverFits(nodes, j, rules.Default()); (err != nil) != never {
			t.Errorf("two nodes with %s: %v", name, err)
		}
	}
}

package scheduler_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

const image = "registry.example/train:3"

func in(name string) JobOption { return Reads(name) }

// TestNodesThatHoldTheImage: a job begins where its image is, unless that breaks into an
// idle card that it would leave alone otherwise.
func TestNodesThatHoldTheImage(t *testing.T) {
	t.Parallel()
	share := []JobOption{Mem(1000), Util(100), Lasts(time.Hour)}
	alone := []JobOption{Exclusive, Lasts(time.Hour)}
	for _, c := range []struct {
		name    string
		holders []cluster.NodeID
		job     []JobOption
		want    cluster.GPUID
		words   string
	}{
		{"nobody holds it", nil, append(share, in(image)), "n1-00", "beside 1 job;"},
		{"a node where a card is in use", []cluster.NodeID{"n2"}, append(share, in(image)), "n2-00", "beside 1 job, on a node that has its image"},
		{"a node where none is", []cluster.NodeID{"n3"}, append(share, in(image)), "n1-00", "beside 1 job;"},
		{"another image", []cluster.NodeID{"n2"}, append(share, in("registry.example/train:4")), "n1-00", "beside 1 job;"},
		{"no image", []cluster.NodeID{"n2"}, share, "n1-00", "beside 1 job;"},
		{"a whole card", []cluster.NodeID{"n2"}, append(alone, in(image)), "n2-01", "alone on " + a100 + ", on a node that has its image"},
		{"a whole card of the only idle node", []cluster.NodeID{"n3"}, append(alone, in(image)), "n1-01", ", on the node with the fewest free"},
		{"a whole card, anywhere", nil, append(alone, in(image)), "n1-01", ", on the node with the fewest free"},
		{"a node that is asked for", []cluster.NodeID{"n2"}, append(alone, in(image), On("n3")), "n3-00", ", on the node with the fewest free"},
		{"the second that holds it", []cluster.NodeID{"gone", "n2"}, append(share, in(image)), "n2-00", "that has its image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 2, a100), Node("n2", 2, a100), Node("n3", 3, a100)})
			for i, g := range []cluster.GPUID{"n1-00", "n2-00"} {
				running(w, Job(cluster.JobID(50+i), Mem(1000), Util(100), Lasts(time.Hour)), g, cluster.Share{MemMiB: 1000, Milli: 100})
			}
			w.Submit(Job(1, c.job...))
			s := w.Snapshot()
			s.Images = map[string][]cluster.NodeID{image: c.holders}
			p := scheduler.Schedule(s, scheduler.Default())
			if len(p.Starts) != 1 || p.Starts[0].Berth.GPUs[0].GPU != c.want || !strings.Contains(p.Starts[0].Why, c.words) {
				t.Errorf("%+v, want on %s: %q", p.Starts, c.want, c.words)
			}
		})
	}
}

// TestGangsGoWhereTheirDataIs: among nodes equally near to each other, those with most of
// what the gang reads; nearness to each other counts more.
func TestGangsGoWhereTheirDataIs(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{
		Node("n1", 4, a100, Switch("core:a")), Node("n2", 4, a100, Switch("core:a"), Has("data=coco")),
		Node("n3", 4, a100, Switch("core:a"), Has("data=coco")), Node("n4", 4, a100, Switch("core:b"), Has("data=imagenet")), Node("n5", 4, a100, Switch("core:c"), Has("data=imagenet")),
	}
	for _, c := range []struct {
		job   *cluster.Job
		want  []string
		words string
	}{
		{Job(1, GPUs(4), onNodes(2), Reads("", "coco")), []string{"n2:4", "n3:4"}, ", all on switch a, which all have its data coco;"},
		{Job(1, GPUs(0), onNodes(2), Reads("", "coco")), []string{"n2:0", "n3:0"}, ", all on switch a, which all have its data coco"},
		{Job(1, GPUs(4), onNodes(2), Reads("", "imagenet")), []string{"n1:4", "n2:4"}, ", all on switch a;"},
		{Job(1, GPUs(0), Reads("", "coco")), []string{"n3:0"}, "takes nothing from idle GPUs, on a node that has its data coco"},
	} {
		w := NewWorld(nodes)
		w.Submit(c.job)
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		if len(p.Starts) != 1 || !slices.Equal(nodesOf(&p.Starts[0]), c.want) || !strings.Contains(p.Starts[0].Why, c.words) {
			t.Errorf("%d nodes, reading %v: %+v, want %v: %q", c.job.Spec.Nodes, c.job.Spec.Data, p.Starts, c.want, c.words)
		}
	}
}

// TestCoresOfIdleGPUsAreNotTakenForData: a job without GPUs stays where it takes nothing
// that typical jobs need with idle GPUs.
func TestCoresOfIdleGPUsAreNotTakenForData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cores int64
		want  cluster.NodeID
	}{{100, "n2"}, {4000, "n1"}} {
		w := NewWorld([]*cluster.Node{Node("n1", 0, ""), Node("n2", 4, a100, Host(9_000, 64<<10), Has("data=coco"))})
		running(w, Job(50, Exclusive, Lasts(time.Hour), func(j *cluster.Job) { j.Spec.CPUMilli = 2000 }), "n2-00", cluster.Share{Exclusive: true, MemMiB: 80000, Milli: 1000})
		w.Submit(Job(1, GPUs(0), Reads("", "coco"), func(j *cluster.Job) { j.Spec.CPUMilli = c.cores }))
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		if len(p.Starts) != 1 || p.Starts[0].Berth.Node != c.want {
			t.Errorf("%d thousandths of a core: %+v, want on %s", c.cores, p.Starts, c.want)
		}
	}
}

// TestIdleNodesToSpare: while two of the widest nodes are idle a job may break into one
// for its image.
func TestIdleNodesToSpare(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]cluster.GPUID{1: "n1-01", 2: "n3-00"} {
		nodes := []*cluster.Node{Node("n1", 2, a100), Node("n3", 3, a100), Node("n4", 3, a100)}[:n+1]
		w := NewWorld(nodes)
		running(w, Job(50, Mem(1000), Util(100), Lasts(time.Hour)), "n1-00", cluster.Share{MemMiB: 1000, Milli: 100})
		w.Submit(Job(1, Exclusive, Lasts(time.Hour), in(image)))
		s := w.Snapshot()
		s.Images = map[string][]cluster.NodeID{image: {"n3"}}
		p := scheduler.Schedule(s, scheduler.Default())
		if len(p.Starts) != 1 || p.Starts[0].Berth.GPUs[0].GPU != want {
			t.Errorf("%d idle nodes: %+v, want on %s", n, p.Starts, want)
		}
	}
}

// TestImagesAtRandom: where a job lies, no node that holds its image would have held it
// without breaking into more idle cards or a wider idle part of a node; and nothing else about its start changes.
func TestImagesAtRandom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := []*cluster.Node{Node("n1", 3, a100), Node("n2", 2, a100), Node("n3", 4, a100), Node("n4", 1, a100)}
		w := NewWorld(nodes)
		id := cluster.JobID(50)
		for _, n := range nodes {
			for i := range n.GPUs {
				if k := rapid.IntRange(0, 3).Draw(t, "of it taken"); k > 0 {
					s := cluster.Share{MemMiB: int64(k) * 25000, Milli: int64(k) * 300}
					running(w, Job(id, Mem(s.MemMiB), Util(s.Milli), Lasts(time.Hour)), n.GPUs[i].ID, s)
					id++
				}
			}
		}
		opts := []JobOption{in(image), Lasts(time.Hour), GPUs(rapid.IntRange(1, 3).Draw(t, "GPUs"))}
		if rapid.Bool().Draw(t, "shares") {
			opts = append(opts, Mem(int64(rapid.IntRange(1, 60).Draw(t, "GB"))*1000), Util(int64(rapid.IntRange(1, 9).Draw(t, "tenths"))*100))
		} else {
			opts = append(opts, Exclusive)
		}
		w.Submit(Job(1, opts...))
		var holders []cluster.NodeID
		for _, n := range nodes {
			if rapid.Bool().Draw(t, "holds") {
				holders = append(holders, n.ID)
			}
		}
		// Idle cards, then those of the node: only one node here is as wide as any.
		opens := func(st *dispatch.Start) (n int) {
			idle := func(id cluster.GPUID) bool {
				u, _ := w.Ledg.GPU(id)
				return u.Shares == 0
			}
			for _, g := range st.Berth.GPUs {
				if idle(g.GPU) {
					n += 100
				}
			}
			for _, node := range nodes {
				for i := range node.GPUs {
					if n > 0 && node.ID == st.Berth.Node && idle(node.GPUs[i].ID) {
						n++
					}
				}
			}
			return n
		}
		pol := scheduler.Default()
		if rapid.Bool().Draw(t, "by fragmentation") {
			pol.FragNodes = 0
		}
		plain := scheduler.Schedule(w.Snapshot(), pol)
		s := w.Snapshot()
		s.Images = map[string][]cluster.NodeID{image: holders}
		got := scheduler.Schedule(s, pol)
		if len(got.Starts) != len(plain.Starts) {
			t.Fatalf("%d starts with images, %d without", len(got.Starts), len(plain.Starts))
		}
		if len(got.Starts) == 0 {
			return
		}
		st, was := &got.Starts[0], &plain.Starts[0]
		at, before := st.Berth.Node, was.Berth.Node
		for _, h := range holders {
			s := w.Snapshot()
			j := *s.Waiting[0]
			spec := *j.Spec
			j.Spec, spec.Node = &spec, h
			s.Waiting = []*cluster.Job{&j}
			if p := scheduler.Schedule(s, pol); !slices.Contains(holders, at) && len(p.Starts) == 1 && opens(&p.Starts[0]) <= opens(was) {
				t.Fatalf("on %s, though %s holds its image: %+v", at, h, p.Starts[0])
			}
		}
		switch {
		case opens(st) > opens(was):
			t.Fatalf("%d idle cards are broken into, %d without images", opens(st), opens(was))
		case !slices.Contains(holders, at) && cmp.Diff(was.Berth, st.Berth) != "", slices.Contains(holders, before) && at != before:
			t.Fatalf("on %s for no image, before on %s", at, before)
		}
		apply(t, w, got, pol)
	})
}

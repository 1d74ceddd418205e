package policies_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestNodesThatHaveWhatJobsRead: under every policy but the two that say otherwise a job
// goes where its image and its data sets are, most of them first, each node of a gang by
// itself, and starts at once where there are none; so does a job without GPUs among nodes
// that are alike.
func TestNodesThatHaveWhatJobsRead(t *testing.T) {
	t.Parallel()
	const image = "registry.example/train:3"
	bare := func(n *cluster.Node) { n.GPUs = nil }
	nodes := func(opts ...NodeOption) (out []*cluster.Node) {
		for id, has := range []NodeOption{Has("data=other"), Has(), Has("data=coco"), Has("data=coco", "data=imagenet"), Has("data=imagenet")} {
			out = append(out, Node(cluster.NodeID("n"+string(rune('1'+id))), 2, a100, append(opts, has)...))
		}
		return out
	}
	for _, c := range []struct {
		name  string
		nodes []*cluster.Node
		job   *cluster.Job
		want  string
		words string
	}{
		{"a data set", nodes(), Job(1, Exclusive, Reads("", "imagenet")), "n4 n5", "on a node that has its data imagenet"},
		{"both of two", nodes(), Job(1, Exclusive, Reads("", "imagenet", "coco")), "n4", "its data imagenet, coco"},
		{"the image and one of two", nodes(), Job(1, Exclusive, Reads(image, "imagenet", "imagenot")), "n5", "its image and its data imagenet"},
		{"a gang", nodes(), Job(1, GPUs(2), Nodes(2), Reads("", "coco")), "n3+n4", "which all have its data coco"},
		{"a gang wider than the holders", nodes(), Job(1, GPUs(2), Nodes(3), Reads("", "coco")), "n1+n3+n4 n2+n3+n4 n3+n4+n5", "predicted"},
		{"no GPUs", nodes(bare), Job(1, GPUs(0), Reads("", "coco", "imagenet")), "n4", "its data coco, imagenet"},
		{"a gang without GPUs", nodes(bare), Job(1, GPUs(0), Nodes(2), Reads("", "imagenet")), "n4+n5", "its data imagenet"},
		{"what nobody has", nodes(), Job(1, GPUs(2), Nodes(2), Reads("", "imagenot")), "", "predicted"},
	} {
		for _, name := range policies.Names() {
			if strings.HasPrefix(name, "reactive") || strings.HasPrefix(name, "schedtune") {
				continue
			}
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newScene(c.nodes...).waits(c.job).snap(t)
				s.Images = map[string][]cluster.NodeID{image: {"n2", "n5"}}
				p := must(t, name, policies.Options{}).Plan(s)
				if len(p.Starts) != 1 {
					t.Fatalf("starts %v", startsOf(&p))
				}
				var on []string
				for _, b := range p.Starts[0].Berths() {
					on = append(on, string(b.Node))
				}
				at := strings.Join(on, "+")
				if c.want != "" && !strings.Contains(" "+c.want+" ", " "+at+" ") {
					t.Errorf("on %s, want one of %s", at, c.want)
				}
				if w := p.Starts[0].Why; c.words != "predicted" && !strings.Contains(w, c.words) {
					t.Errorf("why: %s, want %q", w, c.words)
				}
			})
		}
	}
}

// TestNoIdleGPUIsTakenForData: a share goes beside others rather than to an idle GPU of a
// node that has its data.
func TestNoIdleGPUIsTakenForData(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ffd", "firstfit", "bestfit", "fgd"} {
		s := newScene(Node("n1", 1, a100), Node("n2", 1, a100, Has("data=coco"))).runs(8, 20000, 300, time.Hour, time.Minute, "n1-00")
		p := must(t, name, policies.Options{}).Plan(s.waits(Job(1, Mem(1000), Util(100), Lasts(time.Hour), Reads("", "coco"))).snap(t))
		if len(p.Starts) != 1 || p.Starts[0].Berth.Node != "n1" {
			t.Errorf("%s: %v, want n1", name, startsOf(&p))
		}
	}
}

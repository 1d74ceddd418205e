package nodes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// TestWhoHoldsAnImage: by what a job calls it, and by its digest whatever it is called.
func TestWhoHoldsAnImage(t *testing.T) {
	t.Parallel()
	l := &liveness{clock: time.Now, held: map[string][]cluster.NodeID{}, nodes: map[cluster.NodeID]*contact{"n0": {}, "n1": {}, "n2": {}, "n3": {}}}
	l.holds("n2", []string{"r.io/a:1", "sha256:aa"})
	l.holds("n1", []string{"sha256:aa", "local/a:7", "local/a:7", strings.Repeat("x", cluster.MaxPathLen+1)})
	l.holds("nobody", []string{"r.io/a:1"})
	jobs := func(images ...string) (js []*cluster.Job) {
		for _, s := range images {
			js = append(js, &cluster.Job{Spec: &cluster.Spec{Image: s}})
		}
		return js
	}
	all := jobs("", "r.io/a:1", "r.io/a@sha256:aa", "r.io/b:1", "r.io/a:1")
	want := map[string][]cluster.NodeID{"r.io/a:1": {"n2"}, "r.io/a@sha256:aa": {"n1", "n2"}}
	before := l.holders(all)
	if d := cmp.Diff(want, before); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	l.holds("n0", []string{"sha256:aa"})
	l.holds("n3", []string{"sha256:aa"})
	l.holds("n2", []string{"r.io/b:1"})
	if d := cmp.Diff(want, before); d != "" {
		t.Errorf("what a pass looks at changed (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string][]cluster.NodeID{"r.io/b:1": {"n2"}, "r.io/a@sha256:aa": {"n0", "n1", "n3"}}, l.holders(all)); d != "" {
		t.Errorf("after news (-want +got):\n%s", d)
	}
	if l.images("n1") != 1 || l.images("n2") != 1 || l.images("n3") != 0 || l.images("nobody") != 0 {
		t.Error("images are counted by their names")
	}
	if l.reset(); l.holders(all) != nil || len(l.held) != 0 {
		t.Error("a new term knows what the one before was told")
	}
}

// TestHeldImagesAtRandom: whatever nodes tell in which order, who holds an image are those
// that named it last, and of one node no more is kept than is allowed.
func TestHeldImagesAtRandom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, naive := &liveness{nodes: map[cluster.NodeID]*contact{}, held: map[string][]cluster.NodeID{}}, map[cluster.NodeID][]string{}
		name := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("r.io/%d:1", rapid.IntRange(0, 5).Draw(t, "image")) })
		for range rapid.IntRange(1, 20).Draw(t, "messages") {
			node := cluster.NodeID(rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "node"))
			if l.nodes[node] == nil {
				l.nodes[node] = &contact{}
			}
			naive[node] = rapid.SliceOfN(name, 0, 6).Draw(t, "names")
			l.holds(node, naive[node])
		}
		for i := range 6 {
			image := fmt.Sprintf("r.io/%d:1", i)
			var want []cluster.NodeID
			for _, n := range []cluster.NodeID{"n1", "n2", "n3"} {
				if slices.Contains(naive[n], image) {
					want = append(want, n)
				}
			}
			if got := l.holders([]*cluster.Job{{Spec: &cluster.Spec{Image: image}}})[image]; !slices.Equal(got, want) {
				t.Fatalf("%s is held by %v, want %v", image, got, want)
			}
		}
		many := make([]string, 3*maxHeld)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		if l.nodes["n1"] == nil {
			l.nodes["n1"] = &contact{}
		}
		if l.holds("n1", many); len(l.nodes["n1"].images) != maxHeld {
			t.Fatalf("%d names are kept", len(l.nodes["n1"].images))
		}
	})
}

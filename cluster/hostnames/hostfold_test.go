package hostnames

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func TestFold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, order, set string }{
		{"", "", ""},
		{"n1", "n1", "n1"},
		{"login", "login", "login"},
		{"login,login", "login,login", "login,login"},
		{"n1,n2,n3,n5", "n[1-3,5]", "n[1-3,5]"},
		{"n01,n02,n10", "n[01-02,10]", "n[01-02,10]"},
		{"n8,n9,n10,n11", "n[8-11]", "n[8-11]"},
		{"n08,n9,n10", "n[08,9-10]", "n[08,9-10]"},
		{"n3,n07,n1,n2", "n[3,07],n[1-2]", "n[1-3,07]"},
		{"n1,n1", "n1,n1", "n1"},
		{"n1,n01", "n[1,01]", "n[1,01]"},
		{"a1,b1,a2", "a1,b1,a2", "a[1-2],b1"},
		{"gpu-a1,gpu-a2,x", "gpu-a[1-2],x", "gpu-a[1-2],x"},
		{"n999999999,n1000000000", "n999999999,n1000000000", "n999999999,n1000000000"},
	} {
		var names []string
		if c.in != "" {
			names = strings.Split(c.in, ",")
		}
		if got := Fold(names); got != c.order {
			t.Errorf("FoldNames(%s) = %s, want %s", c.in, got, c.order)
		}
		if got := FoldSet(names); got != c.set {
			t.Errorf("FoldSet(%s) = %s, want %s", c.in, got, c.set)
		}
	}
}

// TestFoldsAreRead: what was folded names the same nodes, FoldNames in the same
// order.
func TestFoldsAreRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.Map(rapid.StringMatching(`[a-c]{1,2}[0-9]{0,11}`), func(s string) cluster.NodeID { return cluster.NodeID(s) }), 1, 60, rapid.ID).Draw(t, "names")
		read := func(text string) []cluster.NodeID {
			h, err := cluster.ParseHostList(text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			return h.Names()
		}
		if got := read(Fold(names)); !slices.Equal(got, names) {
			t.Fatalf("got %v, want %v by way of %s", got, names, Fold(names))
		}
		got := read(FoldSet(names))
		slices.Sort(got)
		slices.Sort(names)
		if !slices.Equal(got, names) {
			t.Fatalf("got %v, want %v by way of %s", got, names, FoldSet(names))
		}
	})
}

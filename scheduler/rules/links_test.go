package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/scheduler/rules"
)

// TestFreerLinks: a job on several nodes keeps to nodes, and to switches, whose links
// fewer others use, if there are enough of them.
func TestFreerLinks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		paths string  // of the nodes, the best first
		on    [][]int // the nodes of those that run
		n     int
		want  []int32
		freer bool
	}{
		{"nobody else", "a a a a", nil, 2, []int32{0, 1}, false},
		{"not on their nodes", "a a a a", [][]int{{0, 1}}, 2, []int32{2, 3}, true},
		{"rather than on one switch", "a a b c", [][]int{{0, 1}}, 2, []int32{2, 3}, true},
		{"too few others: it does not wait", "a a a", [][]int{{0, 1}}, 2, []int32{0, 1}, false},
		{"two on the first, one on the next", "a a a a", [][]int{{0, 1}, {0, 1}, {2, 3}}, 2, []int32{0, 1}, false},
		{"two across are no crowd", "a b c d a b", [][]int{{4, 5}}, 2, []int32{0, 1}, false},
		{"not over the switches of two", "a b c d a b a b", [][]int{{4, 5}, {6, 7}}, 2, []int32{2, 3}, true},
		{"below one switch they do not matter", "a a c d a b a b", [][]int{{4, 5}, {6, 7}}, 2, []int32{0, 1}, false},
	} {
		j := gang(c.n)
		all := partsAt(j, strings.Fields(c.paths)...)
		var l rules.Links
		free := slices.Clone(all)
		for _, on := range c.on {
			var parts []rules.Part
			for _, i := range on {
				parts = append(parts, all[i])
			}
			l.Take(parts)
		}
		if len(all) > 5 { // the last ones are full
			free = free[:4]
		}
		best, freer, ok := l.NearParts(j, free, 0)
		if d := cmp.Diff(c.want, hostsOf(best)); d != "" || !ok || freer != c.freer {
			t.Errorf("%s: %v, freer %v, %v (-want +got)\n%s", c.name, hostsOf(best), freer, ok, d)
		}
	}
}

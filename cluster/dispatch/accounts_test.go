package dispatch

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAccountsAndCopies: copies of a list change apart from each other, as copied slices do.
func TestAccountsAndCopies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lists, want := []accounts[int]{{}}, [][]int{nil}
		for step := range rapid.IntRange(0, 120).Draw(t, "steps") {
			k := rapid.IntRange(0, len(lists)-1).Draw(t, "list")
			switch n := lists[k].n; rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				lists, want = append(lists, lists[k].clone()), append(want, slices.Clone(want[k]))
			case 1:
				odd := func(v *int) bool { return *v%2 == 1 }
				lists[k] = lists[k].without(odd)
				want[k] = slices.DeleteFunc(want[k], func(v int) bool { return v%2 == 1 })
			case 2, 3, 4:
				if n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "at")
					*lists[k].edit(i) = -step
					want[k][i] = -step
				}
			default:
				for range rapid.IntRange(1, 2*blockLen).Draw(t, "more") {
					lists[k].add(step)
					want[k] = append(want[k], step)
				}
			}
		}
		for k := range lists {
			got := make([]int, 0, lists[k].n)
			for i, v := range lists[k].all() {
				if v != lists[k].at(i) {
					t.Fatalf("list %d yields another %d than at gives", k, i)
				}
				got = append(got, *v)
			}
			if !slices.Equal(want[k], got) {
				t.Fatalf("list %d holds %d, not %d", k, got, want[k])
			}
		}
	})
}

package sim

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAgendaIsInOrder: what happens at one time happens by kind, ends first and passes
// last, then by job, whatever the order was in which it was put down.
func TestAgendaIsInOrder(t *testing.T) {
	t.Parallel()
	if kinds := []kind{evEnd, evOOM, evProfiled, evNodeUp, evNodeDown, evPass}; !slices.IsSorted(kinds) {
		t.Fatalf("kinds %v are out of order", kinds)
	}
	rapid.Check(t, func(t *rapid.T) {
		var all []event
		var h agenda
		pop := func() {
			least := slices.MinFunc(all, func(a, b event) int {
				return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.k, b.k), cmp.Compare(a.id, b.id), cmp.Compare(a.ver, b.ver))
			})
			if got := h.pop(); got != least {
				t.Fatalf("%+v happens, want %+v of %+v", got, least, all)
			}
			all = slices.Delete(all, slices.Index(all, least), slices.Index(all, least)+1)
		}
		for range rapid.IntRange(1, 20).Draw(t, "events") {
			e := event{
				at: rapid.Int64Range(0, 3).Draw(t, "at"), k: kind(rapid.IntRange(0, int(evPass)).Draw(t, "kind")),
				id: rapid.Int32Range(0, 2).Draw(t, "id"), ver: uint32(rapid.IntRange(0, 2).Draw(t, "version")),
			}
			all = append(all, e)
			h.push(e)
			if rapid.IntRange(0, 3).Draw(t, "pop") == 0 {
				pop()
			}
		}
		for len(all) > 0 {
			pop()
		}
	})
}

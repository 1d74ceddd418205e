package nvml

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// Groups are the connected components of the links, whatever the order in
// which the driver numbers the cards.
func TestGroupsAreComponents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 8).Draw(t, "cards")
		cards := make([]gpu.Card, n)
		ends := make([][]linkEnd, n)
		joined := make([][]bool, n) // by walking, the plain way
		for i := range cards {
			cards[i] = gpu.Card{UUID: "GPU-" + string(rune('a'+i)), PCI: "00000000:0" + string(rune('1'+i)) + ":00.0"}
			joined[i] = make([]bool, n)
		}
		for range rapid.IntRange(0, 2*n).Draw(t, "links") {
			i, k := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")
			ends[i] = append(ends[i], linkEnd{pci: "0000" + cards[k].PCI[8:]})
			joined[i][k], joined[k][i] = true, true
		}
		for via := range n {
			for i := range n {
				for k := range n {
					joined[i][k] = joined[i][k] || joined[i][via] && joined[via][k]
				}
			}
		}
		order := rapid.Permutation(intsTo(n)).Draw(t, "order")
		shuffled, shuffledEnds := make([]gpu.Card, n), make([][]linkEnd, n)
		for to, from := range order {
			shuffled[to], shuffledEnds[to] = cards[from], ends[from]
		}
		group(cards, ends)
		group(shuffled, shuffledEnds)
		for i := range n {
			for k := range n {
				same := cards[i].NVLinkGroup != 0 && cards[i].NVLinkGroup == cards[k].NVLinkGroup
				if i != k && same != joined[i][k] {
					t.Fatalf("cards %d and %d: in one group %v, joined %v", i, k, same, joined[i][k])
				}
			}
		}
		for to, from := range order {
			if shuffled[to].NVLinkGroup != cards[from].NVLinkGroup {
				t.Fatalf("%s is in group %d, and in %d when the driver counts otherwise", cards[from].UUID, cards[from].NVLinkGroup, shuffled[to].NVLinkGroup)
			}
		}
	})
}

func intsTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

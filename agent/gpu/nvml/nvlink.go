package nvml

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// linkEnd is the other end of a GPU's NVLink: the GPU with a PCI address, or a switch.
// Every switch of a machine connects the same GPUs.
type linkEnd struct {
	pci      string
	toSwitch bool
}

// group numbers the sets of GPUs that links connect, directly or through others; ends[i]
// are the active links of cards[i]. A link to a GPU that is not here connects nothing.
func group(cards []gpu.Card, ends [][]linkEnd) {
	parent := make([]int, len(cards))
	for i := range parent {
		parent[i] = i
	}
	root := func(i int) int {
		for parent[i] != i {
			i = parent[i]
		}
		return i
	}
	byPCI := make(map[string]int, len(cards))
	for i := range cards {
		if cards[i].PCI != "" {
			byPCI[shortPCI(cards[i].PCI)] = i
		}
	}
	atSwitch := -1
	for i := range cards {
		for _, e := range ends[i] {
			k, ok := byPCI[shortPCI(e.pci)]
			if e.toSwitch {
				if atSwitch < 0 {
					atSwitch = i
				}
				k, ok = atSwitch, true
			}
			if ok {
				parent[root(i)] = root(k)
			}
		}
	}
	members := map[int][]int{}
	for i := range cards {
		members[root(i)] = append(members[root(i)], i)
	}
	var sets [][]int
	for _, set := range members {
		if len(set) > 1 {
			slices.SortFunc(set, func(a, b int) int { return cmp.Compare(cards[a].UUID, cards[b].UUID) })
			sets = append(sets, set)
		}
	}
	slices.SortFunc(sets, func(a, b []int) int { return cmp.Compare(cards[a[0]].UUID, cards[b[0]].UUID) })
	for n, set := range sets {
		for _, i := range set {
			cards[i].NVLinkGroup = n + 1
		}
	}
}

// shortPCI makes addresses comparable: calls of different age write the domain with four or
// with eight digits.
func shortPCI(pci string) string {
	domain, rest, ok := strings.Cut(strings.ToLower(pci), ":")
	if !ok {
		return ""
	}
	return strings.TrimLeft(domain, "0") + ":" + rest
}

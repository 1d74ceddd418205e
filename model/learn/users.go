package learn

import (
	"maps"
	"slices"
)

// userShare is how much of the whole weight one user's samples may have, where
// there are enough other users; userLeast how many they may weigh like in any
// case.
const userShare, userLeast = 0.25, 100

// userCap is the most that one user's samples may weigh together, given how many
// each has: the cap at which those who reach it have userShare of what all weigh
// under it, or as much as each other where there are fewer than four.
func userCap(perUser map[string]int) float64 {
	counts := slices.Sorted(maps.Values(perUser))
	share := max(userShare, 1/float64(len(counts)))
	below := 0.0
	for i, n := range counts { // if those from i on reach the cap
		if rest := 1 - float64(share*float64(len(counts)-i)); rest > 0 {
			if most := share * below / rest; most <= float64(n) {
				return max(most, userLeast)
			}
		}
		below += float64(n)
	}
	return below
}

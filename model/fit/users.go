package fit

import (
	"maps"
	"slices"
)

// userShare is how much of the whole weight one user's samples may have, where
// there are enough other users; userLeast how many they may weigh like in any
// case.
const userShare, userLeast = 0.25, 20

// UserCap is the most that one user's samples may weigh together, given how much
// each user's do: the cap at which those who reach it have a quarter of what all
// weigh under it, or as much as each other where there are fewer than four; 20 in any
// case.
func UserCap(perUser map[string]float64) float64 {
	weights := slices.Sorted(maps.Values(perUser))
	share := max(userShare, 1/float64(len(weights)))
	below := 0.0
	for i, w := range weights { // if those from i on reach the cap
		if rest := 1 - float64(share*float64(len(weights)-i)); rest > 0 {
			if most := float64(share*below) / rest; most <= w {
				return max(most, userLeast)
			}
		}
		below += w
	}
	return below
}

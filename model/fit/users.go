package fit

import (
	"maps"
	"slices"
)

// userShare is the fraction of the total weight that one user's samples may have,
// if there are enough other users; userLeast the weight that they may have in any
// case.
const userShare, userLeast = 0.25, 20

// UserCap returns the maximum total weight of one user's samples, given each user's
// weight: the cap at which those who reach it have a quarter of the capped total,
// or equal parts if there are fewer than four users; 20 in any case.
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

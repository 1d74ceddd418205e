package learn

import (
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/model"
)

const (
	// userShare is how much of the whole weight one user's samples may have, where
	// there are enough other users; userLeast how many they may weigh like in any
	// case.
	userShare, userLeast = 0.25, 20
	// jobRuns is how many runs of one job on one GPU type count: more of them say
	// nothing of other jobs.
	jobRuns = 4
)

// weigh gives each row its weight, so that neither a job that runs all the time
// nor a user decides alone.
func weigh(rows []row, samples []model.Sample) {
	type job struct{ signature, gpu string }
	runs := make(map[job]int)
	for i := range rows {
		runs[job{samples[rows[i].sample].Signature, rows[i].gpu}]++
	}
	perUser := make(map[string]float64)
	for i := range rows {
		r := &rows[i]
		s := &samples[r.sample]
		r.weight = 1
		if s.Signature != "" {
			r.weight = min(1, jobRuns/float64(runs[job{s.Signature, r.gpu}]))
		}
		perUser[s.User] += r.weight
	}
	most := userCap(perUser)
	for i := range rows {
		rows[i].weight *= min(1, most/perUser[samples[rows[i].sample].User])
	}
}

// userCap is the most that one user's samples may weigh together, given how much
// each user's do: the cap at which those who reach it have userShare of what all
// weigh under it, or as much as each other where there are fewer than four.
func userCap(perUser map[string]float64) float64 {
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

package learn

import (
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/fit"
)

// jobRuns is how many runs of one job on one GPU type count: more of them say
// nothing about other jobs.
const jobRuns = 4

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
	most := fit.UserCap(perUser)
	for i := range rows {
		rows[i].weight *= min(1, most/perUser[samples[rows[i].sample].User])
	}
}

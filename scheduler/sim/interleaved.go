package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/scheduler/policies"
)

// Interleaved is the speed model of the published simulator of Muri (Zhao et
// al., SIGCOMM 2022, section 4.1): jobs that share a card do one iteration each
// in a common period, see policies.Period and policies.Contention. The speed of
// each is its own iteration over that, so that a job with short iterations
// pays dearly for a neighbour with long ones. Jobs whose stages or iterations
// are not known take turns, and so do more than four.
type Interleaved struct{}

// Name implements Interference.
func (Interleaved) Name() string { return "interleaved stages of Muri" }

// CapsWork implements Interference.
func (Interleaved) CapsWork() bool { return false }

// Speeds implements Interference.
func (Interleaved) Speeds(_ string, loads []Load, out []float64) {
	n := len(loads)
	unknown := func(l Load) bool { return l.Iteration <= 0 || l.Stages == [3]int64{} }
	if n > 4 || slices.ContainsFunc(loads, unknown) {
		for i := range out {
			out[i] = 1 / float64(n)
		}
		return
	}
	group := make([]policies.Stages, n)
	for i := range loads {
		group[i] = stagesOf(loads[i].Stages, loads[i].Iteration)
	}
	period := float64(policies.Period(group)) * float64(policies.Contention(n)) / 1000
	for i := range out {
		out[i] = min(1, float64(loads[i].Iteration)/period)
	}
}

// stagesOf is how long the stages of an iteration take.
func stagesOf(parts [3]int64, iteration time.Duration) (s policies.Stages) {
	for k := range s {
		s[k] = iteration * time.Duration(parts[k]) / 1000
	}
	return s
}

// signature names the program of a job to those who learn how programs slow
// each other down.
func (j *Job) signature() string { return fmt.Sprintf("%s/%d", j.Model, j.GPUs) }

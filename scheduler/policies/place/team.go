package place

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// Teamer is a placer that forms groups of jobs with equally many GPUs each, which
// share all of them.
type Teamer interface {
	// Speeds appends how fast each of a group on GPUs of a class runs, one job
	// alone being 1. It depends on nothing but teams.kindOf of each.
	Speeds(p *scene.Scene, class int32, group []Member, out []float64) []float64
}

// Member is a job of a team.
type Member struct {
	ID    cluster.JobID
	Task  *scene.Task // of a waiting job
	Run   int32       // of a running one, otherwise -1
	Job   *cluster.Job
	Share cluster.Share
	Est   cluster.Estimate
	CPU   int64
	Kind  int32
}

// MostKinds bounds teams.
const MostKinds = 8

// teamGain is what a merged team must get done beyond what the faster of the two
// would alone, in jobs alone.
const teamGain = 0.1

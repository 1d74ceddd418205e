package jobs

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
)

// CancelReason is why a job ended that somebody cancelled.
func CancelReason(j *cluster.Job) cluster.Reason {
	if a := j.Last(); a != nil && a.Idle != nil && a.Idle.Stage == cluster.IdleEnded {
		return cluster.Reason{Code: cluster.ReasonIdle, Detail: "ended by its partition's policy: its GPUs stood idle"}
	}
	if j.Cancel != nil && j.Cancel.Admin {
		return cluster.Reason{Code: cluster.ReasonByAdmin}
	}
	return cluster.Reason{Code: cluster.ReasonByUser}
}

// Expired reports whether the deadline of a job has passed.
func Expired(j *cluster.Job, now cluster.Time) bool {
	return j.Spec.Deadline > 0 && j.Spec.Deadline <= now
}

// EndLate ends j, a changed copy of old that would wait and whose deadline has
// passed.
func EndLate(r *Roll, old, j *cluster.Job, freed []cluster.GPUID) {
	j.Hold = nil
	j.State, j.Reason = cluster.JobDeadline, cluster.Reason{Code: cluster.ReasonDeadline, Detail: "its deadline passed before it could start"}
	r.Change(old, j, command.Change{Released: freed})
}

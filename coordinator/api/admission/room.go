package admission

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
)

// RoomFor bounds the jobs that wait.
func (a *Admission) RoomFor(who authorize.Caller, n int) error {
	counts := a.fsm.Counts()
	if waiting := counts[cluster.JobPending] + counts[cluster.JobQueued]; waiting+n > a.cfg.MaxQueued {
		return cluster.Errorf(cluster.CodeExhausted, "%d jobs wait and %d more are asked for, at most %d may wait in all (limits.queued_total); submit again when some have started", waiting, n, a.cfg.MaxQueued)
	}
	return a.roomForUser(who, n)
}

// roomForUser bounds the jobs of one user, so that a script that runs away does
// not fill the state.
func (a *Admission) roomForUser(who authorize.Caller, n int) error {
	if has := a.fsm.UserJobs(who.UID); has+n > a.cfg.MaxPerUser {
		return cluster.Errorf(cluster.CodeExhausted, "AssocMaxSubmitJobLimit: user %d has %d jobs that wait or run and asks for %d more, at most %d are allowed (limits.jobs_per_user); submit again when some have ended", who.UID, has, n, a.cfg.MaxPerUser)
	}
	return nil
}

// RoomForBytes bounds what the specs of one user's jobs, and of all, take in the
// state, in memory or beside it on the disk.
func (a *Admission) RoomForBytes(who authorize.Caller, jobs []*cluster.Job) error {
	user, all, more := a.fsm.UserBytes(who.UID, jobs)
	switch {
	case user+more > a.cfg.MaxBytesPerUser:
		return cluster.Errorf(cluster.CodeExhausted, "AssocMaxSubmitJobLimit: environments, scripts and arguments of user %d's jobs that wait or run take %d KiB and %d more are asked for, at most %d are allowed (limits.spec_mib_per_user); "+
			"equal environments with equal scripts count once: use an array, keep data in files, or submit again when some have ended", who.UID, user>>10, more>>10, a.cfg.MaxBytesPerUser>>10)
	case all+more > a.cfg.MaxBytes:
		return cluster.Errorf(cluster.CodeExhausted, "environments, scripts and arguments of all jobs that wait or run take %d MiB, at most %d are allowed (limits.spec_mib_total); submit again when some have ended", all>>20, a.cfg.MaxBytes>>20)
	}
	return nil
}

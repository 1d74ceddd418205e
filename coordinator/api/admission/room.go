package admission

import (
	"sync"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
)

// entering counts jobs of requests that were let in and may not be in the state yet, so that
// of many requests at once no two are let into the same room.
type entering struct {
	mu  sync.Mutex
	all int
	of  map[cluster.UID]some
}

// some are jobs, and arrays of services among them.
type some struct{ jobs, services int }

// count adds jobs of a user.
func (e *entering) count(uid cluster.UID, n some) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == nil {
		e.of = map[cluster.UID]some{}
	}
	has := e.of[uid]
	e.all += n.jobs
	e.of[uid] = some{has.jobs + n.jobs, has.services + n.services}
	if e.of[uid] == (some{}) {
		delete(e.of, uid)
	}
}

// counts is how many a user has, and how many jobs all have.
func (e *entering) counts(uid cluster.UID) (user some, all int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of[uid], e.all
}

// RoomFor bounds the jobs that wait, with those that are about to.
func (a *Admission) RoomFor(who authorize.Caller, n int) error {
	user, all := a.entering.counts(who.UID)
	return a.room(who, n, user.jobs, all)
}

// TakeRoom bounds the jobs of a request that were let in one by one, and keeps the room until
// leave is called: once they are in the state, or will not be.
func (a *Admission) TakeRoom(e *Entry) (leave func(), err error) {
	uid, n := e.Who.UID, some{e.Jobs(), e.services}
	a.entering.count(uid, n)
	leave = sync.OnceFunc(func() { a.entering.count(uid, some{-n.jobs, -n.services}) })
	user, all := a.entering.counts(uid)
	if err = a.room(e.Who, n.jobs, user.jobs-n.jobs, all-n.jobs); err == nil && n.services > 0 {
		err = a.roomForServices(e.Who, n.services, user.services-n.services, e.mostServices)
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// room bounds the jobs that wait where so many of the user's, and of all, are about to.
func (a *Admission) room(who authorize.Caller, n, user, all int) error {
	counts := a.fsm.Counts()
	if waiting := counts[cluster.JobPending] + counts[cluster.JobQueued] + all; waiting+n > a.cfg.MaxQueued {
		return cluster.Errorf(cluster.CodeExhausted, "%d jobs wait and %d more are asked for, at most %d may wait in all (limits.queued_total); submit again when some have started", waiting, n, a.cfg.MaxQueued)
	}
	return a.roomForUser(who, n, user)
}

// roomForUser bounds the jobs of one user, so that a script that runs away does
// not fill the state; so many others are about to be there.
func (a *Admission) roomForUser(who authorize.Caller, n, others int) error {
	if has := a.fsm.UserJobs(who.UID) + others; has+n > a.cfg.MaxPerUser {
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

package admission

import (
	"context"
	"sync"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
)

// entering counts jobs of admitted requests that may not be in the state yet, so
// that of many simultaneous requests no two are admitted to the same room. Some are
// in both for a moment.
type entering struct {
	mu  sync.Mutex
	all int
	of  map[cluster.UID]some
	// left is closed when some are no longer counted; nil while no request waits
	// for that.
	left chan struct{}
}

// some counts jobs, and the arrays of services among them.
type some struct{ jobs, services int }

// count adds jobs of a user; mu is held.
func (e *entering) count(uid cluster.UID, n some) {
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

// leave stops counting jobs of a user.
func (e *entering) leave(uid cluster.UID, n some) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count(uid, some{-n.jobs, -n.services})
	if e.left != nil {
		close(e.left)
		e.left = nil
	}
}

// RoomFor bounds the waiting jobs.
func (a *Admission) RoomFor(who authorize.Caller, n int) error { return a.room(who, n, 0, 0) }

// TakeRoom bounds the jobs of a request that were admitted one by one, and holds
// the room until leave is called: once they are in the state, or will not be. If
// others about to be there may have taken it, it waits until that is known.
func (a *Admission) TakeRoom(ctx context.Context, e *Entry) (leave func(), err error) {
	uid, n := e.Who.UID, some{e.Jobs(), e.services}
	for {
		left, err := a.tryRoom(e, n)
		switch {
		case err == nil:
			return sync.OnceFunc(func() { a.entering.leave(uid, n) }), nil
		case left == nil:
			return nil, err
		}
		select {
		case <-left:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// tryRoom takes room for n jobs of a request. If jobs about to be there are in the
// way, left is closed when some of these are no longer counted.
func (a *Admission) tryRoom(e *Entry, n some) (left <-chan struct{}, err error) {
	in := &a.entering
	in.mu.Lock()
	defer in.mu.Unlock()
	if err := a.roomBeside(e, n, in.of[e.Who.UID], in.all); err != nil {
		if in.all == 0 || a.roomBeside(e, n, some{}, 0) != nil {
			return nil, err
		}
		if in.left == nil {
			in.left = make(chan struct{})
		}
		return in.left, err
	}
	in.count(e.Who.UID, n)
	return nil, nil
}

// roomBeside checks the room for jobs and services if so many of the user's, and of
// all, are about to be there.
func (a *Admission) roomBeside(e *Entry, n, user some, all int) error {
	if err := a.room(e.Who, n.jobs, user.jobs, all); err != nil || n.services == 0 {
		return err
	}
	return a.roomForServices(e.Who, n.services, user.services, e.mostServices)
}

// room bounds the waiting jobs if so many of the user's, and of all, are about to
// be there.
func (a *Admission) room(who authorize.Caller, n, user, all int) error {
	counts := a.fsm.Counts()
	if waiting := counts[cluster.JobPending] + counts[cluster.JobQueued] + all; waiting+n > a.cfg.MaxQueued {
		return cluster.Errorf(cluster.CodeExhausted, "%d jobs wait and %d more are submitted, at most %d may wait in total (limits.queued_total); submit again when some have started", waiting, n, a.cfg.MaxQueued)
	}
	return a.roomForUser(who, n, user)
}

// roomForUser bounds the jobs of one user, so that a runaway script does not fill
// the state; so many others are about to be there.
func (a *Admission) roomForUser(who authorize.Caller, n, others int) error {
	if has := a.fsm.UserJobs(who.UID) + others; has+n > a.cfg.MaxPerUser {
		return cluster.Errorf(cluster.CodeExhausted, "AssocMaxSubmitJobLimit: user %d has %d waiting and running jobs and submits %d more, at most %d are allowed (limits.jobs_per_user); submit again when some have ended", who.UID, has, n, a.cfg.MaxPerUser)
	}
	return nil
}

// RoomForBytes bounds what the specs of one user's jobs, and of all, take in the
// state, in memory or on the disk.
func (a *Admission) RoomForBytes(who authorize.Caller, jobs []*cluster.Job) error {
	user, all, more := a.fsm.UserBytes(who.UID, jobs)
	switch {
	case user+more > a.cfg.MaxBytesPerUser:
		return cluster.Errorf(cluster.CodeExhausted, "AssocMaxSubmitJobLimit: environments, scripts and arguments of user %d's waiting and running jobs take %d KiB and %d more are submitted, at most %d are allowed (limits.spec_mib_per_user); equal environments with equal scripts count once: use an array, keep data in files, or submit again when some have ended", who.UID, user>>10, more>>10, a.cfg.MaxBytesPerUser>>10)
	case all+more > a.cfg.MaxBytes:
		return cluster.Errorf(cluster.CodeExhausted, "environments, scripts and arguments of all waiting and running jobs take %d MiB, at most %d are allowed (limits.spec_mib_total); submit again when some have ended", all>>20, a.cfg.MaxBytes>>20)
	}
	return nil
}

package fsm

import (
	"crypto/sha256"

	"github.com/berth-scheduler/berth/cluster"
)

// specBytes is how many bytes of specs users have in jobs that wait or run, and in
// arrays of which the state knows a task. An environment with its script that is
// kept apart counts once for each user, however many jobs have it.
type specBytes struct {
	users map[cluster.UID]*userBytes
	total int64
}

type userBytes struct {
	bytes int64
	bulk  map[[sha256.Size]byte]int // jobs and arrays that have it
}

func newSpecBytes() specBytes { return specBytes{users: map[cluster.UID]*userBytes{}} }

// add counts a spec of a user once more, or with n -1 once less.
func (w *specBytes) add(uid cluster.UID, s *cluster.Spec, n int) {
	u := w.users[uid]
	if u == nil {
		u = &userBytes{}
		w.users[uid] = u
	}
	own, bulk := s.Weight()
	if s.Bulk != nil {
		if u.bulk == nil {
			u.bulk = map[[sha256.Size]byte]int{}
		}
		sum := s.Bulk.Sum()
		was := u.bulk[sum]
		if u.bulk[sum] = was + n; was+n == 0 {
			delete(u.bulk, sum)
		}
		if was > 0 && was+n > 0 {
			bulk = 0 // another one has it too
		}
	}
	u.bytes += int64(n) * (own + bulk)
	w.total += int64(n) * (own + bulk)
	if u.bytes == 0 && len(u.bulk) == 0 {
		delete(w.users, uid)
	}
}

// weigh counts the spec of j, which takes the place of old and is no task.
func (s *State) weigh(old, j *cluster.Job) {
	was := old != nil && !old.State.Terminal()
	is := !j.State.Terminal()
	if was && is && old.Spec == j.Spec {
		return
	}
	if was {
		s.standing.specs.add(old.Owner.UID, old.Spec, -1)
	}
	if is {
		s.standing.specs.add(j.Owner.UID, j.Spec, 1)
	}
}

// UserBytes returns how many bytes the specs of a user's jobs take that wait or
// run, and those of all users. Of the specs in next it returns how many more they
// would take.
func (f *FSM) UserBytes(uid cluster.UID, next []*cluster.Job) (user, all, more int64) {
	bulks := map[[sha256.Size]byte]int64{} // summed without the lock, which takes a while
	for _, j := range next {
		own, bulk := j.Spec.Weight()
		if more += own; bulk > 0 {
			bulks[cluster.BulkSum(j.Spec.Large())] = bulk
		}
	}
	f.Read(func(s *State) {
		u := s.standing.specs.users[uid]
		if u == nil {
			u = &userBytes{}
		}
		user, all = u.bytes, s.standing.specs.total
		for sum, bulk := range bulks {
			if u.bulk[sum] == 0 {
				more += bulk
			}
		}
	})
	return user, all, more
}

package screen

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// mostEnded is how many jobs are kept that ended while the screen was up.
const mostEnded = 1000

// entry is a job, or identical tasks of an array, with the text that filters search.
type entry struct {
	job  *apiv1.Job
	name string // clean
	low  string // the text that filters search, in lower case
	rank int
}

// store is all jobs that are known.
type store struct {
	byID   map[uint64]*entry
	arrays map[uint64]map[uint64]*entry
	ended  int
}

func newStore() store {
	return store{byID: map[uint64]*entry{}, arrays: map[uint64]map[uint64]*entry{}}
}

// reset forgets the jobs that have not ended: a full list follows.
func (s *store) reset() {
	for id, e := range s.byID {
		if e.rank < rankEnded {
			s.remove(id)
		}
	}
}

const (
	rankRunning = iota
	rankQueued
	rankPending
	rankEnded
)

func rankOf(state string) int {
	switch {
	case console.Terminal(state):
		return rankEnded
	case !console.Waiting(state):
		return rankRunning
	case state == cluster.JobQueued.String():
		return rankQueued
	}
	return rankPending
}

// put keeps a job as it is now, and returns it as it was before.
func (s *store) put(j *apiv1.Job) *apiv1.Job {
	id := j.GetId()
	var was *apiv1.Job
	if e := s.byID[id]; e != nil {
		if e.job.GetRevision() > j.GetRevision() {
			return e.job // from a coordinator that is behind
		}
		was = e.job
		s.remove(id)
	}
	if j.GetArrayCount() > 1 {
		s.absorb(j)
	}
	e := &entry{job: j, name: clean(j.GetName()), rank: rankOf(j.GetState())}
	e.low = strings.ToLower(strings.Join([]string{client.JobLabel(j), e.name, clean(j.GetUser()), j.GetState(), console.StateCode(j.GetState()),
		clean(j.GetPartition()), clean(j.GetAccount()), clean(console.NodesOf(j)), clean(j.GetReason())}, "\x00"))
	s.byID[id] = e
	if e.rank == rankEnded {
		s.ended++
	}
	if a := j.GetArrayJobId(); a != 0 {
		if s.arrays[a] == nil {
			s.arrays[a] = map[uint64]*entry{}
		}
		s.arrays[a][id] = e
	}
	return was
}

func (s *store) remove(id uint64) {
	e := s.byID[id]
	delete(s.byID, id)
	if e.rank == rankEnded {
		s.ended--
	}
	if a := e.job.GetArrayJobId(); a != 0 {
		if delete(s.arrays[a], id); len(s.arrays[a]) == 0 {
			delete(s.arrays, a)
		}
	}
}

// absorb forgets tasks that j now stands for, which were listed singly or with others.
func (s *store) absorb(j *apiv1.Job) {
	tasks, err := cluster.ParseTasks(j.GetArrayTasks())
	if err != nil {
		return
	}
	for id, e := range s.arrays[j.GetArrayJobId()] {
		if e.job.GetRevision() > j.GetRevision() {
			continue
		}
		inside := false
		if e.job.GetArrayCount() > 1 {
			if of, err := cluster.ParseTasks(e.job.GetArrayTasks()); err == nil {
				n := 0
				for _, sp := range tasks.In(&of) {
					n += int(sp.To) - int(sp.From) + 1
				}
				inside = n == of.Len()
			}
		} else {
			_, inside = tasks.Rank(e.job.GetArrayTaskId())
		}
		if inside {
			s.remove(id)
		}
	}
}

// forget drops the jobs that ended first, once there are many.
func (s *store) forget() {
	if s.ended <= mostEnded+mostEnded/10 {
		return
	}
	var ended []*entry
	for _, e := range s.byID {
		if e.rank == rankEnded {
			ended = append(ended, e)
		}
	}
	slices.SortFunc(ended, func(a, b *entry) int {
		return cmp.Or(a.job.GetEnded().AsTime().Compare(b.job.GetEnded().AsTime()), cmp.Compare(a.job.GetId(), b.job.GetId()))
	})
	for _, e := range ended[:len(ended)-mostEnded] {
		s.remove(e.job.GetId())
	}
}

// count is how many tasks an entry stands for.
func (e *entry) count() int { return int(max(1, e.job.GetArrayCount())) }

// isMine reports whether the job belongs to the user of the screen.
func (s *Screen) isMine(j *apiv1.Job) bool {
	return s.cfg.Me != "" && (j.GetUser() == s.cfg.Me || strconv.FormatUint(uint64(j.GetUid()), 10) == s.cfg.Me)
}

// labels lists jobs by their labels, tasks of arrays as 12_3.
func (s *store) labels(ids []uint64) string {
	if len(ids) == 0 {
		return console.IDList(ids)
	}
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = strconv.FormatUint(id, 10)
		if e := s.byID[id]; e != nil {
			out[i] = client.JobLabel(e.job)
		}
	}
	return strings.Join(out, ", ")
}

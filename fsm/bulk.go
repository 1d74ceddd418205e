package fsm

import (
	"errors"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/blobs"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// bulkNamed is the environment with its script that a record or a spec names.
func (s *State) bulkNamed(sum []byte) cluster.Bulk { return s.blobs.Named(s.now, sum) }

// intern makes a new or restored job share what it can, and moves what is large out
// of its spec; that of an array is its own.
func (s *State) intern(j *cluster.Job) {
	if !j.InArray() {
		s.blobs.Apart(s.now, j.Spec)
	}
	s.texts.Job(j)
}

// refuseSpec refuses a command for a spec of it, which is called what.
func refuseSpec(what string, err error) Result {
	if errors.Is(err, conv.ErrNoBulk) {
		r := refuse(cluster.CodeUnavailable, "%s: its environment and script are not in the state any more; nothing was done; try again", what)
		r.LacksBulk = true
		return r
	}
	return refuse(cluster.CodeInvalid, "%s: %v", what, err)
}

// jobRecord is the stored form of a job, arrayRecord that of an array. From
// version 12 on they name what is large.
func (s *State) jobRecord(j *cluster.Job) *logv1.Job {
	if s.format < command.BulkVersion {
		return conv.JobToLog(j)
	}
	return conv.JobNaming(j)
}

func (s *State) arrayRecord(a *array) *logv1.ArrayRecord {
	if s.format < command.BulkVersion {
		return a.record(conv.SpecToLog(a.spec))
	}
	return a.record(conv.SpecNaming(a.spec))
}

// rehashBulks digests anew what has another stored form from now on.
func (s *State) rehashBulks() {
	for _, a := range s.arrays {
		if a.spec.Bulk != nil {
			s.digests.arrays.Touch(a.id)
		}
	}
	for j := range s.withBulk() {
		s.digests.jobs.Touch(j.ID)
	}
}

// withBulk are the jobs by themselves that have something large.
func (s *State) withBulk() func(yield func(*cluster.Job) bool) {
	return func(yield func(*cluster.Job) bool) {
		jobs.Merge([]*jobs.Set{&s.jobs}, 0, func(j *cluster.Job) bool {
			return j.InArray() || j.Spec.Bulk == nil || yield(j)
		})
	}
}

// named is what records name that is large.
func (s *State) named() map[blobs.Sum]cluster.Bulk {
	all := map[blobs.Sum]cluster.Bulk{}
	if s.format < command.BulkVersion {
		return all
	}
	for _, a := range s.arrays {
		if b := a.spec.Bulk; b != nil {
			all[b.Sum()] = b
		}
	}
	for j := range s.withBulk() {
		all[j.Spec.Bulk.Sum()] = j.Spec.Bulk
	}
	return all
}

package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// maxPartitions bounds how many there may be: each is a pass of its own.
const maxPartitions = 256

// Partitions returns the partitions by name; none when the cluster is one.
func (f NodesReader) Partitions() []*cluster.Partition { return read(f.held, (*State).Partitions) }

// Partitions returns the partitions by name.
func (s *State) Partitions() []*cluster.Partition { return s.fleet.Partitions() }

// Partition returns a partition.
func (f NodesReader) Partition(name string) (*cluster.Partition, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p := f.st.fleet.Partition(name)
	return p, p != nil
}

// setPartition puts a partition in place of the one that it was made from.
// Jobs of it that may not wait where they stand leave the queue.
func (s *State) setPartition(index uint64, c *logv1.SetPartition) Result {
	p, err := conv.PartitionFromLog(c.Partition)
	if err != nil {
		return refuse(cluster.CodeInvalid, "%v", err)
	}
	old := s.fleet.Partition(p.Name)
	switch {
	case old == nil && c.Base != 0:
		return refuse(cluster.CodeConflict, "partition %s was removed meanwhile", p.Name)
	case old != nil && c.Base != old.Revision:
		return refuse(cluster.CodeConflict, "partition %s was changed meanwhile", p.Name)
	case old == nil && len(s.fleet.Partitions()) >= maxPartitions:
		return refuse(cluster.CodeExhausted, "there are %d partitions, at most %d are allowed", len(s.fleet.Partitions()), maxPartitions)
	}
	if p.Default {
		for _, o := range s.fleet.Partitions() {
			if o.Default && o.Name != p.Name {
				less := *o
				less.Default, less.Revision = false, index
				s.fleet.PutPartition(&less)
			}
		}
	}
	p.Revision = index
	s.fleet.PutPartition(p)
	s.fleet.MarkShared()
	s.resettle(index, p, old != nil && old.Down)
	s.roll.Changed(Change{Partition: p.Name})
	return Result{}
}

// resettle takes waiting jobs of p out of queues in which they may not stand
// any more, and says of all of them whether they wait for p to come up.
func (s *State) resettle(index uint64, p *cluster.Partition, wasDown bool) {
	es := jobs.Edits{}
	for _, old := range s.roll.InStates(cluster.JobPending, cluster.JobQueued) {
		if old.Spec.Partition != p.Name {
			continue
		}
		stays := old.Queue != "" && !p.Down && s.fleet.InPartition(p, old.Queue)
		why := cluster.ReasonUnconfirmed
		if p.Down {
			why = cluster.ReasonPartitionDown
		}
		if stays || old.Queue == "" && p.Down == wasDown || old.Barred(s.at.Now).Code != "" {
			continue
		}
		j := old.Clone()
		if old.Queue != "" {
			es.Drop(old.Queue, j.ID)
		}
		j.State, j.Queue, j.EstStart = cluster.JobPending, "", 0
		j.Reason, j.Revision = cluster.Reason{Code: why}, index
		s.roll.Change(old, j, Change{New: true})
	}
	s.roll.Queues.Commit(es)
}

// removePartition forgets a partition of which no job waits or runs.
func (s *State) removePartition(c *logv1.RemovePartition) Result {
	if s.fleet.Partition(c.Name) == nil {
		return refuse(cluster.CodeNotFound, "partition %q is not known; see: berth partition list", c.Name)
	}
	waiting, live := s.jobsOf(c.Name)
	if waiting+live > 0 {
		return refuse(cluster.CodeConflict, "partition %s has %d jobs that wait and %d that run; set it down, and cancel them or wait for their end", c.Name, waiting, live)
	}
	s.fleet.DropPartition(c.Name)
	s.roll.Changed(Change{Partition: c.Name})
	return Result{}
}

// jobsOf counts the jobs of a partition that have not ended.
func (s *State) jobsOf(name string) (waiting, live int) {
	for _, j := range s.roll.InStates(cluster.JobPending, cluster.JobQueued, cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable) {
		switch {
		case j.Spec.Partition != name:
		case j.State.Waiting():
			waiting++
		default:
			live++
		}
	}
	return waiting, live
}

// PartitionJobs counts the jobs of each partition that have not ended.
func (f JobsReader) PartitionJobs() (waiting, live map[string]int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	waiting, live = map[string]int{}, map[string]int{}
	for _, j := range f.st.roll.InStates(cluster.JobPending, cluster.JobQueued, cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable) {
		if j.State.Waiting() {
			waiting[j.Spec.Partition]++
		} else {
			live[j.Spec.Partition]++
		}
	}
	return waiting, live
}

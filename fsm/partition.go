package fsm

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// maxPartitions bounds how many there may be: each is a pass of its own.
const maxPartitions = 256

// Partitions returns the partitions by name; none when the cluster is one.
func (f *FSM) Partitions() []*cluster.Partition {
	return read(f, (*State).Partitions)
}

// Partition returns a partition.
func (f *FSM) Partition(name string) (*cluster.Partition, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p, ok := f.st.parts[name]
	return p, ok
}

// Partitions returns the partitions by name.
func (s *State) Partitions() []*cluster.Partition {
	if len(s.parts) == 0 {
		return nil
	}
	out := make([]*cluster.Partition, 0, len(s.parts))
	for _, name := range sortedKeys(s.parts) {
		out = append(out, s.parts[name])
	}
	return out
}

// setPartition puts a partition in place of the one that it was made from.
// Jobs of it that may not wait where they stand leave the queue.
func (s *State) setPartition(index uint64, c *logv1.SetPartition) Result {
	p, err := conv.PartitionFromLog(c.Partition)
	if err != nil {
		return refuse(cluster.CodeInvalid, "%v", err)
	}
	old := s.parts[p.Name]
	switch {
	case old == nil && c.Base != 0:
		return refuse(cluster.CodeConflict, "partition %s was removed meanwhile", p.Name)
	case old != nil && c.Base != old.Revision:
		return refuse(cluster.CodeConflict, "partition %s was changed meanwhile", p.Name)
	case old == nil && len(s.parts) >= maxPartitions:
		return refuse(cluster.CodeExhausted, "there are %d partitions, at most %d are allowed", len(s.parts), maxPartitions)
	}
	if p.Default {
		for _, name := range sortedKeys(s.parts) {
			if o := s.parts[name]; o.Default && name != p.Name {
				less := *o
				less.Default, less.Revision = false, index
				s.putPartition(&less)
			}
		}
	}
	p.Revision = index
	s.putPartition(p)
	s.markShared()
	s.resettle(index, p, old != nil && old.Down)
	s.changed(Change{Partition: p.Name})
	return Result{}
}

func (s *State) putPartition(p *cluster.Partition) {
	s.parts[p.Name] = p
	s.hash.rest.touch(entity{kindPartition, p.Name})
}

// resettle takes waiting jobs of p out of queues in which they may not stand
// any more, and says of all of them whether they wait for p to come up.
func (s *State) resettle(index uint64, p *cluster.Partition, wasDown bool) {
	es := edits{}
	for _, old := range s.inStates(cluster.JobPending, cluster.JobQueued) {
		if old.Spec.Partition != p.Name {
			continue
		}
		stays := old.Queue != "" && !p.Down && s.inPartition(p, old.Queue)
		why := cluster.ReasonUnconfirmed
		if p.Down {
			why = cluster.ReasonPartitionDown
		}
		if stays || old.Queue == "" && p.Down == wasDown || old.Barred(s.now).Code != "" {
			continue
		}
		j := old.Clone()
		if old.Queue != "" {
			es.of(old.Queue).drop[j.ID] = struct{}{}
		}
		j.State, j.Queue, j.EstStart = cluster.JobPending, "", 0
		j.Reason, j.Revision = cluster.Reason{Code: why}, index
		s.putJob(old, j)
		s.changed(Change{Job: j.ID, New: true})
	}
	s.commitEdits(es)
}

// inPartition tells whether a card belongs to p.
func (s *State) inPartition(p *cluster.Partition, gpu cluster.GPUID) bool {
	n := s.nodes[s.gpuNode[gpu]]
	if n == nil || !p.Nodes.Holds(n.ID) {
		return false
	}
	g := n.GPU(gpu)
	return g != nil && p.HasType(g.Type)
}

// removePartition forgets a partition of which no job waits or runs.
func (s *State) removePartition(c *logv1.RemovePartition) Result {
	if s.parts[c.Name] == nil {
		return refuse(cluster.CodeNotFound, "partition %q is not known; see: berth partition list", c.Name)
	}
	waiting, live := s.jobsOf(c.Name)
	if waiting+live > 0 {
		return refuse(cluster.CodeConflict, "partition %s has %d jobs that wait and %d that run; set it down, and cancel them or wait for their end", c.Name, waiting, live)
	}
	delete(s.parts, c.Name)
	s.shareAgain((&cluster.SharingOff{Partition: c.Name}).Key())
	s.hash.rest.touch(entity{kindPartition, c.Name})
	s.changed(Change{Partition: c.Name})
	return Result{}
}

// jobsOf counts the jobs of a partition that have not ended.
func (s *State) jobsOf(name string) (waiting, live int) {
	for _, j := range s.inStates(cluster.JobPending, cluster.JobQueued, cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable) {
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
func (f *FSM) PartitionJobs() (waiting, live map[string]int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	waiting, live = map[string]int{}, map[string]int{}
	for _, j := range f.st.inStates(cluster.JobPending, cluster.JobQueued, cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable) {
		if j.State.Waiting() {
			waiting[j.Spec.Partition]++
		} else {
			live[j.Spec.Partition]++
		}
	}
	return waiting, live
}

// noPartition refuses a job of a partition that is not there; what else the
// partition asks of its jobs is the leader's to check.
func (s *State) noPartition(spec *cluster.Spec) *cluster.Error {
	if spec.Partition == "" || s.parts[spec.Partition] != nil {
		return nil
	}
	return cluster.Errorf(cluster.CodeInvalid, "partition %q is not known; see: berth partition list", spec.Partition)
}

// waitsFor is why a job waits that nobody has looked at yet.
func (s *State) waitsFor(spec *cluster.Spec) cluster.Reason {
	if p := s.parts[spec.Partition]; p != nil && p.Down {
		return cluster.Reason{Code: cluster.ReasonPartitionDown}
	}
	return cluster.Reason{Code: cluster.ReasonUnconfirmed}
}

// outside tells where a berth is not the job's partition's, the zero Reason
// when it is.
func (s *State) outside(j *cluster.Job, b *cluster.Berth) cluster.Reason {
	p := s.parts[j.Spec.Partition]
	switch {
	case p == nil:
		return cluster.Reason{}
	case p.Down:
		return stale("partition %s is down", p.Name)
	case !p.Nodes.Holds(b.Node):
		return stale("node %s is not in partition %s", b.Node, p.Name)
	}
	if i := slices.IndexFunc(b.GPUs, func(g cluster.GPUShare) bool { return !s.inPartition(p, g.GPU) }); i >= 0 {
		return stale("GPU %s is not in partition %s", b.GPUs[i].GPU, p.Name)
	}
	return cluster.Reason{}
}

// outsideQueue tells why a job may not wait for a card.
func (s *State) outsideQueue(j *cluster.Job, gpu cluster.GPUID) cluster.Reason {
	p := s.parts[j.Spec.Partition]
	switch {
	case p == nil:
		return cluster.Reason{}
	case p.Down:
		return stale("partition %s is down", p.Name)
	case !s.inPartition(p, gpu):
		return stale("GPU %s is not in partition %s", gpu, p.Name)
	}
	return cluster.Reason{}
}

func (s *State) loadPartition(m *logv1.Partition) error {
	p, err := conv.PartitionFromLog(m)
	if err != nil {
		return err
	}
	s.putPartition(p)
	return nil
}

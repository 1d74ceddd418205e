package site

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// maxPartitions bounds the partitions: each is a pass of its own.
const maxPartitions = 256

// setPartition replaces the partition that the new one was made from. Its jobs
// leave queues in which they may no longer wait.
func (s *Staff) setPartition(c *logv1.SetPartition) command.Result {
	p, err := conv.PartitionFromLog(c.Partition)
	if err != nil {
		return command.Refuse(cluster.CodeInvalid, "%v", err)
	}
	old := s.fleet.Partition(p.Name)
	switch {
	case old == nil && c.Base != 0:
		return command.Refuse(cluster.CodeConflict, "partition %s was removed meanwhile", p.Name)
	case old != nil && c.Base != old.Revision:
		return command.Refuse(cluster.CodeConflict, "partition %s was changed meanwhile", p.Name)
	case old == nil && len(s.fleet.Partitions()) >= maxPartitions:
		return command.Refuse(cluster.CodeExhausted, "there are %d partitions, at most %d are allowed", len(s.fleet.Partitions()), maxPartitions)
	}
	if p.Default {
		for _, o := range s.fleet.Partitions() {
			if o.Default && o.Name != p.Name {
				less := *o
				less.Default, less.Revision = false, s.at.Index
				s.fleet.PutPartition(&less)
			}
		}
	}
	p.Revision = s.at.Index
	s.fleet.PutPartition(p)
	s.fleet.MarkShared()
	s.resettle(p, old != nil && old.Down)
	s.roll.Changed(command.Change{Partition: p.Name})
	return command.Result{}
}

// resettle takes waiting jobs of p out of queues in which they may no longer wait,
// and records for all of them whether they wait for p to come up.
func (s *Staff) resettle(p *cluster.Partition, wasDown bool) {
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
		j.State, j.Reason, j.Queue, j.EstStart = cluster.JobPending, cluster.Reason{Code: why}, "", 0
		s.roll.Change(old, j, command.Change{New: true})
	}
	s.roll.Queues.Commit(es)
}

// removePartition removes a partition without waiting or running jobs.
func (s *Staff) removePartition(c *logv1.RemovePartition) command.Result {
	if s.fleet.Partition(c.Name) == nil {
		return command.Refuse(cluster.CodeNotFound, "partition %q is not known; see: berth partition list", c.Name)
	}
	waiting, live := s.roll.ByPartition()
	if w, l := waiting[c.Name], live[c.Name]; w+l > 0 {
		return command.Refuse(cluster.CodeConflict, "partition %s has %d jobs that wait and %d that run; set it down, and cancel them or wait for their end", c.Name, w, l)
	}
	s.fleet.DropPartition(c.Name)
	s.roll.Changed(command.Change{Partition: c.Name})
	return command.Result{}
}

// setReservation replaces the reservation that the new one was made from, and
// removes those that have ended and that no job asks for.
func (s *Staff) setReservation(c *logv1.SetReservation) command.Result {
	r, err := conv.ReservationFromLog(c.Reservation)
	if err != nil {
		return command.Refuse(cluster.CodeInvalid, "%v", err)
	}
	old := s.fleet.Reservations().Get(r.Name)
	switch {
	case old == nil && c.Base != 0:
		return command.Refuse(cluster.CodeConflict, "reservation %s was removed meanwhile", r.Name)
	case old != nil && c.Base != old.Revision:
		return command.Refuse(cluster.CodeConflict, "reservation %s was changed meanwhile", r.Name)
	}
	for _, o := range s.fleet.Reservations() {
		if _, _, ok := o.Window(s.at.Now); !ok && o.Name != r.Name && s.asking(o.Name) == 0 {
			s.fleet.DropReservation(o.Name)
		}
	}
	if old == nil && len(s.fleet.Reservations()) >= dispatch.MaxReservations {
		return command.Refuse(cluster.CodeExhausted, "there are %d reservations, at most %d are allowed", len(s.fleet.Reservations()), dispatch.MaxReservations)
	}
	r.Revision = s.at.Index
	s.fleet.PutReservation(r)
	s.roll.Changed(command.Change{Reservation: r.Name})
	return command.Result{}
}

// removeReservation removes a reservation that no waiting job asks for; jobs that
// run inside go on.
func (s *Staff) removeReservation(c *logv1.RemoveReservation) command.Result {
	r := s.fleet.Reservations().Get(c.Name)
	if r == nil {
		return command.Refuse(cluster.CodeNotFound, "reservation %q is not known; see: berth reservation list", c.Name)
	}
	if n := s.asking(c.Name); n > 0 {
		return command.Refuse(cluster.CodeConflict, "reservation %s: jobs that have not ended ask for it, %d in all; cancel them, or change them with berth update", c.Name, n)
	}
	s.fleet.DropReservation(c.Name)
	s.roll.Changed(command.Change{Reservation: c.Name})
	return command.Result{}
}

// asking counts the unended jobs that ask for a reservation.
func (s *Staff) asking(name string) (n int) {
	for _, j := range s.roll.Unended() {
		if j.Spec.Where.InReservation() == name {
			n++
		}
	}
	return n
}

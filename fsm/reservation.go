package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Reservations returns the reservations by name, those that have ended, too.
func (f NodesReader) Reservations() cluster.Reservations {
	return read(f.held, (*State).Reservations)
}

// Reservations returns the reservations by name. The slice is replaced, never
// changed, when one of them does.
func (s *State) Reservations() cluster.Reservations { return s.fleet.Reservations() }

// SharingOff returns where sharing is switched off, by place.
func (f NodesReader) SharingOff() cluster.SharingSwitches {
	return read(f.held, func(s *State) cluster.SharingSwitches { return s.fleet.SharingOff() })
}

// setReservation puts a reservation in place of the one that it was made from,
// and forgets those that have ended and that nobody asks for.
func (s *State) setReservation(index uint64, c *logv1.SetReservation) Result {
	r, err := conv.ReservationFromLog(c.Reservation)
	if err != nil {
		return refuse(cluster.CodeInvalid, "%v", err)
	}
	old := s.fleet.Reservations().Get(r.Name)
	switch {
	case old == nil && c.Base != 0:
		return refuse(cluster.CodeConflict, "reservation %s was removed meanwhile", r.Name)
	case old != nil && c.Base != old.Revision:
		return refuse(cluster.CodeConflict, "reservation %s was changed meanwhile", r.Name)
	}
	s.forgetEnded(r.Name)
	if old == nil && len(s.fleet.Reservations()) >= cluster.MaxReservations {
		return refuse(cluster.CodeExhausted, "there are %d reservations, at most %d are allowed", len(s.fleet.Reservations()), cluster.MaxReservations)
	}
	r.Revision = index
	s.fleet.PutReservation(r)
	s.roll.Changed(Change{Reservation: r.Name})
	return Result{}
}

func (s *State) forgetEnded(but string) {
	for _, r := range s.fleet.Reservations() {
		if _, _, ok := r.Window(s.at.Now); !ok && r.Name != but && s.asking(r.Name) == 0 {
			s.fleet.DropReservation(r.Name)
		}
	}
}

// removeReservation forgets a reservation that no waiting job asks for; jobs
// that run inside go on.
func (s *State) removeReservation(c *logv1.RemoveReservation) Result {
	r := s.fleet.Reservations().Get(c.Name)
	if r == nil {
		return refuse(cluster.CodeNotFound, "reservation %q is not known; see: berth reservation list", c.Name)
	}
	if n := s.asking(c.Name); n > 0 {
		return refuse(cluster.CodeConflict, "reservation %s: %d jobs that have not ended ask for it; cancel them, or change theirs with berth update", c.Name, n)
	}
	s.fleet.DropReservation(c.Name)
	s.roll.Changed(Change{Reservation: c.Name})
	return Result{}
}

// asking counts the jobs that ask for a reservation and have not ended.
func (s *State) asking(name string) (n int) {
	for _, j := range s.roll.Unended() {
		if j.Spec.Where.InReservation() == name {
			n++
		}
	}
	return n
}

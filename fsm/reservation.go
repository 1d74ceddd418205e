package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Reservations returns the reservations by name, those that have ended, too.
func (f *FSM) Reservations() cluster.Reservations {
	return read(f, (*State).Reservations)
}

// Reservations returns the reservations by name. The slice is replaced, never
// changed, when one of them does.
func (s *State) Reservations() cluster.Reservations { return s.reserved }

// reservation returns the one of a name, or nil.
func (s *State) reservation(name string) *cluster.Reservation { return s.reserved.Get(name) }

// setReservation puts a reservation in place of the one that it was made from,
// and forgets those that have ended and that nobody asks for.
func (s *State) setReservation(index uint64, c *logv1.SetReservation) Result {
	r, err := conv.ReservationFromLog(c.Reservation)
	if err != nil {
		return refuse(cluster.CodeInvalid, "%v", err)
	}
	old := s.reservation(r.Name)
	switch {
	case old == nil && c.Base != 0:
		return refuse(cluster.CodeConflict, "reservation %s was removed meanwhile", r.Name)
	case old != nil && c.Base != old.Revision:
		return refuse(cluster.CodeConflict, "reservation %s was changed meanwhile", r.Name)
	}
	s.forgetEnded(r.Name)
	if old == nil && len(s.reserved) >= cluster.MaxReservations {
		return refuse(cluster.CodeExhausted, "there are %d reservations, at most %d are allowed", len(s.reserved), cluster.MaxReservations)
	}
	r.Revision = index
	s.putReservation(r)
	s.changed(Change{Reservation: r.Name})
	return Result{}
}

func (s *State) forgetEnded(but string) {
	for _, r := range s.reserved {
		if _, _, ok := r.Window(s.now); !ok && r.Name != but && s.asking(r.Name) == 0 {
			s.dropReservation(r.Name)
		}
	}
}

func (s *State) putReservation(r *cluster.Reservation) {
	out := make(cluster.Reservations, 0, len(s.reserved)+1)
	placed := false
	for _, o := range s.reserved {
		if !placed && o.Name >= r.Name {
			out, placed = append(out, r), true
		}
		if o.Name != r.Name {
			out = append(out, o)
		}
	}
	if !placed {
		out = append(out, r)
	}
	s.reserved = out
	s.hash.rest.touch(entity{kindReservation, r.Name})
}

func (s *State) dropReservation(name string) {
	out := make(cluster.Reservations, 0, len(s.reserved))
	for _, o := range s.reserved {
		if o.Name != name {
			out = append(out, o)
		}
	}
	s.reserved = out
	s.hash.rest.touch(entity{kindReservation, name})
}

// removeReservation forgets a reservation that no waiting job asks for; jobs
// that run inside go on.
func (s *State) removeReservation(c *logv1.RemoveReservation) Result {
	r := s.reservation(c.Name)
	if r == nil {
		return refuse(cluster.CodeNotFound, "reservation %q is not known; see: berth reservation list", c.Name)
	}
	if n := s.asking(c.Name); n > 0 {
		return refuse(cluster.CodeConflict, "reservation %s: %d jobs that have not ended ask for it; cancel them, or change theirs with berth update", c.Name, n)
	}
	s.dropReservation(c.Name)
	s.changed(Change{Reservation: c.Name})
	return Result{}
}

// asking counts the jobs that ask for a reservation and have not ended.
func (s *State) asking(name string) (n int) {
	for _, st := range unfinished {
		for _, j := range s.inStates(st) {
			if j.Spec.Where.InReservation() == name {
				n++
			}
		}
	}
	return n
}

// unfinished are the states of jobs that have not ended.
var unfinished = [...]cluster.JobState{cluster.JobPending, cluster.JobQueued, cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable}

func (s *State) loadReservation(m *logv1.Reservation) error {
	r, err := conv.ReservationFromLog(m)
	if err != nil {
		return err
	}
	s.putReservation(r)
	return nil
}

// elsewhere tells why a job may not lie on a berth, the zero Reason when it may:
// its nodes are not what it asks for, or reservations keep it away.
func (s *State) elsewhere(j *cluster.Job, st *cluster.Start) cluster.Reason {
	if j.Spec.Where == nil && len(s.reserved) == 0 {
		return cluster.Reason{}
	}
	if r := s.reserved.Outside(j, s.now); r.Code != "" {
		return r
	}
	named := 0
	for _, b := range st.Berths() {
		n := s.nodes[b.Node]
		if n == nil {
			return stale("node %s is gone", b.Node) // removed since it was planned
		}
		if why := j.Spec.Refuses(n); why != "" {
			return stale("node %s %s", b.Node, why)
		}
		if w := j.Spec.Where; w.Named() && w.Nodes.Holds(b.Node) {
			named++
		}
		if r := s.reserved.Keeps(j, b, s.now); r.Code != "" {
			return r
		}
		if r := s.notWhole(j, n, b); r.Code != "" {
			return r
		}
	}
	if w := j.Spec.Where; w.Named() && named < w.Nodes.Len() {
		return stale("%d of the nodes that it asks for were planned, it needs all of %s", named, w.Nodes)
	}
	return cluster.Reason{}
}

// notWhole tells what of a node is taken that a job wants for itself.
func (s *State) notWhole(j *cluster.Job, n *cluster.Node, b *cluster.Berth) cluster.Reason {
	if !j.Spec.WholeNodes() {
		return cluster.Reason{}
	}
	if set := s.nodeJobs[n.ID]; set != nil && set.n > 0 {
		return cluster.Reason{Code: cluster.ReasonExclusive, Detail: "node " + string(n.ID) + " has others on it, it is wanted alone"}
	}
	if b.CPUMilli < n.CPUMilli {
		return stale("a part of node %s was planned, all of it is asked for", n.ID)
	}
	return cluster.Reason{}
}

// elsewhereQueue tells why a job may not wait for a card.
func (s *State) elsewhereQueue(j *cluster.Job, n *cluster.Node) cluster.Reason {
	if j.Spec.Where == nil {
		return cluster.Reason{}
	}
	if why := j.Spec.Refuses(n); why != "" {
		return stale("node %s %s", n.ID, why)
	}
	if j.Spec.WholeNodes() {
		return stale("job %d wants whole nodes and waits in no queue", j.ID)
	}
	return cluster.Reason{}
}

package admission

import (
	"cmp"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
)

// NamedNodes returns the nodes that a job asks for by name.
func NamedNodes(s *cluster.Spec) []cluster.NodeID {
	if !s.Where.Named() {
		return nil
	}
	return s.Where.Nodes.Names()
}

// mayReserve refuses a job that asks for a reservation that does not exist, or is
// not for it.
func (a *Admission) mayReserve(who authorize.Caller, j *cluster.Job) error {
	name := j.Spec.Where.InReservation()
	if name == "" {
		return nil
	}
	r := a.fsm.Reservations().Get(name)
	if r == nil {
		return cluster.Errorf(cluster.CodeInvalid, "reservation %q is not known; see: berth reservation list", name)
	}
	if _, end, ok := r.Window(cluster.TimeOf(a.clock())); !ok {
		return cluster.Errorf(cluster.CodeInvalid, "reservation %s ended at %s; submit without it, or name another one", name, ClockText(end))
	}
	owner := &cluster.Owner{UID: who.UID, GID: who.GID, Name: who.Name}
	if !r.Admits(owner, j.Spec.Account) {
		return cluster.Errorf(cluster.CodeDenied, "reservation %s is not for %s; %s", name, who.Name, r.Who())
	}
	return nil
}

// EnterFor is enterAs for a user's job, which the reservation that it asks for must
// admit.
func (a *Admission) EnterFor(who authorize.Caller, j *cluster.Job, parts []*cluster.Partition) (*cluster.Partition, []string, error) {
	part, warnings, err := a.enterAs(who, j.Spec, parts)
	if err != nil {
		return nil, nil, err
	}
	return part, warnings, a.mayReserve(who, j)
}

// MayRunLonger refuses a time limit by which a running job would extend into a
// reservation of others on what it holds: that was promised to be free then.
func (m *Admission) MayRunLonger(j *cluster.Job, limit time.Duration) error {
	a := j.Live()
	if a == nil || !cluster.LongerLimit(limit, j.Spec.TimeLimit) {
		return nil
	}
	now := cluster.TimeOf(m.clock())
	began := cmp.Or(a.Started, now)
	probe := j.Clone()
	spec := *j.Spec
	spec.TimeLimit, probe.Spec = limit, &spec
	end := probe.LatestEnd(began)
	for _, r := range m.fsm.Reservations() {
		for _, b := range a.Berths() {
			at, bars := r.Bars(j, b.Node, "", now, end)
			for i := 0; i < len(b.GPUs) && !bars; i++ {
				at, bars = r.Bars(j, b.Node, b.GPUs[i].GPU, now, end)
			}
			if bars {
				return cluster.Errorf(cluster.CodeConflict, "time: job %s would run into reservation %s, which begins on %s at %s; give it at most %s, or change the reservation first",
					j.Label(), r.Name, b.Node, at.Std().Format(time.RFC3339), max(0, at.Sub(began)).Truncate(time.Second))
			}
		}
	}
	return nil
}

// ClockText formats a time for users.
func ClockText(t cluster.Time) string { return t.Std().UTC().Format("2006-01-02 15:04:05 MST") }

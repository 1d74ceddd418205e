package coordinator

import (
	"github.com/berth-scheduler/berth/cluster"
)

// namedNodes are the nodes that a job asks for by their names.
func namedNodes(s *cluster.Spec) []cluster.NodeID {
	if !s.Where.Named() {
		return nil
	}
	return s.Where.Nodes.Names()
}

// mayReserve refuses a job that asks for a reservation which is not there, or
// not for it.
func (c *Coordinator) mayReserve(who caller, j *cluster.Job) error {
	name := j.Spec.Where.InReservation()
	if name == "" {
		return nil
	}
	r := c.fsm.Reservations().Get(name)
	if r == nil {
		return cluster.Errorf(cluster.CodeInvalid, "reservation %q is not known; see: berth reservation list", name)
	}
	if _, end, ok := r.Window(c.nowTime()); !ok {
		return cluster.Errorf(cluster.CodeInvalid, "reservation %s ended at %s; submit without it, or name another one", name, clockText(end))
	}
	owner := &cluster.Owner{UID: who.uid, GID: who.gid, Name: who.name}
	if !r.Admits(owner, j.Spec.Account) {
		return cluster.Errorf(cluster.CodeDenied, "reservation %s is not for %s; %s", name, who.name, r.Who())
	}
	return nil
}

// enterFor is enterAs for a job of somebody, who must be let into the
// reservation that it asks for.
func (c *Coordinator) enterFor(who caller, j *cluster.Job, parts []*cluster.Partition) (*cluster.Partition, []string, error) {
	part, warnings, err := c.enterAs(who, j.Spec, parts)
	if err != nil {
		return nil, nil, err
	}
	return part, warnings, c.mayReserve(who, j)
}

package admission

import (
	"errors"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// Choose gives a job that names several partitions the first of them that would
// ever run it and is up, otherwise the first that would run it once it is up. Slurm
// takes the one where the job starts first; here a job waits in one queue, chosen
// on arrival. A job that names one partition, or none, enters it. If none takes the
// job, the refusal has the words of each.
func (a *Admission) Choose(who authorize.Caller, j *cluster.Job, parts []*cluster.Partition, nodes []*cluster.Node) (warnings []string, err error) {
	names := cluster.PartitionNames(j.Spec.Partition)
	if len(names) < 2 || len(parts) == 0 {
		return a.enterPartition(who, j, parts, nodes)
	}
	var down *cluster.Spec
	var of, why []string
	code := cluster.CodeInvalid
	for _, name := range names {
		probe, spec := *j, *j.Spec
		probe.Spec, spec.Partition = &spec, name
		warnings, err := a.enterPartition(who, &probe, parts, nodes)
		switch {
		case err != nil:
			if e, ok := errors.AsType[*cluster.Error](err); ok {
				code = e.Code
			}
			why = append(why, err.Error())
		case !isDown(parts, name):
			j.Spec = &spec
			return warnings, nil
		case down == nil:
			down, of = &spec, warnings
		}
	}
	if down != nil {
		j.Spec = down
		return of, nil
	}
	return nil, cluster.Errorf(code, "none of the partitions %s takes it: %s", strings.Join(names, ", "), strings.Join(why, "; "))
}

// enterPartition lets a job into the one partition that it names, or into the
// default one.
func (a *Admission) enterPartition(who authorize.Caller, j *cluster.Job, parts []*cluster.Partition, nodes []*cluster.Node) (warnings []string, err error) {
	part, warnings, err := a.EnterFor(who, j, parts)
	if err != nil {
		return nil, err
	}
	warnings = append(warnings, a.allMem(nodes, part, j)...)
	return warnings, a.NeverFits(nodes, part, j)
}

// allMem turns a request for all of a node's memory into an amount: that of the
// smallest node that could run the job, so that each of these stays open to it. On
// exclusive nodes a job has all memory anyway.
func (a *Admission) allMem(nodes []*cluster.Node, part *cluster.Partition, j *cluster.Job) (warnings []string) {
	if !j.Spec.AllMem {
		return nil
	}
	j.Spec.AllMem = false
	if j.Spec.WholeNodes() {
		return nil
	}
	j.Spec.MemMiB = rules.LeastNodeMem(site.NodesOf(a.nodes.Emptied(nodes), part), j, a.lead.PolicyOf(j))
	if j.Spec.MemMiB == 0 {
		return []string{"mem: there is no node yet of which the job could have all memory; it gets what is predicted, or the minimum. For more, give an amount"}
	}
	return nil
}

func isDown(parts []*cluster.Partition, name string) bool {
	for _, p := range parts {
		if p.Name == name {
			return p.Down
		}
	}
	return false
}

// NeverFits refuses a job that no node of its partition could ever run.
func (a *Admission) NeverFits(nodes []*cluster.Node, part *cluster.Partition, j *cluster.Job) error {
	if r := a.lead.Scheduling().Of(j.Spec.Partition).SpanReason(j); r.Code != "" {
		return cluster.Errorf(cluster.CodeInvalid, "nodes: %s", r.Detail)
	}
	own := site.NodesOf(a.nodes.Emptied(nodes), part)
	err := rules.NeverFits(own, j, a.lead.PolicyOf(j))
	switch {
	case err == nil:
		return a.fitsReservation(own, j)
	case part == nil:
		return err
	}
	return cluster.Errorf(err.Code, "in partition %s: %s", part.Name, err.Msg)
}

// fitsReservation refuses a job that could run on some nodes, but not on what its
// reservation has of them. Those that have yet to join may have it.
func (a *Admission) fitsReservation(nodes []*cluster.Node, j *cluster.Job) error {
	r := a.fsm.Reservations().Get(j.Spec.Where.InReservation())
	if r == nil {
		return nil
	}
	inside := r.Of(nodes)
	if len(inside) == 0 {
		return nil
	}
	if err := rules.NeverFits(inside, j, a.lead.PolicyOf(j)); err != nil {
		return cluster.Errorf(err.Code, "inside reservation %s: %s; ask for what it has (berth reservation show %s), or submit without it", r.Name, err.Msg, r.Name)
	}
	return nil
}

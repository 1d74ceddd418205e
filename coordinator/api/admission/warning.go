package admission

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// enterWarned is enter for a job that may want a warning before its limit.
func enterWarned(spec *cluster.Spec, parts []*cluster.Partition) (part *cluster.Partition, warnings []string, err error) {
	part, warning, err := enter(spec, parts)
	if err != nil {
		return nil, nil, err
	}
	unheard, err := heed(spec)
	for _, w := range []string{warning, unheard} {
		if w != "" {
			warnings = append(warnings, w)
		}
	}
	return part, warnings, err
}

// heed checks a job's warning against the time limit that its partition gave it.
// One that would never be sent yields a warning; one that would come no later than
// the job's start is refused.
func heed(spec *cluster.Spec) (warning string, err error) {
	w := spec.Warning
	switch {
	case !w.Set():
		return "", nil
	case spec.TimeLimit == 0:
		return "signal " + w.String() + ": is never sent, since the job has no time limit; give one with --time", nil
	case w.Before >= spec.TimeLimit:
		return "", cluster.Errorf(cluster.CodeInvalid, "signal and time: %s before the end of a job of %s, the partition's default time, is no later than its start; signal later, or ask for more with --time",
			w.Before, spec.TimeLimit)
	}
	return "", nil
}

// excluded warns of nodes that a job excludes and that are not there: a mistyped
// name excludes nothing.
func excluded(e *Entry) error {
	if e.Job.Spec.Where == nil {
		return nil
	}
	names := e.Job.Spec.Where.Exclude.Names()
	if len(names) == 0 {
		return nil
	}
	there := make(map[cluster.NodeID]struct{}, len(e.Nodes))
	for _, n := range e.Nodes {
		there[n.ID] = struct{}{}
	}
	names = slices.DeleteFunc(names, func(id cluster.NodeID) bool { _, ok := there[id]; return ok })
	if len(names) > 0 {
		are := "is"
		if len(names) > 1 {
			are = fmt.Sprintf("and %d more are", len(names)-1)
		}
		e.warn(fmt.Sprintf("exclude: %s %s not registered, which excludes nothing; berth node list shows the names", names[0], are))
	}
	return nil
}

// cost warns of a limit on the cost that no GPU type can exceed.
func (a *Admission) cost(e *Entry) error {
	if e.Job.Spec.MaxCostMilli > 0 && a.lead.PolicyOf(e.Job).Prices == nil {
		e.warn("max-cost: nothing has a price here (scheduling.prices of the coordinators), so nothing is too expensive")
	}
	return nil
}

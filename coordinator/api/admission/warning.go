package admission

import "github.com/berth-scheduler/berth/cluster"

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

package coordinator

import (
	"github.com/berth-scheduler/berth/cluster"
)

// enterAs does enterWarned, and gives the job its standing.
func (c *Coordinator) enterAs(who caller, spec *cluster.Spec, parts []*cluster.Partition) (part *cluster.Partition, warnings []string, err error) {
	if part, warnings, err = enterWarned(spec, parts); err != nil {
		return nil, nil, err
	}
	return part, warnings, c.enterStanding(who, spec)
}

// enterStanding gives a job the account, the quality of service and the nice
// value that it runs under, or refuses it.
func (c *Coordinator) enterStanding(who caller, spec *cluster.Spec) error {
	if spec.Nice < 0 && !who.admin {
		return cluster.Errorf(cluster.CodeDenied, "nice: %d would put the job before those of others, which only administrators may do; use 0 to %d", spec.Nice, cluster.MaxNice)
	}
	return nil
}

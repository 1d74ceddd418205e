package admission

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
)

// service lets a new revision of a service that runs begin with one replica: the leader
// puts the others in the place of the old ones as it comes.
func (a *Admission) service(e *Entry) error {
	s := e.Job.Spec
	if s.Service == nil {
		return nil
	}
	for _, r := range a.fsm.Services() {
		if r.Owner.UID != e.Who.UID || r.Spec.Service.Name != s.Service.Name {
			continue
		}
		changed, array := *s, *s.Array
		array.Throttle = min(1, s.Service.Replicas)
		changed.Array = &array
		e.Job.Spec = &changed
		e.Warnings = append(e.Warnings, fmt.Sprintf("service %s runs as job %s: its replicas are replaced one by one", s.Service.Name, cluster.JobID(r.ID)))
		return nil
	}
	return nil
}

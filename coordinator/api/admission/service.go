package admission

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
)

const (
	// servicesAtOnce is how many services one request may hold.
	servicesAtOnce = 100
	// servicesPerUser is how many services of one user run, with as many more while
	// new revisions replace old ones. A leader checks each every second.
	servicesPerUser = 500
)

// service bounds the services of a user, and lets a new revision of a running one
// begin with one replica: the leader replaces the others as it comes up.
func (a *Admission) service(e *Entry) error {
	s := e.Job.Spec
	if s.Service == nil {
		return nil
	}
	if e.services++; e.services > servicesAtOnce {
		return cluster.Errorf(cluster.CodeInvalid, "service: more than %d in one request; send fewer at once", servicesAtOnce)
	}
	running := a.fsm.ServicesWhere(func(owner cluster.UID, _ string, of *cluster.Spec) bool {
		return owner == e.Who.UID && of.Service.Name == s.Service.Name
	})
	if e.services == 1 {
		e.mostServices = 2 * servicesPerUser
	}
	if len(running) == 0 {
		e.mostServices = servicesPerUser
		return nil
	}
	changed, array := *s, *s.Array
	array.Throttle = min(1, s.Service.Replicas)
	changed.Array = &array
	e.Job.Spec = &changed
	e.Warnings = append(e.Warnings, fmt.Sprintf("service %s runs as job %s: its replicas are replaced one by one", s.Service.Name, cluster.JobID(running[0].ID)))
	return nil
}

// roomForServices bounds the services of a user, of which n are requested and so
// many others are about to be there.
func (a *Admission) roomForServices(who authorize.Caller, n, others, most int) error {
	if has := a.fsm.UserServices(who.UID) + others; has+n > most {
		return cluster.Errorf(cluster.CodeExhausted, "service: user %d has %d running, counting each revision, and submits %d more; at most %d are allowed; berth service delete ends one", who.UID, has, n, most)
	}
	return nil
}

package conv

import (
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// tellingFromAPI reads whom a job wants written to, and how long it may idle.
func tellingFromAPI(s *cluster.Spec, m *apiv1.JobSpec) (err error) {
	if t := m.GetMailType(); t != "" {
		if s.Mail.Events, err = cluster.ParseMailEvents(t); err != nil {
			return err
		}
	}
	s.Mail.To = m.GetMailUser()
	s.IdleOK, err = duration("idle_ok", m.GetIdleOk())
	return err
}

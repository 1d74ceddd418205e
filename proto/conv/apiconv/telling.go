package apiconv

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// tellingFromAPI converts whom to mail about a job, and how long it may idle, and
// wait.
func tellingFromAPI(s *cluster.Spec, m *apiv1.JobSpec) (err error) {
	if t := m.GetMailType(); t != "" {
		if s.Mail.Events, err = cluster.ParseMailEvents(t); err != nil {
			return err
		}
	}
	s.Mail.To, s.NoResize = m.GetMailUser(), m.GetNoResize()
	if s.Defer, err = duration("defer", m.GetDefer()); err != nil {
		return err
	}
	s.IdleOK, err = duration("idle_ok", m.GetIdleOk())
	return err
}

func progressToAPI(p *cluster.Progress) *apiv1.Progress {
	if p == nil {
		return nil
	}
	m := &apiv1.Progress{At: ToTime(p.At), Step: p.Step, Total: p.Total}
	if p.StepTime > 0 {
		m.StepTime = durationpb.New(p.StepTime)
	}
	if rest, ok := p.Rest(); ok {
		m.Ends = ToTime(p.At.Add(rest))
	}
	return m
}

package apiconv

import (
	"cmp"
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// ServiceToAPI converts a service; nil stays nil.
func ServiceToAPI(s *service.Service) *apiv1.Service {
	if s == nil {
		return nil
	}
	return &apiv1.Service{
		Name: s.Name, Replicas: uint32(max(0, s.Replicas)), Least: uint32(max(0, s.Min)), Most: uint32(max(0, s.Max)), Port: s.Port, Health: s.Health,
		Every: ToDuration(s.Every), Fails: uint32(max(0, s.Fails)), StartWithin: ToDuration(s.StartWithin), Drain: durationpb.New(s.Drain),
		ScaleOn: s.Scale.On, ScaleTarget: s.Scale.Target, SloPercent: uint32(max(0, s.SLO.Percent)), SloWithin: ToDuration(s.SLO.Within), IdleAfter: ToDuration(s.IdleAfter), NoForecast: s.NoForecast,
	}
}

// ServiceFromAPI converts a service, fills in defaults, and narrows values that are
// too large to ones that Check refuses in words; nil stays nil.
func ServiceFromAPI(m *apiv1.Service) *service.Service {
	if m == nil {
		return nil
	}
	narrow := func(n uint32) int { return int(min(n, math.MaxInt16)) }
	s := &service.Service{
		Name: m.GetName(), Replicas: narrow(m.GetReplicas()), Min: narrow(m.GetLeast()), Max: narrow(m.GetMost()), Port: m.GetPort(), Health: m.GetHealth(),
		Every: service.DefaultEvery, Fails: narrow(m.GetFails()), StartWithin: service.DefaultStartWithin, Drain: service.DefaultDrain,
		Scale: service.Scale{On: m.GetScaleOn(), Target: m.GetScaleTarget()},
		SLO:   service.SLO{Percent: narrow(m.GetSloPercent()), Within: m.GetSloWithin().AsDuration()}, IdleAfter: m.GetIdleAfter().AsDuration().Round(time.Microsecond), NoForecast: m.GetNoForecast(),
	}
	if s.Min == 0 && m.GetIdleAfter() == nil {
		s.IdleAfter = service.DefaultIdleAfter
	}
	s.Port = cmp.Or(s.Port, service.DefaultPort)
	s.Fails = cmp.Or(s.Fails, service.DefaultFails)
	if d := m.GetEvery(); d != nil {
		s.Every = d.AsDuration().Round(time.Microsecond)
	}
	if d := m.GetStartWithin(); d != nil {
		s.StartWithin = d.AsDuration().Round(time.Microsecond)
	}
	if d := m.GetDrain(); d != nil {
		s.Drain = d.AsDuration().Round(time.Microsecond)
	}
	return s
}

// replicaToAPI converts the state and place of a service replica; nil for other
// jobs.
func replicaToAPI(j *cluster.Job, d JobDetail) *apiv1.Replica {
	if j.Spec == nil || j.Spec.Service == nil {
		return nil
	}
	s := j.Spec.Service
	m := &apiv1.Replica{
		Service: s.Name, PortName: s.Port, Want: uint32(max(0, d.Throttle)), Least: uint32(max(0, s.Min)), Most: uint32(max(0, s.Max)), ScaleOn: s.Scale.String(), Slo: s.SLO.String(),
	}
	var known Served
	if d.Served != nil && !d.Redact {
		known = d.Served(j.Owner.UID, s.Name)
		servedToAPI(m, s, &known)
	}
	a := j.Live()
	if a == nil || a.Started == 0 || j.State != cluster.JobRunning {
		return m
	}
	m.Port, m.State, m.Since = uint32(a.Port), service.Starting.String(), ToTime(a.Started)
	m.Why = known.Unready[cluster.AttemptID{Job: j.ID, No: a.No}]
	if d.Host != nil {
		m.Address = d.Host(a.Berth.Node)
	}
	if v := a.Serving; v != nil {
		m.State, m.Since, m.Why = v.State.String(), ToTime(v.Since), v.Why
	}
	if a.Preempt != nil || j.Cancel != nil {
		m.State = service.Draining.String()
	}
	if d.Redact {
		m.Why = ""
	}
	return m
}

// Served holds the measurements of a service, and how soon its replicas accept
// requests.
type Served struct {
	service.Measured
	ColdStart time.Duration
	Starts    int
	// Told is the reason for its number of replicas, LoadKnown for how long its
	// load is known.
	Told      service.Told
	LoadKnown time.Duration
	// Unready is why attempts that have accepted no request yet do not.
	Unready map[cluster.AttemptID]string
}

func servedToAPI(m *apiv1.Replica, s *service.Service, v *Served) {
	if v.Known {
		m.Rate, m.InFlight = &v.Rate, proto.Uint32(uint32(max(0, v.InFlight)))
	}
	if s.SLO != (service.SLO{}) {
		m.Measured, m.Asked, m.Within = ToDuration(v.Latency.Percentile(s.SLO.Percent)), v.Asked, v.Measured.Within
	}
	m.ColdStart, m.ColdStarts = ToDuration(v.ColdStart), uint32(max(0, v.Starts))
	m.WantWhy, m.NoForecast = v.Told.String(), s.NoForecast
	if s.Forecasts() {
		m.LoadKnown = durationpb.New(v.LoadKnown)
	}
	if f := &v.Told.Forecast; f.Ahead > 0 {
		m.Forecast, m.ForecastAt, m.ForecastAhead = &f.Load, ToTime(cluster.Time(f.At/time.Microsecond)), ToDuration(f.Ahead)
		m.ForecastWant, m.ForecastTrend = uint32(v.Told.Ahead), f.Trend
	}
}

package conv

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func serviceToLog(s *service.Service) *logv1.Service {
	if s == nil {
		return nil
	}
	return &logv1.Service{
		Name: s.Name, Replicas: uint32(s.Replicas), Least: uint32(s.Min), Most: uint32(s.Max), Port: s.Port, Health: s.Health, EveryUs: s.Every.Microseconds(),
		Fails: uint32(s.Fails), StartWithinUs: s.StartWithin.Microseconds(), DrainUs: s.Drain.Microseconds(), ScaleOn: s.Scale.On, ScaleTarget: s.Scale.Target,
		SloPercent: uint32(s.SLO.Percent), SloUs: s.SLO.Within.Microseconds(), IdleAfterUs: s.IdleAfter.Microseconds(), NoForecast: s.NoForecast,
	}
}

func serviceFromLog(m *logv1.Service) *service.Service {
	if m == nil {
		return nil
	}
	return &service.Service{
		Name: m.Name, Replicas: int(m.Replicas), Min: int(m.Least), Max: int(m.Most), Port: m.Port, Health: m.Health, Every: us(m.EveryUs),
		Fails: int(m.Fails), StartWithin: us(m.StartWithinUs), Drain: us(m.DrainUs), Scale: service.Scale{On: m.ScaleOn, Target: m.ScaleTarget},
		SLO: service.SLO{Percent: int(m.SloPercent), Within: us(m.SloUs)}, IdleAfter: us(m.IdleAfterUs), NoForecast: m.NoForecast,
	}
}

// LoadToLog converts the load history of a service; nil stays nil.
func LoadToLog(h *service.History) *logv1.LoadHistory {
	if h == nil {
		return nil
	}
	return &logv1.LoadHistory{First: h.First, Loads: h.Loads, Each: h.Each}
}

// LoadFromLog converts back; nil stays nil.
func LoadFromLog(m *logv1.LoadHistory) *service.History {
	if m == nil {
		return nil
	}
	return &service.History{First: m.First, Loads: m.Loads, Each: m.Each}
}

// ServingToLog converts the state of a replica; nil stays nil.
func ServingToLog(s *cluster.Serving) *logv1.Serving {
	if s == nil {
		return nil
	}
	return &logv1.Serving{State: uint32(s.State), SinceUs: int64(s.Since), Why: s.Why, FirstUs: int64(s.First)}
}

// ServingFromLog converts back; nil stays nil.
func ServingFromLog(m *logv1.Serving) *cluster.Serving {
	if m == nil {
		return nil
	}
	return &cluster.Serving{State: service.State(m.State), Since: cluster.Time(m.SinceUs), Why: m.Why, First: cluster.Time(m.FirstUs)}
}

// ProbeFromNode converts an agent's health check of a replica, nil for none.
func ProbeFromNode(m *nodev1.Probe) *service.Probe {
	if m == nil {
		return nil
	}
	return &service.Probe{OK: m.Ok, Fails: int(min(m.Fails, 1<<20)), Why: service.ClipWhy(m.Why)}
}

// replica makes an assignment that of a replica, which finds in its environment
// where to accept requests.
func replica(as *nodev1.Assignment, j *cluster.Job, a *cluster.Attempt) []string {
	s := j.Spec.Service
	as.Replica = &nodev1.Replica{Service: s.Name, PortName: s.Port, Port: uint32(a.Port), Health: s.Health, Every: durationpb.New(s.Every.Round(time.Microsecond))}
	as.Metric = s.Metric()
	port := strconv.Itoa(int(a.Port))
	return []string{
		"PORT=" + port, "BERTH_PORT=" + port, "BERTH_PORT_" + strings.ToUpper(strings.ReplaceAll(s.Port, "-", "_")) + "=" + port,
		"BERTH_SERVICE=" + s.Name, fmt.Sprintf("BERTH_REPLICA=%d", j.ArrayTaskID),
	}
}

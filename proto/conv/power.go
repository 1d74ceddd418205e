package conv

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// powerToLog converts the power state of a node; the zero state is not stored.
func powerToLog(p cluster.Power) *logv1.NodePower {
	if p == (cluster.Power{}) {
		return nil
	}
	return &logv1.NodePower{
		State: uint32(p.State), SinceUs: int64(p.Since), Asked: p.Asked, By: uint32(p.By), Why: p.Why, NotBeforeUs: int64(p.NotBefore),
	}
}

func powerFromLog(node string, m *logv1.NodePower) (cluster.Power, error) {
	if m.GetState() > uint32(cluster.PowerFailed) {
		return cluster.Power{}, fmt.Errorf("node %s: state of power %d is not known", node, m.GetState())
	}
	return cluster.Power{
		State: cluster.PowerState(m.GetState()), Since: cluster.Time(m.GetSinceUs()), Asked: m.GetAsked(), By: cluster.UID(m.GetBy()),
		Why: m.GetWhy(), NotBefore: cluster.Time(m.GetNotBeforeUs()),
	}, nil
}

// CapSearchToLog converts the result of the search for a power cap; nil stays nil.
func CapSearchToLog(s *cluster.CapSearch) *logv1.CapSearch {
	if s == nil {
		return nil
	}
	return &logv1.CapSearch{
		DefaultW: s.DefaultW, CapW: s.CapW, Why: s.Why,
		StepsBefore: s.Before.PerSecond, JoulesBefore: s.Before.Joules, StepsAfter: s.After.PerSecond, JoulesAfter: s.After.Joules,
	}
}

// CapSearchFromLog converts back; nil stays nil.
func CapSearchFromLog(m *logv1.CapSearch) *cluster.CapSearch {
	if m == nil {
		return nil
	}
	return &cluster.CapSearch{
		DefaultW: m.DefaultW, CapW: m.CapW, Why: m.Why,
		Before: cluster.StepCost{PerSecond: m.StepsBefore, Joules: m.JoulesBefore}, After: cluster.StepCost{PerSecond: m.StepsAfter, Joules: m.JoulesAfter},
	}
}

// CapSearchToNode converts the result of the search for a power cap; nil stays nil.
func CapSearchToNode(s *cluster.CapSearch) *nodev1.CapSearch {
	if s == nil {
		return nil
	}
	return &nodev1.CapSearch{
		DefaultW: s.DefaultW, CapW: s.CapW, Why: clip(s.Why, cluster.MaxPowerWhy),
		StepsBefore: s.Before.PerSecond, JoulesBefore: s.Before.Joules, StepsAfter: s.After.PerSecond, JoulesAfter: s.After.Joules,
	}
}

// CapSearchFromNode converts back; nil stays nil.
func CapSearchFromNode(m *nodev1.CapSearch) *cluster.CapSearch {
	if m == nil {
		return nil
	}
	return &cluster.CapSearch{
		DefaultW: m.DefaultW, CapW: m.CapW, Why: m.Why,
		Before: cluster.StepCost{PerSecond: m.StepsBefore, Joules: m.JoulesBefore}, After: cluster.StepCost{PerSecond: m.StepsAfter, Joules: m.JoulesAfter},
	}
}

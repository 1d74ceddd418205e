package apiconv

import (
	"math"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// StudyToAPI converts a study; nil stays nil.
func StudyToAPI(s *study.Study) *apiv1.Study {
	if s == nil {
		return nil
	}
	m := &apiv1.Study{
		Metric: s.Metric, Maximize: s.Maximize, Rule: string(s.Rule), First: s.First, Eta: uint32(max(0, s.Eta)), Grid: s.Grid, Seed: s.Seed,
		Budget: ToDuration(s.Budget),
	}
	for _, a := range s.Space {
		m.Space = append(m.Space, &apiv1.Axis{Name: a.Name, Kind: string(a.Kind), Low: a.Low, High: a.High, Values: a.Values})
	}
	return m
}

// StudyFromAPI converts a study, and narrows values that are too large to ones that
// Check refuses in words; nil stays nil.
func StudyFromAPI(m *apiv1.Study) *study.Study {
	if m == nil {
		return nil
	}
	s := &study.Study{
		Metric: m.GetMetric(), Maximize: m.GetMaximize(), Rule: study.Rule(m.GetRule()), First: m.GetFirst(), Eta: int(min(m.GetEta(), math.MaxInt16)), Grid: m.GetGrid(), Seed: m.GetSeed(),
	}
	if d := m.GetBudget(); d != nil {
		s.Budget = d.AsDuration() // an overflow becomes the longest duration, which is refused
	}
	for _, a := range m.GetSpace()[:min(len(m.GetSpace()), study.MaxAxes+1)] {
		s.Space = append(s.Space, study.Axis{Name: a.GetName(), Kind: study.Kind(a.GetKind()), Low: a.GetLow(), High: a.GetHigh(), Values: a.GetValues()})
	}
	return s
}

// trialToAPI converts what a job reported of its metric, and a trial's parameter
// values; nil for jobs without either.
func trialToAPI(j *cluster.Job, now cluster.Time, brief bool) *apiv1.Trial {
	if j.Spec == nil || j.Spec.Study == nil {
		return nil
	}
	s := j.Spec.Study
	m := &apiv1.Trial{Metric: s.Metric, Maximize: s.Maximize, GpuSeconds: j.GPUTime(now).Seconds()}
	if a := j.Last(); a != nil && a.Progress != nil {
		m.Step = a.Progress.Step
	}
	if seen := j.Seen(); seen != nil {
		m.Last, m.Best, m.BestStep, m.Rungs = &seen.Last, &seen.Best, seen.BestStep, uint32(len(seen.Marks))
	}
	if (!brief || j.Copy() != nil) && s.Searches() && j.Count() == 1 {
		for _, p := range s.ParamsAfter(j.ArrayTaskID, j.Copy()) {
			m.Params = append(m.Params, p.Name+"="+p.Value)
		}
	}
	for _, c := range j.Copies() {
		m.CopiedFrom = append(m.CopiedFrom, c.From)
	}
	return m
}

package conv

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func studyToLog(s *study.Study) *logv1.Study {
	if s == nil {
		return nil
	}
	m := &logv1.Study{
		Metric: s.Metric, Maximize: s.Maximize, Rule: string(s.Rule), First: s.First, Eta: uint32(s.Eta), Grid: s.Grid, Seed: s.Seed,
		BudgetUs: s.Budget.Microseconds(),
	}
	for _, a := range s.Space {
		m.Space = append(m.Space, &logv1.Axis{Name: a.Name, Kind: string(a.Kind), Low: a.Low, High: a.High, Values: a.Values})
	}
	return m
}

func studyFromLog(m *logv1.Study) *study.Study {
	if m == nil {
		return nil
	}
	s := &study.Study{
		Metric: m.Metric, Maximize: m.Maximize, Rule: study.Rule(m.Rule), First: m.First, Eta: int(m.Eta), Grid: m.Grid, Seed: m.Seed,
		Budget: us(m.BudgetUs),
	}
	for _, a := range m.Space {
		s.Space = append(s.Space, study.Axis{Name: a.GetName(), Kind: study.Kind(a.GetKind()), Low: a.GetLow(), High: a.GetHigh(), Values: a.GetValues()})
	}
	return s
}

// CopyToLog converts a trial's restart from another; nil stays nil.
func CopyToLog(c *study.Copy) *logv1.TrialCopy {
	if c == nil {
		return nil
	}
	return &logv1.TrialCopy{From: c.From, Generation: c.Generation, FromGeneration: c.FromGeneration, Values: c.Values}
}

// CopyFromLog converts back; nil stays nil.
func CopyFromLog(m *logv1.TrialCopy) *study.Copy {
	if m == nil {
		return nil
	}
	return &study.Copy{From: m.From, Generation: m.Generation, FromGeneration: m.FromGeneration, Values: m.Values}
}

// trialEnv returns where a trial of a population keeps its state, and what it
// continues from while there is none yet: each generation has its own directory in
// the job's.
func trialEnv(j *cluster.Job) []string {
	if j.Spec.Study.Rule != study.RulePBT {
		return nil
	}
	c, generation := j.Copy(), uint32(0)
	of := func(trial, generation uint32) string {
		return path.Join(j.Spec.Dir, fmt.Sprintf("berth-study-%d", j.ArrayJobID), fmt.Sprintf("trial-%d", trial), fmt.Sprintf("generation-%d", generation))
	}
	var out []string
	if c != nil {
		generation = c.Generation
		out = []string{"BERTH_TRIAL_FROM=" + of(c.From, c.FromGeneration)}
	}
	return append(out, "BERTH_TRIAL_DIR="+of(j.ArrayTaskID, generation), fmt.Sprintf("BERTH_TRIAL_GENERATION=%d", generation))
}

func seenToLog(s *study.Seen) *logv1.Seen {
	if s == nil {
		return nil
	}
	m := &logv1.Seen{Last: s.Last, Best: s.Best, BestStep: s.BestStep}
	for _, k := range s.Marks {
		m.Marks = append(m.Marks, &logv1.Mark{Rung: k.Rung, Value: k.Value})
	}
	return m
}

func seenFromLog(m *logv1.Seen) *study.Seen {
	if m == nil {
		return nil
	}
	s := &study.Seen{Last: m.Last, Best: m.Best, BestStep: m.BestStep}
	for _, k := range m.Marks {
		s.Marks = append(s.Marks, study.Mark{Rung: k.GetRung(), Value: k.GetValue()})
	}
	return s
}

// paramEnv returns the variables that hold a trial's values: BERTH_PARAM_NAME each,
// and BERTH_PARAMS all, as JSON.
func paramEnv(params []study.Param) []string {
	all := map[string]any{}
	var out []string
	for _, p := range params {
		out = append(out, "BERTH_PARAM_"+strings.ToUpper(p.Name)+"="+p.Value)
		all[p.Name] = p.Value
		if json.Valid([]byte(p.Value)) {
			all[p.Name] = json.RawMessage(p.Value)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return out // never: values are text, or JSON checked before
	}
	return append(out, "BERTH_PARAMS="+string(text))
}

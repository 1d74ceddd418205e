package view

import (
	"fmt"
	"strings"

	"github.com/berth-scheduler/berth/cluster/study"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// trialView is the JSON of a trial of a study. Last and Best are null while it said
// nothing of the metric.
type trialView struct {
	Metric   string            `json:"metric"`
	Last     *float64          `json:"last"`
	Best     *float64          `json:"best"`
	BestStep int64             `json:"best_step"`
	Params   map[string]string `json:"params,omitempty"`
}

func viewTrial(j *apiv1.Job) *trialView {
	t := j.GetTrial()
	if t == nil {
		return nil
	}
	v := &trialView{Metric: t.GetMetric(), Last: t.Last, Best: t.Best, BestStep: t.GetBestStep()}
	for _, p := range paramsOf(j) {
		if v.Params == nil {
			v.Params = map[string]string{}
		}
		v.Params[p.Name] = p.Value
	}
	return v
}

// paramsOf are the values of a trial, none where its spec is not there or is no study.
func paramsOf(j *apiv1.Job) []study.Param {
	s := apiconv.StudyFromAPI(j.GetSpec().GetStudy())
	if s == nil || s.Check() != nil || j.GetArrayCount() > 1 {
		return nil
	}
	return s.Params(j.GetArrayTaskId())
}

// TrialText is the values of a trial and how good it is, "" of other jobs.
func TrialText(j *apiv1.Job) string {
	var parts []string
	for _, p := range paramsOf(j) {
		parts = append(parts, p.Name+"="+p.Value)
	}
	text := strings.Join(parts, " ")
	if t := j.GetTrial(); t != nil && t.Best != nil {
		text += fmt.Sprintf("; %s %.5g, the best %.5g at step %s", t.GetMetric(), t.GetLast(), t.GetBest(), grouped(t.GetBestStep()))
	}
	return strings.TrimPrefix(text, "; ")
}

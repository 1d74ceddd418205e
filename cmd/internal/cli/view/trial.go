package view

import (
	"fmt"
	"strings"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// trialView is the JSON of a trial of a study. Last and Best are null until
// it reports the metric.
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
	for _, p := range t.GetParams() {
		if v.Params == nil {
			v.Params = map[string]string{}
		}
		name, value, _ := strings.Cut(p, "=")
		v.Params[name] = value
	}
	return v
}

// TrialText gives the values of a trial and how good it is, "" for other jobs.
func TrialText(j *apiv1.Job) string {
	text := strings.Join(j.GetTrial().GetParams(), " ")
	if t := j.GetTrial(); t != nil && t.Best != nil {
		text += fmt.Sprintf("; %s %.5g, the best %.5g at step %s", t.GetMetric(), t.GetLast(), t.GetBest(), grouped(t.GetBestStep()))
	}
	return strings.TrimPrefix(text, "; ")
}

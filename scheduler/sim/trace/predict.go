package trace

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/gpuspec"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// Predict lets the predictor shipped with Berth say what each job needs on each
// type of GPU, by the name of its model, its batch and its steps. Jobs with models
// it does not know are predicted as in a cluster: nothing is known, and they run
// alone. It is an error if it knows none.
func Predict(w *workload.Workload, f *workload.Fleet) (*workload.Workload, error) {
	p, err := model.NewPredictor(model.DefaultWeights(), nil)
	if err != nil {
		return nil, fmt.Errorf("the shipped predictor: %w", err)
	}
	var types []model.TypeInfo
	for _, n := range f.Nodes {
		if n.GPUs > 0 && !slices.ContainsFunc(types, func(t model.TypeInfo) bool { return t.Name == n.GPUType }) {
			types = append(types, model.TypeInfo{Name: n.GPUType, MemMiB: n.MemMiB})
		}
	}
	out := &workload.Workload{Name: w.Name, Form: w.Form, Nodes: w.Nodes, Jobs: slices.Clone(w.Jobs), Notes: slices.Clone(w.Notes)}
	known, cards := 0, 0
	for i := range out.Jobs {
		j := &out.Jobs[i]
		if j.GPUs == 0 {
			continue
		}
		cards++
		features, ok := featuresOf(j)
		if ok {
			known++
		}
		j.Predicted = nil
		for _, q := range p.Predict(model.Request{Features: features, Types: types}) {
			j.Predicted = append(j.Predicted, estimateOf(q))
		}
	}
	if known == 0 {
		return nil, fmt.Errorf("the trace names no model that the predictor knows, with its batch size; it knows %s", strings.Join(model.Catalogue(), ", "))
	}
	for _, t := range types {
		if _, ok := gpuspec.Lookup(t.Name); !ok {
			out.Notes = append(out.Notes, fmt.Sprintf("predictions for cards of type %q go by an estimate of what such a card is", t.Name))
		}
	}
	out.Notes = append(out.Notes, fmt.Sprintf("predictions are those of the shipped predictor, which knows the models of %d of %d jobs; nothing is known of the others", known, cards))
	return out, nil
}

var batchIn = regexp.MustCompile(`^(.*\S) \(batch size (\d+)\)$`)

// featuresOf returns what is known of a job's model; false if nothing is.
func featuresOf(j *workload.Job) (model.Features, bool) {
	name, batch := j.Model, j.Batch
	if m := batchIn.FindStringSubmatch(name); m != nil { // Gavel's "ResNet-18 (batch size 64)"
		name = m[1]
		batch, _ = strconv.ParseInt(m[2], 10, 64)
	}
	if part := strings.Split(name, "/"); len(part) == 4 { // Lucid's model/dataset/batch/amp
		name = part[0]
		batch, _ = strconv.ParseInt(part[2], 10, 64)
	}
	if batch < 1 || name == "" {
		return model.Features{}, false
	}
	run := model.Run{Mode: model.Training, Batch: batch, Steps: j.Steps, Framework: "pytorch"}
	if j.Inference {
		run.Mode = model.Inference
	}
	f, err := model.FromCatalogue(name, run)
	return f, err == nil
}

// estimateOf rounds a prediction as coordinators do.
func estimateOf(q model.Prediction) cluster.Estimate {
	return cluster.Estimate{
		GPUType: q.GPUType, GPUMemMiB: q.GPUMemMiB, GPUMemP95MiB: q.GPUMemP95MiB, Milli: q.UtilMilli,
		Duration:   time.Duration(q.Seconds * float64(time.Second)).Round(time.Microsecond),
		HostMemMiB: q.HostMemMiB, CPUMilli: q.CPUMilli, PowerW: q.PowerW, ConfidenceMilli: int64(q.Confidence * 1000), TimeConfidenceMilli: int64(q.TimeConfidence * 1000), Source: string(q.Source),
	}
}

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// readModel turns the model flags into the spec's features. A model that
// cannot be understood is a warning, since prediction must never keep a job
// from running; a file that is not there is an error.
func (r *request) readModel() (warnings []string, err error) {
	if r.run.onnx != "" && r.run.model != "" {
		return nil, Usagef("--onnx and --model: give one of the two")
	}
	run, given := r.modelRun()
	f := model.Features{Source: model.SourceNone, Run: run}
	switch {
	case r.run.onnx != "":
		if r.run.batch == 0 {
			warnings = append(warnings, "--batch is missing: the prediction counts with 1 sample a step")
		}
		got, err := readONNX(r.run.onnx, run)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return nil, Usagef("--onnx: %w", err)
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("--onnx: %v; the job is predicted without its model", err))
		default:
			f = got
			if f.Partial {
				warnings = append(warnings, "--onnx: part of the graph was not understood; the prediction may be low")
			}
		}
	case r.run.model != "":
		if f, err = model.FromCatalogue(r.run.model, run); err != nil {
			return nil, Usagef("--model: %w", err)
		}
	case !given:
		return nil, nil
	}
	if err := f.Check(); err != nil {
		return nil, Usagef("model: %w", err)
	}
	r.spec.Features = f.Encode()
	return warnings, nil
}

// modelRun is how the flags say that the model runs; given tells whether any
// of them was.
func (r *request) modelRun() (run model.Run, given bool) {
	m := &r.run
	run = model.Run{
		Mode: model.Training, Batch: max(1, m.batch), SeqLen: m.seqLen, Steps: m.steps,
		Precision: model.Precision(m.precision), Optimizer: model.Optimizer(m.optimizer),
	}
	if m.inference {
		run.Mode, run.Optimizer = model.Inference, ""
	}
	given = m.batch > 0 || m.seqLen > 0 || m.steps > 0 || m.precision != "" || m.optimizer != "" || m.inference
	return run, given
}

// readONNX reads a model file of the caller's.
func readONNX(name string, run model.Run) (model.Features, error) {
	f, err := openRegular(name)
	if err != nil {
		return model.Features{}, err
	}
	defer f.Close()
	g, err := graph.Read(f)
	if err != nil {
		return model.Features{}, fmt.Errorf("%s: %w", name, err)
	}
	base := filepath.Base(name)
	return model.FromGraph(g, strings.TrimSuffix(base, filepath.Ext(base)), run)
}

package eval

import (
	"errors"
	"fmt"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/learn"
)

// learned is the predictor as it runs in production: physics whose
// coefficients, correction and margins come out of the samples.
type learned struct{ opt learn.Options }

func (learned) Name() string { return "berth" }

func (l learned) Train(samples []model.Sample) (Estimator, error) {
	w, err := learn.Fit(samples, model.DefaultWeights(), l.opt)
	if errors.Is(err, learn.ErrTooFew) {
		return nil, ErrNoSamples
	}
	if err != nil {
		return nil, fmt.Errorf("learn: %w", err)
	}
	p, err := model.NewPredictor(w, nil)
	if err != nil {
		return nil, fmt.Errorf("build predictor: %w", err)
	}
	return predictor{p}, nil
}

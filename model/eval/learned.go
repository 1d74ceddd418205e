package eval

import (
	"errors"
	"fmt"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/learn"
)

// learned is the predictor as it runs in production: physics whose coefficients,
// correction and margins are learned from the samples.
type learned struct{ opt learn.Options }

func (learned) Name() string { return "berth" }

func (l learned) Train(samples []model.Sample) (Estimator, error) {
	w, err := learn.Fit(samples, model.CoreWeights(), l.opt)
	if errors.Is(err, learn.ErrTooFew) {
		return nil, ErrNoSamples
	}
	if err != nil {
		return nil, fmt.Errorf("learn: %w", err)
	}
	for i := range samples {
		w.TrainedSeq = max(w.TrainedSeq, samples[i].Seq)
	}
	p, err := model.NewPredictor(w, nil)
	if err != nil {
		return nil, fmt.Errorf("build predictor: %w", err)
	}
	return predictor{p}, nil
}

// Samples returns the rows of sets as samples to learn from, each line once,
// however many targets it serves. Summaries are left out: they describe the same
// runs as the full rows.
func Samples(sets []Set) []model.Sample {
	type line struct {
		dataset string
		id      uint64
	}
	seen := make(map[line]struct{})
	var out []model.Sample
	for i := range sets {
		if sets[i].Target == MemorySummary {
			continue
		}
		for j := range sets[i].Rows {
			r := &sets[i].Rows[j]
			k := line{r.Dataset, r.ID}
			if _, ok := seen[k]; !ok {
				seen[k] = struct{}{}
				out = append(out, r.Sample)
			}
		}
	}
	return out
}
